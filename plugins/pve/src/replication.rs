//! Replication jobs. The cluster has their configuration, and only the node of the source has their last run.

use crate::context::PollContext;
use crate::nodes::{Nodes, State, answers, backing_off, on_node};
use crate::resources::Resources;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Sample, Status};
use proxmox::SortedMap;
use proxmox::{Answer, DAY, LATEST, Part, Verdict, complaint, count, evaluated, item, moment, worst};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

const PART: Part<'_> = ("replication", &["replication/"]);
/// No job is due before this time. Seconds since 1970.
const EARLIEST: f64 = 1e9;
/// How often jobs are checked.
const PERIOD: Duration = Duration::from_secs(60);

/// A job, as `/cluster/replication` (without times) and `/nodes/N/replication` (with times) list it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Job {
    id: Field<Text>,
    guest: Field<Number>,
    target: Field<Text>,
    disable: Field<Flag>,
    #[serde(rename = "type")]
    kind: Field<Text>,
    source: Field<Text>,
    vmtype: Field<Text>,
    last_sync: Field<Number>,
    last_try: Field<Number>,
    duration: Field<Number>,
    next_sync: Field<Number>,
    /// Set while the job is being removed.
    remove_job: Field<Text>,
    fail_count: Field<Number>,
    error: Field<Text>,
    /// The process of the run in progress.
    pid: Field<Number>,
}

impl Job {
    /// The samples, with the names that prometheus-pve-exporter uses.
    fn samples(&self) -> Vec<Sample> {
        let Some(id) = self.id() else { return Vec::new() };
        let numbers = [
            ("pve_replication_duration_seconds", &self.duration),
            ("pve_replication_last_sync_timestamp_seconds", &self.last_sync),
            ("pve_replication_last_try_timestamp_seconds", &self.last_try),
            ("pve_replication_next_sync_timestamp_seconds", &self.next_sync),
            ("pve_replication_failed_syncs", &self.fail_count),
        ];
        let number = |(name, field): (&str, &Field<Number>)| {
            let number = field.get().map(|Number(number)| *number).filter(|number| *number >= 0.0)?;
            Some(Sample::gauge(name, number).with_label("id", id))
        };
        let word = |field: &Field<Text>| field.get().map(|Text(word)| word.clone()).unwrap_or_default();
        let guest = self.guest.get().map(|Number(guest)| format!("{}/{guest}", word(&self.vmtype))).unwrap_or_default();
        let info = Sample::gauge("pve_replication_info", 1.0).with_label("id", id).with_label("type", word(&self.kind));
        let info = info.with_label("source", format!("node/{}", word(&self.source)));
        let info = info.with_label("target", format!("node/{}", word(&self.target))).with_label("guest", guest);
        numbers.into_iter().filter_map(number).chain([info]).collect()
    }

    fn id(&self) -> Option<&str> {
        self.id.get().map(|Text(id)| id.as_str())
    }
}

pub(crate) fn report(context: &mut PollContext, resources: &Resources<'_>, nodes: &Nodes) {
    if !context.is_due(PART.0) {
        context.report.keep(PART.0);
        return context.report.keep(PART.1[0]);
    }
    let [jobs] = context.api.ask(["/cluster/replication"]);
    let jobs = jobs.list::<Job>(&mut context.diagnostics);
    let Some(jobs) = context.part(PART, jobs) else { return context.checked(PART.0, PERIOD) };
    context.add(match jobs.len() {
        0 => Dependency::skipped(PART.0).with_description("No replication job is visible"),
        jobs => Dependency::ok(PART.0).with_description(count(jobs, "replication job")),
    });
    let source = |job: &Job| {
        let Number(guest) = job.guest.get()?;
        resources.node_of(*guest as u64).map(str::to_owned)
    };
    let sources: BTreeSet<String> = jobs.iter().filter_map(source).collect();
    let asked: Vec<&String> = sources.iter().filter(|node| answers(context, nodes, node)).collect();
    let replies = context.api.ask_all(asked.iter().map(|node| format!("/nodes/{node}/replication")).collect());
    let answers = asked.into_iter().zip(replies).map(|(node, answer)| (node, read(context, node, answer))).collect();
    let sources_by_node = Sources { nodes, answers };
    for (index, job) in jobs.iter().enumerate() {
        let dependency = one(context, (index, job), source(job), &sources_by_node);
        context.report.dependencies.extend(dependency);
    }
    nameless(context, &sources_by_node);
    if context.settings.samples {
        for job in sources_by_node.answers.values().flatten().flatten() {
            context.report.samples.extend(job.samples());
        }
    }
    context.checked(PART.0, PERIOD);
}

fn read(context: &mut PollContext, node: &str, answer: Answer) -> Result<Vec<Job>, String> {
    let jobs = answer.list(&mut context.diagnostics);
    crate::nodes::record_answer(context, node, &jobs);
    jobs.map_err(|error| error.message)
}

/// The nodes, and the jobs that the nodes of their sources list.
struct Sources<'a> {
    nodes: &'a Nodes,
    answers: SortedMap<&'a String, Result<Vec<Job>, String>>,
}

/// Reports jobs that a node lists without their id. Those that it no longer lists are over.
fn nameless(context: &mut PollContext, sources: &Sources<'_>) {
    for (node, jobs) in &sources.answers {
        let nameless = jobs.iter().flatten().enumerate().filter(|(_, job)| job.id().is_none());
        for (index, job) in nameless {
            let name = format!("replication/{} of {node}", item(index));
            let (verdict, _) = evaluate(context, "without an id", job);
            context.add(on_node(evaluated(name, "pve-replication", verdict), node));
        }
    }
    for name in context.reported_before("replication/") {
        let is_nameless = name.starts_with("replication/item ") && name.contains(" of ");
        if is_nameless && context.report.dependencies.iter().all(|found| found.name != name) {
            context.report.remove(name);
        }
    }
}

fn one(
    context: &mut PollContext,
    (index, job): (usize, &Job),
    source: Option<String>,
    sources: &Sources<'_>,
) -> Option<Dependency> {
    let Some(id) = job.id() else {
        return Some(Dependency::unknown(format!("replication/{}", item(index)), "the job has no id"));
    };
    let name = format!("replication/{id}");
    if context.settings.replication.exclude.match_any([id]) || job.remove_job != Field::Absent {
        context.report.remove(name);
        return None;
    }
    let title = job.target.get().map(|Text(target)| format!("{id} to {target}"));
    let off = context.diagnostics.flag(&job.disable, || format!("disable of replication job {id}")) == Some(true);
    let dependency = if off {
        Dependency::skipped(name.as_str()).with_kind("pve-replication").with_description("The job is disabled")
    } else {
        let unknown = |why: String| (evaluated(name.as_str(), "pve-replication", (Status::Unknown, Some(why))), None);
        let (dependency, description) = match &source {
            None => unknown("its guest is not visible: it was removed, or the token may not see it".to_owned()),
            Some(node) if sources.nodes.get(node).is_none_or(|node| node.state != State::Online) => {
                unknown(format!("it cannot be checked: the guest's node {node} is not online"))
            }
            Some(node) => match sources.answers.get(node) {
                Some(Ok(jobs)) => {
                    let found = jobs.iter().filter(|found| found.id() == Some(id));
                    let verdicts: Vec<_> = found.map(|job| evaluate(context, id, job)).collect();
                    if verdicts.len() > 1 {
                        context.diagnostics.repeated(format_args!("/nodes/{node}/replication"), id);
                    }
                    match worst(verdicts.into_iter()) {
                        Some((verdict, synced)) => (evaluated(name.as_str(), "pve-replication", verdict), synced),
                        None => unknown(format!("{node} does not know this job yet")),
                    }
                }
                Some(Err(why)) => unknown(format!("{node} could not be asked: {why}")),
                None => unknown(format!("{node} was not asked: {}", backing_off(context, node).unwrap_or_default())),
            },
        };
        Dependency { description, ..dependency }
    };
    let dependency = Dependency { title, ..dependency };
    Some(match source {
        Some(node) => on_node(dependency, &node),
        None => dependency,
    })
}

/// Evaluates a job from the list of its source's node. Returns a text of when it last succeeded as well.
fn evaluate(context: &mut PollContext, id: &str, job: &Job) -> (Verdict, Option<String>) {
    let now = context.seconds();
    let mut number = |field: &Field<Number>, what: &str| {
        context.diagnostics.number(field, || format!("{what} of replication job {id}"))
    };
    let last = number(&job.last_sync, "last_sync");
    let next = number(&job.next_sync, "next_sync");
    let failures = number(&job.fail_count, "fail_count").unwrap_or_default();
    let when = last.filter(|last| *last > 0.0).and_then(moment);
    let synced =
        when.map_or_else(|| "it has never succeeded".to_owned(), |when| format!("it last succeeded at {when}"));
    let limits = context.settings.replication.overdue();
    let verdict = if let Some(error) = complaint(&job.error) {
        (Status::Critical, Some(format!("it fails: {error}; {synced}")))
    } else if let Field::Odd(odd) = &job.fail_count {
        (Status::Unknown, Some(format!("its node reports {odd} as the number of its failures; {synced}")))
    } else if failures > 0.0 {
        (Status::Critical, Some(format!("it has failed {failures:.0} times in a row; {synced}")))
    } else if let Some(verdict) = last.and_then(|last| context.future(last, "its last success")) {
        verdict
    } else if let Some(last) = last {
        // It is computed from the last try, and is in 1970 for a job that was never tried or is to run at once
        // (pve-manager: PVE/ReplicationState.pm, job_status).
        let due = next.filter(|next| *next > EARLIEST && next - now < LATEST);
        let runs = job.pid.get().is_some();
        if due.is_none() && !runs && last > 0.0 && now - last > DAY {
            let why = format!("its node does not report when it is due; {synced}");
            return ((Status::Unknown, Some(why)), Some(synced));
        }
        let due = due.unwrap_or(now);
        match limits.evaluate((now - due) / 60.0) {
            // The first run copies everything and may take long.
            (Status::Ok, _) if last == 0.0 && !runs => (Status::Warning, Some("it has not run yet".to_owned())),
            (Status::Ok, _) => (Status::Ok, None),
            (_, limit) if runs && last > 0.0 => {
                let why = format!("it was due more than {limit} minutes ago and is still running; {synced}");
                (Status::Warning, Some(why))
            }
            _ if runs => (Status::Ok, None),
            (status, limit) => {
                (status, Some(format!("it has been due for more than {limit} minutes and has not run; {synced}")))
            }
        }
    } else {
        (Status::Unknown, Some("its node does not report when it last ran".to_owned()))
    };
    (verdict, last.is_some().then_some(synced))
}
