//! Jobs: garbage collection, verify, sync and prune, with their last run and the time of the next one.

use crate::context::{Permissions, PollContext};
use crate::datastores::Store;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Answer, DAY, Ended, Error, ErrorClass, LATEST, evaluated, item, moment, worse};
use serde::Deserialize;
use std::time::Duration;

/// How often jobs are checked.
const PERIOD: Duration = Duration::from_secs(60);
const CHECK: &str = "jobs";
const REMOTES: &str = "remotes";
const REMOTES_PERIOD: Duration = Duration::from_secs(60 * 60);
/// Each sort of job: its name, and the path that lists its jobs.
const SORTS: [(&str, &str); 4] = [
    ("gc", "/admin/gc"),
    ("verify", "/admin/verify"),
    ("prune", "/admin/prune"),
    ("sync", "/admin/sync?sync-direction=all"),
];

/// A job of any sort.
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

pub(crate) fn report(context: &mut PollContext, stores: &[Store]) {
    hidden(context);
    if !context.is_due(CHECK) {
        for (sort, _) in SORTS {
            context.report.keep(sort);
            context.report.keep(format!("{sort}/"));
        }
        return;
    }
    let answers = context.api.ask(SORTS.map(|(_, path)| path));
    for ((sort, _), answer) in SORTS.into_iter().zip(answers) {
        let jobs = read(context, sort, answer);
        let members = [format!("{sort}/")];
        let Some(jobs) = context.part((sort, &[members[0].as_str()]), jobs) else { continue };
        jobs.iter().enumerate().for_each(|(index, job)| one(context, (sort, index), job, stores));
        if sort == "gc" {
            unlisted(context, &jobs, stores);
        }
    }
    // Also after an error: another time-out would take ten seconds of each poll.
    context.checked(CHECK, PERIOD);
}

/// Keeps the garbage collection of datastores that the server cannot use: it does not list them.
fn unlisted(context: &mut PollContext, jobs: &[Job], stores: &[Store]) {
    let exclude = context.settings.jobs.exclude.clone();
    let is_wanted = |store: &&Store| !exclude.match_any([format!("gc/{}", store.name).as_str()]);
    for Store { name, lost, rests, .. } in stores.iter().filter(is_wanted) {
        if jobs.iter().all(|job| job.store.get().is_none_or(|Text(store)| store != name)) {
            context.report.keep(format!("gc/{name}"));
            if *lost || !rests {
                context.mark_unknown(format!("gc/{name}"), format!("it cannot be checked: see \"datastore/{name}\""));
            }
        }
    }
}

/// Warns if the token may not see sync jobs with a remote.
fn hidden(context: &mut PollContext) {
    if !context.is_due(REMOTES) {
        return;
    }
    let [answer] = context.api.ask(["/access/permissions"]);
    let audits = |path: &String| path.as_str() == "/" || path.starts_with("/remote");
    let lacks = answer.read::<Permissions>().is_ok_and(|permissions| {
        !permissions.iter().any(|(path, held)| audits(path) && held.contains_key("Remote.Audit"))
    });
    if lacks {
        context.diagnostics.add(|| {
            "the token lacks Remote.Audit, so sync jobs with a remote are hidden from it: if there are any, run on \
             the server \"proxmox-backup-manager acl update /remote RemoteAudit --auth-id USER@REALM\" and the same \
             for --auth-id 'USER@REALM!NAME'"
                .to_owned()
        });
    }
    context.checked(REMOTES, REMOTES_PERIOD);
}

fn read(context: &mut PollContext, sort: &str, answer: Answer) -> Result<Vec<Job>, Error> {
    match answer.list::<Job>(&mut context.diagnostics) {
        // Before 3.3 there are no directions, and all sync jobs pull.
        Err(error) if sort == "sync" && error.class == ErrorClass::Refused => {
            let [answer] = context.api.ask(["/admin/sync"]);
            answer.list(&mut context.diagnostics)
        }
        jobs => jobs,
    }
}

fn one(context: &mut PollContext, (sort, index): (&str, usize), job: &Job, stores: &[Store]) {
    // Garbage collection belongs to a datastore and has no id.
    let id = (if sort == "gc" { job.store.get() } else { job.id.get() }).map(|Text(id)| id.clone());
    let id = id.unwrap_or_else(|| item(index));
    let name = format!("{sort}/{id}");
    if context.settings.jobs.exclude.match_any([name.as_str()]) {
        return context.report.remove(name);
    }
    let before = format!("{sort}/");
    if job.is_running() && context.reported_before(&before).contains(&name) {
        // The result of the run before is kept until this run ends.
        return context.report.keep(name);
    }
    let rests = match rests(context, job, &name) {
        // A datastore that is read-only can be verified.
        None if store(job, stores).is_some_and(|store| store.rests && !(store.readable && sort == "verify")) => {
            Some("Its datastore was taken out of use".to_owned())
        }
        rests => rests,
    };
    let dependency = match rests {
        Some(why) => Dependency::skipped(name).with_kind(format!("pbs-{sort}")).with_description(why),
        None => {
            let dependency = evaluated(name.clone(), &format!("pbs-{sort}"), evaluate(context, &name, job));
            Dependency { description: job.description(), ..dependency }
        }
    };
    let dependency = match title(sort, &id, job) {
        Some(title) => dependency.with_title(title),
        None => dependency,
    };
    context.add(match job.store.get() {
        Some(Text(store)) => dependency.with_runs_on(format!("datastore/{store}")),
        None => dependency,
    });
}

/// Returns the object of a job; `None` if its name contains it.
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

/// The datastore of a job.
fn store<'a>(job: &Job, stores: &'a [Store]) -> Option<&'a Store> {
    let Text(name) = job.store.get()?;
    stores.iter().find(|store| store.name == *name)
}

/// Why a job is not expected to run, or not yet; `None` if it is.
fn rests(context: &mut PollContext, job: &Job, name: &str) -> Option<String> {
    if context.diagnostics.flag(&job.disable, || format!("disable of {name}")) == Some(true) {
        return Some("The job is disabled".to_owned());
    }
    if job.has_run() {
        return None;
    }
    if job.schedule == Field::Absent {
        return Some("It runs only when it is started manually".to_owned());
    }
    let Number(next) = job.next_run.get()?;
    let first = moment(*next).filter(|_| *next > context.seconds())?;
    Some(format!("Its first run is due at {first}"))
}

impl Job {
    fn has_run(&self) -> bool {
        let ends = [&self.last_run_state, &self.last_run_upid, &self.upid];
        ends.iter().any(|field| **field != Field::Absent) || self.last_run_endtime != Field::Absent
    }

    fn is_running(&self) -> bool {
        let started = self.last_run_upid.get().or(self.upid.get()).is_some();
        started && self.last_run_state == Field::Absent && self.last_run_endtime == Field::Absent
    }

    /// The time of the last run and of the next one.
    fn description(&self) -> Option<String> {
        let when =
            |field: &Field<Number>| field.get().filter(|Number(at)| *at > 0.0).and_then(|Number(at)| moment(*at));
        let running =
            self.is_running().then(|| "it is running, and the result of the run before is not available".to_owned());
        let last = when(&self.last_run_endtime).map(|last| format!("last run ended at {last}"));
        let next = when(&self.next_run).map(|next| format!("next due at {next}"));
        let all: Vec<String> = running.into_iter().chain(last).chain(next).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

fn evaluate(context: &mut PollContext, name: &str, job: &Job) -> (Status, Option<String>) {
    let now = context.seconds();
    let mut number =
        |field: &Field<Number>, what: &str| context.diagnostics.number(field, || format!("{what} of {name}"));
    let ended_at = number(&job.last_run_endtime, "last-run-endtime").filter(|at| *at > 0.0);
    let next = number(&job.next_run, "next-run").filter(|at| *at > 0.0);
    let bad = number(&job.still_bad, "still-bad").unwrap_or_default();
    let when = ended_at.and_then(moment).map(|when| format!(" of {when}")).unwrap_or_default();
    let state = job.last_run_state.get().map(|Text(state)| state.as_str());
    if let Field::Odd(odd) = &job.last_run_state {
        return (Status::Unknown, Some(format!("its last run{when} ended with {odd}, which is not a state")));
    }
    if !job.has_run() {
        return overdue(context, next, now).unwrap_or((Status::Warning, Some("it has not run yet".to_owned())));
    }
    let (status, why) = Ended::read(state, ended_at.is_some()).evaluated();
    if let Some(why) = why {
        return (status, Some(format!("its last run{when} {why}")));
    }
    if let Some(verdict) = ended_at.and_then(|at| context.future(at, "its last run")) {
        return verdict;
    }
    for (field, run) in [(&job.last_run_endtime, "last"), (&job.next_run, "next")] {
        if let Field::Odd(odd) = field {
            return (Status::Unknown, Some(format!("the time of its {run} run is {odd}, which is not a number")));
        }
    }
    if let Field::Odd(odd) = &job.still_bad {
        return (Status::Unknown, Some(format!("the number of its damaged chunks is {odd}, which is not a number")));
    }
    if bad > 0.0 {
        return (
            Status::Warning,
            Some(format!(
                "{bad:.0} damaged chunks are still there: verify the datastore, and check the backups that \
                          fail"
            )),
        );
    }
    // A job that is running is not late.
    if state.is_none() {
        return (Status::Ok, None);
    }
    if ended_at.is_none() {
        return (Status::Unknown, Some("the server does not report when it last ran".to_owned()));
    }
    let next = next.filter(|next| next - now < LATEST);
    if next.is_none() && job.schedule != Field::Absent && ended_at.is_some_and(|at| now - at > DAY) {
        return (
            Status::Unknown,
            Some(format!("the server does not report when it is due; its last run{when} was fine")),
        );
    }
    let (status, limit) = context.settings.jobs.age().evaluate(ended_at.map_or(0.0, |at| (now - at) / 3600.0));
    let old = (status, (status != Status::Ok).then(|| format!("its last run{when} is more than {limit} hours ago")));
    worse(overdue(context, next, now).unwrap_or((Status::Ok, None)), old)
}

fn overdue(context: &PollContext, next: Option<f64>, now: f64) -> Option<(Status, Option<String>)> {
    let due = next?;
    let (status, limit) = context.settings.jobs.overdue().evaluate((now - due) / 3600.0);
    let why =
        format!("it was due at {} and has not run for more than {limit} hours since", moment(due).unwrap_or_default());
    (status != Status::Ok).then_some((status, Some(why)))
}
