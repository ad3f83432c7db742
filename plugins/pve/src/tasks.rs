//! Tasks, and which of them started or stopped a guest.

use polliwog_sdk::lenient::{Field, Number, Text};
use proxmox::{Ended, SortedMap};
use serde::Deserialize;

/// A task, as `/cluster/tasks` and `/nodes/N/tasks` list it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Task {
    #[serde(rename = "type")]
    pub kind: Field<Text>,
    pub node: Field<Text>,
    pub id: Field<Text>,
    pub user: Field<Text>,
    pub status: Field<Text>,
    pub starttime: Field<Number>,
    pub endtime: Field<Number>,
}

impl Task {
    pub(crate) fn is(&self, kinds: &[&str]) -> bool {
        self.kind.get().is_some_and(|Text(kind)| kinds.contains(&kind.as_str()))
    }

    /// When it began, in seconds since 1970; 0 if that is not known.
    pub(crate) fn began(&self) -> f64 {
        self.starttime.get().map_or(0.0, |Number(seconds)| *seconds).max(0.0)
    }

    pub(crate) fn ended(&self) -> Ended {
        Ended::read(self.status.get().map(|Text(status)| status.as_str()), self.endtime.get().is_some())
    }
}

/// The last start or stop of a guest, with the time in seconds since 1970.
#[derive(Debug, PartialEq)]
pub(crate) enum Act {
    /// Also if the start failed.
    Start { at: f64 },
    /// A user stopped it.
    Stop { by: String, at: f64 },
}

/// The newest task that started or stopped a guest. A node that shuts down stops its guests, which is not a stop on
/// purpose.
pub(crate) fn last_act(id: u64, tasks: &[Task]) -> Option<Act> {
    const STARTS: [&str; 6] = ["qmstart", "vzstart", "qmreboot", "vzreboot", "qmreset", "qmresume"];
    const STOPS: [&str; 4] = ["qmstop", "vzstop", "qmshutdown", "vzshutdown"];
    let id = id.to_string();
    let of_guest = tasks.iter().filter(|task| task.id.get().is_some_and(|Text(found)| *found == id));
    let by_node = |stop: &Task| {
        tasks.iter().filter(|task| task.is(&["stopall"]) && task.node == stop.node).any(|all| {
            let ended = all.endtime.get().map_or(f64::INFINITY, |Number(ended)| *ended);
            (all.began()..=ended).contains(&stop.began())
        })
    };
    let newest = of_guest
        .filter(|task| task.is(&STARTS) || task.is(&STOPS))
        .max_by(|one, other| one.began().total_cmp(&other.began()))?;
    let at = newest.began();
    if newest.is(&STARTS) {
        return Some(Act::Start { at });
    }
    if matches!(newest.ended(), Ended::Failed(_) | Ended::Unknown) || by_node(newest) {
        return None;
    }
    let by = newest.user.get().map_or_else(|| "an unknown user".to_owned(), |Text(user)| user.clone());
    Some(Act::Stop { by, at })
}

/// The ids of the guests that a task removed, and when the last such task ended.
pub(crate) fn removed(tasks: &[Task]) -> SortedMap<u64, f64> {
    let removals = tasks
        .iter()
        .filter(|task| task.is(&["qmdestroy", "vzdestroy"]) && matches!(task.ended(), Ended::Ok | Ended::Warnings(_)));
    let mut removed = SortedMap::new();
    for task in removals {
        let (Some(Text(id)), Some(Number(ended))) = (task.id.get(), task.endtime.get()) else { continue };
        let Ok(id) = id.parse() else { continue };
        let last = removed.get_or_insert_with(id, || *ended);
        *last = last.max(*ended);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_removed_by_a_task_that_succeeded() {
        let task = |kind: &str, id: &str, status: Option<&str>| -> Task {
            let ended = status.map(|_| 60);
            serde_json::from_value(serde_json::json!({ "type": kind, "id": id, "status": status, "endtime": ended }))
                .unwrap()
        };
        let tasks = [
            task("qmdestroy", "100", Some("OK")),
            task("vzdestroy", "101", Some("OK")),
            task("qmdestroy", "102", Some("command failed")),
            task("qmdestroy", "103", None),
            task("qmstop", "104", Some("OK")),
            task("qmdestroy", "", Some("OK")),
        ];
        assert_eq!(removed(&tasks), SortedMap::from([(100, 60.0), (101, 60.0)]));
    }

    #[test]
    fn the_newest_task_names_the_user() {
        let task = |kind: &str, began: f64, status: &str| -> Task {
            serde_json::from_value(serde_json::json!({
                "type": kind, "id": if kind == "stopall" { "" } else { "100" }, "node": "pve1", "user": "alice@pve",
                "starttime": began, "endtime": began + 60.0, "status": status,
            }))
            .unwrap()
        };
        let stop = || task("qmstop", 1000.0, "OK");
        let alice = |at| Some(Act::Stop { by: "alice@pve".to_owned(), at });
        for (tasks, expected) in [
            (vec![stop()], alice(1000.0)),
            (vec![stop(), task("qmstart", 2000.0, "OK")], Some(Act::Start { at: 2000.0 })),
            (vec![stop(), task("qmstart", 2000.0, "start failed")], Some(Act::Start { at: 2000.0 })),
            (vec![task("qmstart", 500.0, "OK"), stop()], alice(1000.0)),
            (vec![task("qmstop", 1000.0, "timeout")], None),
            (vec![stop(), task("stopall", 990.0, "OK")], None),
            (vec![stop(), task("stopall", 900.0, "OK")], alice(1000.0)),
            (vec![], None),
        ] {
            assert_eq!(last_act(100, &tasks), expected, "{tasks:?}");
        }
        assert_eq!(last_act(101, &[stop()]), None);
    }
}
