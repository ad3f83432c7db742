//! Tasks that failed in the last day.

use crate::{Look, Permissions};
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Text};
use proxmox::{Ended, Part, count, judged, list, rhythm};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

const PART: Part<'_> = ("tasks", &[]);
/// How often they are looked at.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// How far back. Seconds.
const BACK: f64 = 24.0 * 3600.0;
/// So many are read.
const MOST: usize = 200;

/// One entry of `/nodes/localhost/tasks`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Task {
    worker_type: Field<Text>,
    worker_id: Field<Text>,
    status: Field<Text>,
}

pub(crate) fn report(look: &mut Look) {
    if !rhythm::is_due(PART.0) {
        return look.report.keep(PART.0);
    }
    let since = look.seconds() - BACK;
    let [answer] = look.api.ask([format!("/nodes/localhost/tasks?errors=1&since={since:.0}&limit={MOST}").as_str()]);
    let tasks = answer.list::<Task>(&mut look.notes);
    let Some(tasks) = look.part(PART, tasks) else { return };
    rhythm::looked(PART.0, PERIOD);
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for task in &tasks {
        // Older versions list those with warnings too.
        if let Ended::Failed(_) = Ended::read(task.status.get().map(|Text(status)| status.as_str()), true) {
            let what = task.worker_type.get().map_or("a task", |Text(kind)| kind.as_str());
            let on = task.worker_id.get().map(|Text(id)| format!(" of {id}")).unwrap_or_default();
            *failed.entry(format!("{what}{on}")).or_default() += 1;
        }
    }
    let all = failed.values().sum::<usize>();
    let names: Vec<String> = failed
        .into_iter()
        .map(|(name, times)| if times == 1 { name } else { format!("{name} ({times} times)") })
        .collect();
    let verdict = if all == 0 {
        whose(look)
    } else {
        (Status::Warning, Some(format!("{} failed in the last day: {}", count(all, "task"), list(&names))))
    };
    look.add(judged(PART.0, "pbs-tasks", verdict));
}

/// None failed, or none may be seen: without Sys.Audit the list holds the token's own tasks only.
fn whose(look: &mut Look) -> (Status, Option<String>) {
    let [answer] = look.api.ask(["/access/permissions"]);
    match answer.read::<Permissions>() {
        Ok(permissions) if permissions.values().any(|held| held.contains_key("Sys.Audit")) => (Status::Ok, None),
        Ok(_) => {
            let grant = look.api.product().grant_rights();
            (Status::Unknown, Some(format!("the token lacks Sys.Audit, so others' tasks are hidden from it: {grant}")))
        }
        Err(trouble) => (Status::Unknown, Some(format!("whose tasks may be seen is not known: {}", trouble.sentence))),
    }
}
