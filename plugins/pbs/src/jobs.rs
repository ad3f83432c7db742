//! Jobs: garbage collection, verify, sync and prune, by their last run and when the next one is due.

use crate::{Look, Permissions};
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Answer, Ended, Trouble, judged, moment, rhythm};
use serde::Deserialize;
use std::time::Duration;

/// How often they are looked at.
const PERIOD: Duration = Duration::from_secs(60);
const RHYTHM: &str = "jobs";
/// Each sort of job: its name, and where its jobs are listed.
const SORTS: [(&str, &str); 4] = [
    ("gc", "/admin/gc"),
    ("verify", "/admin/verify"),
    ("prune", "/admin/prune"),
    ("sync", "/admin/sync?sync-direction=all"),
];

/// One job, of any sort.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Job {
    id: Field<Text>,
    store: Field<Text>,
    ns: Field<Text>,
    disable: Field<Flag>,
    schedule: Field<Text>,
    next_run: Field<Number>,
    last_run_state: Field<Text>,
    last_run_upid: Field<Text>,
    last_run_endtime: Field<Number>,
    upid: Field<Text>,
    still_bad: Field<Number>,
    remote: Field<Text>,
    sync_direction: Field<Text>,
}

pub(crate) fn report(look: &mut Look) {
    if !rhythm::is_due(RHYTHM) {
        for (sort, _) in SORTS {
            look.report.keep(sort);
            look.report.keep(format!("{sort}/"));
        }
        return;
    }
    let answers = look.api.ask(SORTS.map(|(_, path)| path));
    for ((sort, _), answer) in SORTS.into_iter().zip(answers) {
        let jobs = read(look, sort, answer);
        let members = [format!("{sort}/")];
        let Some(jobs) = look.part((sort, &[members[0].as_str()]), jobs) else { continue };
        jobs.iter().for_each(|job| one(look, sort, job));
        if sort == "sync" && jobs.is_empty() {
            hidden(look);
        }
    }
    // Also where one did not come: waiting for it would take ten seconds of each poll.
    rhythm::looked(RHYTHM, PERIOD);
}

/// No sync job is seen. Those that pull from a remote are hidden from a token that may not see the remote.
fn hidden(look: &mut Look) {
    let [answer] = look.api.ask(["/access/permissions"]);
    let Ok(permissions) = answer.read::<Permissions>() else { return };
    let audits = |path: &String| path.as_str() == "/" || path.starts_with("/remote");
    if !permissions.iter().any(|(path, held)| audits(path) && held.contains_key("Remote.Audit")) {
        look.notes.say(|| {
            "no sync job is to be seen, and the token lacks Remote.Audit: where there are some, run there \
             \"proxmox-backup-manager acl update /remote RemoteAudit --auth-id USER@REALM\" and the same for --auth-id \
             'USER@REALM!NAME'"
                .to_owned()
        });
    }
}

fn read(look: &mut Look, sort: &str, answer: Answer) -> Result<Vec<Job>, Trouble> {
    match answer.list::<Job>(&mut look.notes) {
        // Before 3.3 there are no directions to ask for, and only jobs that pull.
        Err(trouble) if sort == "sync" && trouble.code == "refused" => {
            let [answer] = look.api.ask(["/admin/sync"]);
            answer.list(&mut look.notes)
        }
        jobs => jobs,
    }
}

fn one(look: &mut Look, sort: &str, job: &Job) {
    // Garbage collection is a datastore's own and has no id.
    let Some(Text(id)) = (if sort == "gc" { job.store.get() } else { job.id.get() }) else {
        return look.notes.say(|| format!("a {sort} job has no name: it is left out"));
    };
    let name = format!("{sort}/{id}");
    if look.settings.jobs.exclude.match_any([name.as_str()]) {
        return;
    }
    let dependency = match rests(look, job, &name) {
        Some(why) => Dependency::skipped(name).with_kind(format!("pbs-{sort}")).with_description(why),
        None => judged(name.clone(), &format!("pbs-{sort}"), judge(look, &name, job)),
    };
    let dependency = match title(sort, id, job) {
        Some(title) => dependency.with_title(title),
        None => dependency,
    };
    look.add(match job.store.get() {
        Some(Text(store)) => dependency.with_parent(format!("datastore/{store}")),
        None => dependency,
    });
}

/// What it works on, where its name does not say so.
fn title(sort: &str, id: &str, job: &Job) -> Option<String> {
    let Text(store) = job.store.get().filter(|_| sort != "gc")?;
    let ns = job.ns.get().map(|Text(ns)| format!("/{ns}")).unwrap_or_default();
    let push = job.sync_direction.get().is_some_and(|Text(direction)| direction == "push");
    Some(match (sort, job.remote.get()) {
        ("sync", Some(Text(remote))) if push => format!("{id}: {store}{ns} to {remote}"),
        ("sync", Some(Text(remote))) => format!("{id}: {remote} to {store}{ns}"),
        _ => format!("{id}: {store}{ns}"),
    })
}

/// That nobody expects it to run.
fn rests(look: &mut Look, job: &Job, name: &str) -> Option<&'static str> {
    if look.notes.flag(&job.disable, || format!("disable of {name}")) == Some(true) {
        return Some("The job is switched off");
    }
    let never = job.last_run_state.get().is_none() && job.last_run_endtime.get().is_none();
    (job.schedule == Field::Absent && never).then_some("It runs only when somebody starts it")
}

fn judge(look: &mut Look, name: &str, job: &Job) -> (Status, Option<String>) {
    let now = look.seconds();
    let mut number = |field: &Field<Number>, what: &str| look.notes.number(field, || format!("{what} of {name}"));
    let ended_at = number(&job.last_run_endtime, "last-run-endtime").filter(|at| *at > 0.0);
    let next = number(&job.next_run, "next-run").filter(|at| *at > 0.0);
    let bad = number(&job.still_bad, "still-bad").unwrap_or_default();
    let when = ended_at.and_then(moment).map(|when| format!(" of {when}")).unwrap_or_default();
    let state = job.last_run_state.get().map(|Text(state)| state.as_str());
    if let Field::Odd(odd) = &job.last_run_state {
        return (Status::Unknown, Some(format!("its last run{when} ended with {odd}, which is no state")));
    }
    let ran = job.last_run_upid.get().or(job.upid.get()).is_some();
    if state.is_none() && ended_at.is_none() && !ran {
        return overdue(look, next, now).unwrap_or((Status::Warning, Some("it has not run yet".to_owned())));
    }
    let (status, why) = Ended::read(state, ended_at.is_some()).judged();
    if let Some(why) = why {
        return (status, Some(format!("its last run{when} {why}")));
    }
    if bad > 0.0 {
        return (
            Status::Warning,
            Some(format!("{bad:.0} damaged chunks are still there: verify, and look at the backups that fail")),
        );
    }
    // One that is running is not late.
    let running = state.is_none();
    if running { (Status::Ok, None) } else { overdue(look, next, now).unwrap_or((Status::Ok, None)) }
}

fn overdue(look: &Look, next: Option<f64>, now: f64) -> Option<(Status, Option<String>)> {
    let due = next?;
    let (status, limit) = look.settings.jobs.overdue().judge((now - due) / 3600.0);
    let why =
        format!("it was due at {} and has not run for more than {limit} hours since", moment(due).unwrap_or_default());
    (status != Status::Ok).then_some((status, Some(why)))
}
