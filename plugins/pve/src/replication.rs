//! Replication jobs. The cluster knows how they are set up, and only the source's node knows when they last ran.

use crate::Look;
use crate::nodes::{Nodes, State, parent};
use crate::resources::Guest;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Answer, Part, judged, moment, rhythm};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PART: Part<'_> = ("replication", &["replication/"]);
/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(60);

/// A job, as `/cluster/replication` (without times) and `/nodes/N/replication` (with them) list it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Job {
    id: Field<Text>,
    guest: Field<Number>,
    target: Field<Text>,
    disable: Field<Flag>,
    last_sync: Field<Number>,
    next_sync: Field<Number>,
    fail_count: Field<Number>,
    error: Field<Text>,
    /// Of the run that is under way.
    pid: Field<Number>,
}

impl Job {
    fn id(&self) -> Option<&str> {
        self.id.get().map(|Text(id)| id.as_str())
    }
}

pub(crate) fn report(look: &mut Look, guests: &[Guest], nodes: &Nodes) {
    if !rhythm::is_due(PART.0) {
        look.report.keep(PART.0);
        return look.report.keep(PART.1[0]);
    }
    let [jobs] = look.api.ask(["/cluster/replication"]);
    let jobs = jobs.list::<Job>(&mut look.notes);
    let Some(jobs) = look.part(PART, jobs) else { return };
    let source = |job: &Job| {
        let Number(guest) = job.guest.get()?;
        guests.iter().find(|found| found.id == *guest as u64).map(|guest| guest.node.clone())
    };
    let sources: BTreeSet<String> = jobs.iter().filter_map(source).collect();
    let there = |node: &&String| nodes.get(*node).is_some_and(crate::nodes::Node::answers);
    let asked: Vec<&String> = sources.iter().filter(there).collect();
    let answers = look.api.ask_all(asked.iter().map(|node| format!("/nodes/{node}/replication")).collect());
    let answers: BTreeMap<&String, Result<Vec<Job>, String>> =
        asked.into_iter().zip(answers).map(|(node, answer)| (node, read(look, node, answer))).collect();
    for job in &jobs {
        let dependency = one(look, job, source(job), nodes, &answers);
        look.report.dependencies.extend(dependency);
    }
    rhythm::looked(PART.0, PERIOD);
}

fn read(look: &mut Look, node: &str, answer: Answer) -> Result<Vec<Job>, String> {
    let jobs = answer.list(&mut look.notes);
    crate::nodes::asked(node, &jobs);
    jobs.map_err(|trouble| trouble.sentence)
}

fn one(
    look: &mut Look,
    job: &Job,
    source: Option<String>,
    nodes: &Nodes,
    answers: &BTreeMap<&String, Result<Vec<Job>, String>>,
) -> Option<Dependency> {
    let Some(id) = job.id() else {
        look.notes.say(|| "a replication job has no id: it is left out".to_owned());
        return None;
    };
    if look.settings.replication.exclude.match_any([id]) {
        return None;
    }
    let name = format!("replication/{id}");
    let title = job.target.get().map(|Text(target)| format!("{id} to {target}"));
    let off = look.notes.flag(&job.disable, || format!("disable of replication job {id}")) == Some(true);
    let dependency = if off {
        Dependency::skipped(name.as_str()).with_kind("pve-replication").with_description("The job is switched off")
    } else {
        let verdict = match &source {
            None => (
                Status::Unknown,
                Some("its guest is not to be seen: it is gone, or the token may not see it".to_owned()),
            ),
            Some(node) if nodes.get(node).is_none_or(|node| node.state != State::Online) => {
                (Status::Unknown, Some(format!("nobody can see it: the guest's node {node} is not online")))
            }
            Some(node) => match answers.get(node) {
                Some(Ok(jobs)) => jobs.iter().find(|found| found.id() == Some(id)).map_or_else(
                    || (Status::Unknown, Some(format!("{node} does not know this job yet"))),
                    |job| judge(look, id, job),
                ),
                Some(Err(why)) => (Status::Unknown, Some(format!("{node} cannot say: {why}"))),
                None => (Status::Unknown, Some(format!("{node} was not asked"))),
            },
        };
        judged(name, "pve-replication", verdict)
    };
    let dependency = Dependency { title, ..dependency };
    Some(match source {
        Some(node) => parent(dependency, &node),
        None => dependency,
    })
}

/// How a job is, from what its source's node says.
fn judge(look: &mut Look, id: &str, job: &Job) -> (Status, Option<String>) {
    let now = look.seconds();
    let mut number =
        |field: &Field<Number>, what: &str| look.notes.number(field, || format!("{what} of replication job {id}"));
    let last = number(&job.last_sync, "last_sync");
    let next = number(&job.next_sync, "next_sync");
    let failures = number(&job.fail_count, "fail_count").unwrap_or_default();
    let synced = match last.filter(|last| *last > 0.0).and_then(moment) {
        Some(when) => format!("it last ran well at {when}"),
        None => "it has never run well".to_owned(),
    };
    if let Some(Text(error)) = job.error.get() {
        return (Status::Critical, Some(format!("it fails: {}; {synced}", error.trim())));
    }
    if failures > 0.0 {
        return (Status::Critical, Some(format!("it has failed {failures:.0} times in a row; {synced}")));
    }
    let Some(last) = last else { return (Status::Unknown, Some("its node does not say when it last ran".to_owned())) };
    // 0 stands for none, and for at once.
    let due = next.filter(|next| *next > 0.0).unwrap_or(now);
    if job.pid.get().is_some() {
        return (Status::Ok, None);
    }
    let (status, limit) = look.settings.replication.overdue().judge((now - due) / 60.0);
    if status != Status::Ok {
        return (status, Some(format!("it is due for more than {limit:.0} minutes and has not run; {synced}")));
    }
    if last == 0.0 {
        return (Status::Warning, Some("it has not run yet".to_owned()));
    }
    (Status::Ok, None)
}
