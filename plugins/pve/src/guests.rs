//! Guests: virtual machines and containers.
//!
//! A stopped guest is a failure only where somebody said that it must run. Even then it may be stopped for a reason: a
//! backup or migration holds it, HA was told to stop it, or a person did.

use crate::Look;
use crate::ha::{Service, Services};
use crate::nodes::{Nodes, State, parent};
use crate::resources::{Guest, Resources, wanted};
use crate::settings;
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Ended, Notes, Unseen, judged, moment, remember, remembered, rhythm};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A lock of this age holds nothing any more: its task ended without it, with its node perhaps. Seconds.
const STALE_LOCK: f64 = 12.0 * 3600.0;
/// A guest that ran at the last poll was stopped by a task that is no older than this: a shutdown may take minutes. Seconds.
const RECENT: f64 = 15.0 * 60.0;
/// Where stopped guests that must run are remembered between polls, and for how long.
const STOPPED: &str = "stopped";
const REMEMBERED: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// What guests are called, by their numbers, for when their node is gone and its guests have only numbers; and how often that
/// is remembered anew.
const NAMES: &str = "names";
const NAMED: Duration = Duration::from_secs(5 * 60);

/// A task, as `/cluster/tasks` and `/nodes/N/tasks` list it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Task {
    #[serde(rename = "type")]
    pub kind: Field<Text>,
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

    /// When it began, in seconds since 1970; 0 where it does not say.
    pub(crate) fn began(&self) -> f64 {
        self.starttime.get().map_or(0.0, |Number(seconds)| *seconds).max(0.0)
    }

    pub(crate) fn ended(&self) -> Ended {
        Ended::read(self.status.get().map(|Text(status)| status.as_str()), self.endtime.get().is_some())
    }
}

/// What else is known of the cluster.
pub(crate) struct Seen<'a> {
    pub nodes: &'a Nodes,
    pub services: &'a Services,
    pub tasks: &'a [Task],
    /// How many guests' own tasks may be asked for at this poll.
    pub lookups: Cell<u8>,
}

/// A guest that must run and does not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stopped {
    /// Seconds since 1970.
    since: f64,
    /// Who stopped it, and when, where a task said so while it was still listed.
    by: Option<String>,
    /// What held it: the time begins anew when that lets go.
    lock: Option<String>,
}

type AllStopped = BTreeMap<u64, Stopped>;

pub(crate) fn report(look: &mut Look, resources: &Resources, seen: &Seen<'_>) {
    let guests = &resources.guests;
    let onboot = crate::onboot::expected(look, guests, seen.nodes);
    let before: Option<AllStopped> = remembered(STOPPED);
    let mut stopped = AllStopped::new();
    let called = called(guests);
    let (mut looked_at, mut nameless) = (0, guests.is_empty() || resources.unread > 0);
    let expected_names = look.settings.guests.expected.clone();
    let mut unseen = expected_names.unseen();
    for guest in guests {
        let called = called.get(&guest.id).filter(|_| guest.name.is_none());
        let known = called.map(|called| called.onto(guest));
        let guest = known.as_ref().unwrap_or(guest);
        let names = guest.names();
        names.iter().for_each(|name| unseen.see(name));
        nameless |= guest.name.is_none();
        let settings = &look.settings.guests;
        if !wanted(&names, &settings.include, &settings.exclude) {
            continue;
        }
        looked_at += 1;
        let by_ha = seen.services.get(&guest.id);
        let expected = settings.expected.match_any(names.iter().map(String::as_str))
            || settings.expected_by_ha && ha_wants(guest, by_ha)
            || onboot.contains(&guest.id);
        let state = seen.nodes.get(&guest.node).map_or(State::Unknown, |node| node.state);
        let verdict = if state == State::Offline {
            Verdict::Unknown(format!("nobody can see it: its node {} is offline", guest.node))
        } else if !expected {
            may_rest(guest)
        } else {
            let told = by_ha.is_some_and(|service| service.wants_stopped());
            let (verdict, down) = expected_to_run(guest, told, (look, before.as_ref(), seen));
            stopped.extend(down.map(|down| (guest.id, down)));
            verdict
        };
        look.report.dependencies.push(verdict.of(guest));
    }
    if looked_at == 0 && !guests.is_empty() {
        look.notes.say(|| "no guest is looked at: see guests.include and guests.exclude in the settings".to_owned());
    }
    absent(look, resources, unseen, nameless);
    if before.as_ref() != Some(&stopped) {
        remember(STOPPED, &stopped, REMEMBERED);
    }
}

/// A guest that must run, and what is to be remembered of it where it does not.
fn expected_to_run(
    guest: &Guest,
    told_to_stop: bool,
    (look, before, seen): (&Look, Option<&AllStopped>, &Seen<'_>),
) -> (Verdict, Option<Stopped>) {
    let verdict = must_run(guest, told_to_stop);
    let held = guest.lock.as_deref().filter(|lock| *lock != "suspended" && guest.status == "stopped");
    let verdict = match (verdict, held) {
        (Some(verdict), None) => return (verdict, None),
        (verdict, _) => verdict,
    };
    let now = look.seconds();
    let known = before.and_then(|before| before.get(&guest.id)).filter(|known| known.lock == guest.lock).cloned();
    let known = known.unwrap_or_else(|| {
        // One that ran at the poll before this was stopped since then, and nothing older explains it.
        let not_before = if before.is_some() { now - RECENT } else { 0.0 };
        let by = stopped_by(guest.id, seen.tasks, not_before).or_else(|| {
            // Others' tasks push it off the cluster's list; its own node keeps it.
            let path = format!("/nodes/{}/tasks?vmid={}&limit=20&source=all", guest.node, guest.id);
            let worth = before.is_none() && seen.lookups.get() > 0 && crate::nodes::answers(seen.nodes, &guest.node);
            let [answer] = worth.then(|| look.api.ask([path.as_str()]))?;
            seen.lookups.set(seen.lookups.get() - 1);
            let tasks = answer.list(&mut Notes::default());
            crate::nodes::asked(&guest.node, &tasks);
            stopped_by(guest.id, &tasks.ok()?, not_before)
        });
        Stopped { since: now, by, lock: guest.lock.clone() }
    });
    // A clock that was set back must not stop the time.
    let known = Stopped {
        since: known.since.min(now),
        by: known.by.or_else(|| stopped_by(guest.id, seen.tasks, known.since - RECENT)),
        ..known
    };
    let stale = held.filter(|_| now - known.since >= STALE_LOCK).map(|lock| stale_lock(guest, lock, &known));
    let verdict = stale.or(verdict).unwrap_or_else(|| down(&known, now, &look.settings.guests));
    (verdict, Some(known))
}

/// Guests that must run and are not there at all: critical where the list of guests is whole, unknown where it may not be.
fn absent(look: &mut Look, resources: &Resources, unseen: Unseen<'_>, nameless: bool) {
    for name in unseen.left() {
        let id = name.parse::<u64>();
        if let Ok(id) = &id
            && resources.templates.contains_key(id)
        {
            look.notes.say(|| format!("guests.expected names {id}, which is a template: templates never run"));
            continue;
        }
        if name.contains('*') || name.starts_with("tag:") || name.starts_with("pool:") {
            if !nameless {
                look.notes.say(|| {
                    format!("guests.expected names {name:?}, and no guest has that name, tag or pool: look whether it is spelt so")
                });
            }
            continue;
        }
        let whole = !resources.guests.is_empty() && resources.unread == 0 && (id.is_ok() || !nameless);
        let verdict = if whole {
            let why = "it must run, and there is no such guest: it was removed or renamed, or the token may not see it";
            (Status::Critical, Some(why.to_owned()))
        } else {
            let why = "it must run, and is not to be seen; not all guests could be read or may be seen";
            (Status::Unknown, Some(why.to_owned()))
        };
        look.add(judged(format!("guest/{name}"), "pve-vm", verdict));
    }
}

/// What a guest is called by, which is forgotten with its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Called {
    name: String,
    tags: Vec<String>,
    pool: Option<String>,
}

impl Called {
    fn of(guest: &Guest) -> Option<Self> {
        Some(Self { name: guest.name.clone()?, tags: guest.tags.clone(), pool: guest.pool.clone() })
    }

    fn onto(&self, guest: &Guest) -> Guest {
        let Self { name, tags, pool } = self.clone();
        Guest { name: Some(name), tags, pool, ..guest.clone() }
    }
}

/// What those are called that say so no more; nothing where all do.
fn called(guests: &[Guest]) -> BTreeMap<u64, Called> {
    let due = rhythm::is_due(NAMES);
    if !due && guests.iter().all(|guest| guest.name.is_some()) {
        return BTreeMap::new();
    }
    let mut called: BTreeMap<u64, Called> = remembered(NAMES);
    if due {
        let ids: BTreeSet<u64> = guests.iter().map(|guest| guest.id).collect();
        called.retain(|id, _| ids.contains(id));
        called.extend(guests.iter().filter_map(|guest| Some((guest.id, Called::of(guest)?))));
        remember(NAMES, &called, REMEMBERED);
        rhythm::looked(NAMES, NAMED);
    }
    called
}

/// Whether HA wants it to run: by what it was told, or, where that could not be read, by what it does with it.
fn ha_wants(guest: &Guest, service: Option<&Service>) -> bool {
    match (service, guest.ha.as_deref()) {
        (Some(service), _) if service.requested.is_some() => service.wants_running(),
        (_, Some(state)) => !matches!(state, "stopped" | "request_stop" | "disabled" | "ignored" | "ignore"),
        (_, None) => false,
    }
}

/// A lock that was left behind keeps a guest from being started.
fn stale_lock(guest: &Guest, lock: &str, stopped: &Stopped) -> Verdict {
    let tool = if guest.container { "pct" } else { "qm" };
    let since = moment(stopped.since).unwrap_or_default();
    Verdict::Critical(format!(
        "it must run, and is stopped with the lock {lock} since {since}: where no task holds it, run \"{tool} unlock {}\"",
        guest.id
    ))
}

/// What a guest's state means.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Well,
    /// It rests, and nobody minds.
    Rests(&'static str),
    Warning(String),
    Critical(String),
    Unknown(String),
}

impl Verdict {
    fn of(self, guest: &Guest) -> Dependency {
        let kind = if guest.container { "pve-container" } else { "pve-vm" };
        let verdict = match self {
            Self::Well | Self::Rests(_) => (Status::Ok, None),
            Self::Warning(ref why) => (Status::Warning, Some(why.clone())),
            Self::Critical(ref why) => (Status::Critical, Some(why.clone())),
            Self::Unknown(ref why) => (Status::Unknown, Some(why.clone())),
        };
        let dependency = parent(judged(guest.dependency(), kind, verdict), &guest.node);
        let dependency = match &guest.name {
            Some(name) => dependency.with_title(name),
            None => dependency,
        };
        match self {
            Self::Rests(why) => Dependency { skipped: true, ..dependency.with_description(why) },
            _ => dependency,
        }
    }
}

/// What ails a guest whoever expects it to run; nothing when that depends.
fn broken(guest: &Guest) -> Option<Verdict> {
    let because = |why: &str| Some(Verdict::Critical(format!("{}: {why}", guest.status)));
    match guest.status.as_str() {
        "io-error" => {
            because("the guest is halted because its storage failed or is full; mend that, then run \"qm resume\"")
        }
        "internal-error" => because("QEMU failed inside; stop and start the guest"),
        "guest-panicked" => because("the guest's kernel panicked; look at its console"),
        "unknown" => Some(Verdict::Unknown(format!(
            "{} has not said how it is for five minutes: check pvestatd on that node",
            guest.node
        ))),
        _ => None,
    }
}

/// A guest that nobody expects to run.
fn may_rest(guest: &Guest) -> Verdict {
    broken(guest).unwrap_or(match guest.status.as_str() {
        "running" => Verdict::Well,
        "stopped" | "paused" | "suspended" | "prelaunch" | "shutdown" | "watchdog" | "debug" | "inmigrate"
        | "finish-migrate" | "postmigrate" | "save-vm" | "restore-vm" | "colo" => {
            Verdict::Rests("It does not run, and nothing says that it must")
        }
        other => Verdict::Unknown(format!("{other}: a state that this plugin does not know")),
    })
}

/// A guest that must run; nothing when it is down, and how long counts.
fn must_run(guest: &Guest, told_to_stop: bool) -> Option<Verdict> {
    if let Some(verdict) = broken(guest) {
        return Some(verdict);
    }
    let status = guest.status.as_str();
    if matches!(status, "running" | "inmigrate" | "finish-migrate" | "postmigrate" | "save-vm" | "restore-vm") {
        return Some(Verdict::Well);
    }
    if let Some(lock) = &guest.lock {
        let why = match lock.as_str() {
            "backup" => "It rests while it is backed up",
            "migrate" => "It rests while it is migrated",
            "snapshot" | "snapshot-delete" => "It rests while a snapshot is made or removed",
            "rollback" => "It rests while it is rolled back",
            "clone" | "create" | "disk" => "It rests while it is made or copied",
            "suspended" | "suspending" => "It was suspended to disk on purpose",
            "fstrim" | "mounted" => "It rests while its disks are worked on",
            _ => return Some(Verdict::Warning(format!("{status}, with the lock {lock:?}: look at its task"))),
        };
        return Some(Verdict::Rests(why));
    }
    match status {
        "paused" | "suspended" | "prelaunch" | "debug" | "shutdown" | "watchdog" => {
            Some(Verdict::Warning(format!("{status}: it must run")))
        }
        "stopped" if told_to_stop => Some(Verdict::Rests("HA was told to stop it")),
        "stopped" => None,
        _ => Some(Verdict::Unknown(format!("{status}: a state that this plugin does not know"))),
    }
}

/// A guest that must run, is stopped, and nothing holds it.
fn down(stopped: &Stopped, now: f64, settings: &settings::Guests) -> Verdict {
    if let Some(by) = &stopped.by {
        return Verdict::Warning(format!("it must run, and was stopped on purpose by {by}"));
    }
    let since = moment(stopped.since).unwrap_or_default();
    if now - stopped.since < f64::from(settings.grace_seconds) {
        return Verdict::Warning(format!("it must run, and is stopped since {since}"));
    }
    Verdict::Critical(format!(
        "it must run, and is stopped since {since} or longer: start it, or look at its last task"
    ))
}

/// Who stopped a guest, from the newest task that started or stopped it, where that is no older than `not_before`.
fn stopped_by(id: u64, tasks: &[Task], not_before: f64) -> Option<String> {
    const STARTS: [&str; 6] = ["qmstart", "vzstart", "qmreboot", "vzreboot", "qmreset", "qmresume"];
    const STOPS: [&str; 4] = ["qmstop", "vzstop", "qmshutdown", "vzshutdown"];
    let id = id.to_string();
    let of_guest = tasks.iter().filter(|task| task.id.get().is_some_and(|Text(found)| *found == id));
    let newest = of_guest
        .filter(|task| task.is(&STARTS) || task.is(&STOPS))
        .max_by(|one, other| one.began().total_cmp(&other.began()))?;
    if !newest.is(&STOPS) || newest.began() < not_before || matches!(newest.ended(), Ended::Failed(_) | Ended::Unknown)
    {
        return None;
    }
    let user = newest.user.get().map_or("somebody", |Text(user)| user.as_str());
    Some(match moment(newest.began()) {
        Some(when) => format!("{user} at {when}"),
        None => user.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(status: &str, lock: Option<&str>) -> Guest {
        Guest {
            id: 100,
            node: "pve1".to_owned(),
            status: status.to_owned(),
            lock: lock.map(str::to_owned),
            ..Guest::default()
        }
    }

    fn status(verdict: Option<Verdict>) -> Option<(Status, bool)> {
        verdict.map(|verdict| verdict.of(&guest("", None))).map(|dependency| (dependency.status, dependency.skipped))
    }

    #[test]
    fn states_are_judged_by_what_is_expected() {
        let (ok, rests) = (Some((Status::Ok, false)), Some((Status::Ok, true)));
        let (warning, critical) = (Some((Status::Warning, false)), Some((Status::Critical, false)));
        let unknown = Some((Status::Unknown, false));
        for (state, lock, expected, unexpected) in [
            ("running", None, ok, ok),
            ("stopped", None, None, rests),
            ("stopped", Some("backup"), rests, rests),
            ("stopped", Some("migrate"), rests, rests),
            ("stopped", Some("suspended"), rests, rests),
            ("stopped", Some("mystery"), warning, rests),
            ("paused", Some("snapshot"), rests, rests),
            ("paused", None, warning, rests),
            ("prelaunch", None, warning, rests),
            ("io-error", Some("backup"), critical, critical),
            ("internal-error", None, critical, critical),
            ("unknown", None, unknown, unknown),
            ("finish-migrate", None, ok, rests),
            ("dreaming", None, unknown, unknown),
        ] {
            let guest = guest(state, lock);
            assert_eq!(status(must_run(&guest, false)), expected, "{state} {lock:?} expected");
            assert_eq!(status(Some(may_rest(&guest))), unexpected, "{state} {lock:?} not expected");
        }
        assert_eq!(status(must_run(&guest("stopped", None), true)), rests, "HA was told so");
    }

    #[test]
    fn a_stop_is_critical_after_its_grace_unless_somebody_meant_it() {
        let settings = settings::Guests { grace_seconds: 60, ..settings::Guests::default() };
        let stopped = |by: Option<&str>| Stopped { since: 1000.0, by: by.map(str::to_owned), lock: None };
        assert!(matches!(down(&stopped(None), 1059.0, &settings), Verdict::Warning(_)));
        assert!(matches!(down(&stopped(None), 1060.0, &settings), Verdict::Critical(_)));
        assert!(matches!(down(&stopped(Some("alice@pve")), 9999.0, &settings), Verdict::Warning(_)));
    }

    #[test]
    fn the_newest_task_says_who_stopped_it() {
        let task = |kind: &str, began: f64, status: &str| -> Task {
            serde_json::from_value(serde_json::json!({
                "type": kind, "id": "100", "user": "alice@pve", "starttime": began, "endtime": began, "status": status,
            }))
            .unwrap()
        };
        let stop = || task("qmstop", 1_772_337_600.0, "OK");
        assert_eq!(stopped_by(100, &[stop()], 0.0).unwrap(), "alice@pve at 2026-03-01 04:00 UTC");
        assert_eq!(stopped_by(101, &[stop()], 0.0), None);
        assert_eq!(
            stopped_by(100, &[stop(), task("qmstart", 1_772_337_700.0, "OK")], 0.0),
            None,
            "it ran again after that"
        );
        assert_eq!(stopped_by(100, &[task("qmstop", 1.0, "timeout")], 0.0), None, "that stop failed");
        assert!(stopped_by(100, &[task("qmstart", 1.0, "OK"), stop()], 0.0).is_some());
        assert_eq!(stopped_by(100, &[stop()], 1_772_337_601.0), None, "it ran after that");
    }
}
