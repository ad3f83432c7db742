//! Results of the last backup runs.
//!
//! The result of a run of one guest is that of the guest's backup. The result of a run of several guests does not tell
//! which guest failed: only its log does. Such a run is reported for the node and never for a guest.

use super::coverage::Job;
use super::shared::excluded;
use crate::context::PollContext;
use crate::nodes::{Node, Nodes, answers, on_node, reports};
use crate::resources::Guest;
use crate::tasks::Task;
use polliwog_sdk::lenient::Text;
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{AgeRule, DAY, Ended, Error, ErrorClass, Selection, Thresholds, evaluated, list, moment, worst};
use std::collections::{BTreeMap, BTreeSet};

/// A run in progress hangs after this time. Seconds.
const LONGEST: f64 = 2.0 * DAY;
/// A job's run begins at the same time each day, with this tolerance. Seconds.
const ROUGHLY: f64 = 30.0 * 60.0;
/// The number of runs that are read of each node. A node with many guests may have a run for each.
const RUNS: u32 = 500;

/// Reports the last runs on each node. Returns whether all could be read.
pub(super) fn report(context: &mut PollContext, guests: &[Guest<'_>], nodes: &Nodes, jobs: &[Job]) -> bool {
    let asked: Vec<&String> = nodes.keys().filter(|name| answers(context, nodes, name)).collect();
    let path = |node: &&String| format!("/nodes/{node}/tasks?typefilter=vzdump&source=all&limit={RUNS}");
    let replies = context.api.ask_all(asked.iter().map(path).collect());
    let mut newest: BTreeMap<u64, Task> = BTreeMap::new();
    let mut of_nodes: SortedMap<&str, f64> = SortedMap::new();
    let mut whole = true;
    let mut silent_nodes = BTreeSet::new();
    let mut unread_nodes: Vec<String> = nodes.keys().filter(|name| !asked.contains(name)).cloned().collect();
    for (node, answer) in asked.iter().zip(replies) {
        let tasks = answer.list::<Task>(&mut context.diagnostics);
        crate::nodes::record_answer(context, node, &tasks);
        let before = context.report.dependencies.len();
        let own = format!("backup/node/{node}");
        let is_first = tasks.is_ok() && !context.is_known(&own);
        if tasks.is_ok() {
            context.was_read(&own);
        }
        match tasks {
            Ok(tasks) if tasks.is_empty() => {
                let dependency = never_ran(context, node, guests, jobs).filter(|_| reports(nodes, node));
                context.report.dependencies.extend(dependency);
            }
            Ok(tasks) => {
                let several = sort(tasks, &mut newest, context.seconds());
                of_nodes.extend(several.iter().map(|task| (node.as_str(), task.began())).next());
                let busy = guests.iter().any(|guest| guest.node == **node && !excluded(context, guest));
                let left = if guests.is_empty() { None } else { Some(busy) };
                // If no guest on the node needs a backup, the last run does not matter.
                let cared = reports(nodes, node) && left != Some(false);
                let dependency = of_several(context, node, &several, left).filter(|_| cared);
                context.report.dependencies.extend(dependency.map(|dependency| on_node(dependency, node)));
            }
            Err(error) => {
                if unread(context, node, &error, reports(nodes, node)) {
                    silent_nodes.insert((*node).clone());
                }
                unread_nodes.push((*node).clone());
                whole = false;
            }
        }
        if is_first && context.report.dependencies.len() == before {
            // It may have been reported because its runs could not be read.
            context.report.remove(own);
        }
    }
    for name in nodes.keys().filter(|name| !asked.contains(name)) {
        context.report.keep(format!("backup/node/{name}"));
    }
    for guest in guests {
        let name = || format!("backup/guest/{}", guest.id);
        if !selection(context, guest).is_wanted(&mut context.report, name) {
            continue;
        }
        let Some(task) = newest.get(&guest.id) else {
            // The backup gets older, and its last run may be among the tasks of that node.
            if nodes.get(&*guest.node).is_some_and(Node::is_offline) {
                let why = format!("it cannot be checked: the guest's node {} is offline", guest.node);
                context.mark_unknown_until_checked(name(), why);
            } else if silent_nodes.contains(&*guest.node) {
                let why = format!("the last backups of its node {} are not known", guest.node);
                context.mark_unknown_until_checked(name(), why);
            }
            continue;
        };
        // A later run of several guests may contain the guest, and only its log contains the result.
        let later = of_nodes.get(&*guest.node).copied().filter(|began| *began > task.began());
        let dependency = of_one(context, guest, task, later, &unread_nodes);
        context.add(dependency);
    }
    if !whole || asked.len() < nodes.len() {
        // A guest without a run may have one on a node that could not be asked.
        context.report.keep("backup/guest/");
    }
    whole
}

/// Warns of a node without any run, although a job covers guests on it.
fn never_ran(context: &PollContext, node: &str, guests: &[Guest<'_>], jobs: &[Job]) -> Option<Dependency> {
    let due = |guest: &&Guest<'_>| guest.node == node && !excluded(context, guest);
    let covered = |guest: &Guest<'_>| jobs.iter().any(|job| job.is_on() && job.covers(guest));
    let why = "a job covers guests on this node, and no backup ran as far back as its tasks go";
    guests.iter().filter(due).any(covered).then(|| of_node(node, Status::Warning, why.to_owned()))
}

/// Reports that the runs on a node are not known: unknown, or for a while as before. Returns whether the guests of the
/// node are unknown instead, because the node is not checked.
fn unread(context: &mut PollContext, node: &str, error: &Error, is_reported: bool) -> bool {
    let name = format!("backup/node/{node}");
    // The dependency of an unreachable node says it at once.
    let is_said = error.class == ErrorClass::NodeUnreachable;
    let is_unknown = context.stands(&name, error) || !(is_said || context.is_known(&name));
    if is_unknown && is_reported {
        context.forget_read(&name);
        context.add(of_node(node, Status::Unknown, format!("the last backups are not known: {}", error.message)));
        return false;
    }
    context.diagnostics.add(|| format!("the last backups of {node} are not known: {}", error.message));
    context.report.keep(name);
    is_unknown
}

/// A dependency of the runs on a node that is not ok.
fn of_node(node: &str, status: Status, why: String) -> Dependency {
    on_node(evaluated(format!("backup/node/{node}"), "pve-backup", (status, Some(why))), node)
}

fn selection(context: &PollContext, guest: &Guest<'_>) -> Selection {
    let guests = &context.settings.guests;
    if excluded(context, guest) {
        return Selection::Excluded;
    }
    match (guests.include.for_every_name(), guests.exclude.for_every_name()) {
        (Some(true), Some(false)) => Selection::Wanted,
        _ => guest.selection(&guest.names(), guests),
    }
}

/// Puts the newest run of each single guest into `newest`. Returns the runs of several guests, the newest first. Runs
/// in progress are skipped, unless they have hung for days.
fn sort(tasks: Vec<Task>, newest: &mut BTreeMap<u64, Task>, now: f64) -> Vec<Task> {
    let mut several: Vec<Task> = Vec::new();
    let runs = |task: &Task| task.ended() == Ended::Running && now - task.began() < LONGEST;
    for task in tasks.into_iter().filter(|task| task.is(&["vzdump"]) && !runs(task)) {
        match task.id.get().and_then(|Text(id)| id.parse().ok()) {
            Some(guest) => {
                // Of two that began at once, the worse counts.
                let is_worse = |known: &Task| {
                    let (one, other) = (known.ended().evaluated().0, task.ended().evaluated().0);
                    one != other && one.worse(other) == other
                };
                let is_newer =
                    |known: &Task| known.began() < task.began() || known.began() == task.began() && is_worse(known);
                if newest.get(&guest).is_none_or(is_newer) {
                    newest.insert(guest, task);
                }
            }
            None => several.push(task),
        }
    }
    several.sort_by(|one, other| other.began().total_cmp(&one.began()));
    several
}

fn when(task: &Task) -> Option<String> {
    Some(task.began()).filter(|began| *began > 0.0).and_then(moment)
}

/// Evaluates the runs of several guests on a node: the worst of a day, because there may be more than one job. `left`
/// is whether the node still has guests; `None` if that is not known.
fn of_several(context: &PollContext, node: &str, runs: &[Task], left: Option<bool>) -> Option<Dependency> {
    let newest = runs.first()?;
    // The same job ran again at this time of day, with any result.
    let again = |task: &&Task| {
        let later = runs.iter().map(|other| other.began() - task.began()).filter(|later| *later > DAY - ROUGHLY);
        later.map(|later| (later + ROUGHLY) % DAY).any(|apart| apart <= 2.0 * ROUGHLY)
    };
    let of_the_day = runs.iter().take_while(|task| newest.began() - task.began() < DAY + ROUGHLY);
    let of_the_day = of_the_day.filter(|task| !again(task));
    let bad =
        of_the_day.filter_map(|task| Some((task.ended().evaluated(), task)).filter(|((_, why), _)| why.is_some()));
    let shown = |task: &Task| when(task).unwrap_or_else(|| "an unknown time".to_owned());
    let verdict = match worst(bad) {
        Some(((status, why), task)) => {
            let why = why.unwrap_or_default();
            let why = format!("the run of several guests of {} {why}: see its log for the guests", shown(task));
            (if task.began() == 0.0 { Status::Unknown } else { status }, Some(why))
        }
        None => match aged(context, context.settings.backups.age(), newest.began(), &shown(newest)) {
            (_, Some(why)) if left.is_none() => (
                Status::Unknown,
                Some(format!("{why}; no guests are visible, so it is not known whether that is too long")),
            ),
            verdict => verdict,
        },
    };
    let dependency = evaluated(format!("backup/node/{node}"), "pve-backup", verdict);
    Some(dependency.with_description(format!("Several guests were backed up at {}", shown(newest))))
}

/// Evaluates the last run of a single guest. `later` is when a run of several guests followed on its node; `unread` are
/// the nodes whose runs could not be read.
fn of_one(context: &PollContext, guest: &Guest<'_>, task: &Task, later: Option<f64>, unread: &[String]) -> Dependency {
    let shown = when(task).unwrap_or_else(|| "an unknown time".to_owned());
    let (status, why) = match task.ended().evaluated() {
        // A run without a start time cannot be judged as recent.
        (status, Some(why)) => {
            let status = if task.began() == 0.0 { Status::Unknown } else { status };
            (status, Some(format!("the backup of {shown} {why}")))
        }
        (_, None) => {
            let names = guest.names();
            let backups = &context.settings.backups;
            let limits = AgeRule::age(&backups.ages, names.iter(), backups.age());
            match aged(context, limits, task.began(), &shown) {
                // A newer run may be on one of those nodes.
                (Status::Warning | Status::Critical, Some(why)) if !unread.is_empty() => {
                    let nodes = list(unread);
                    (
                        Status::Unknown,
                        Some(format!("{why}, or there are newer ones on {nodes}, whose tasks are not known")),
                    )
                }
                verdict => verdict,
            }
        }
    };
    let verdict = match (later.and_then(moment), &why) {
        (Some(later), Some(why)) => {
            let unknown = format!(
                "{why}; only the log of the run of several guests of {later} shows whether it \
                                   contains the guest"
            );
            (Status::Unknown, Some(unknown))
        }
        _ => (status, why),
    };
    let name = format!("backup/{}", guest.dependency());
    let dependency = evaluated(name, "pve-backup", verdict).with_description(format!("Backed up at {shown}"));
    let dependency = dependency.with_runs_on(guest.dependency());
    match &guest.name {
        Some(name) => dependency.with_title(format!("backup of {name}")),
        None => dependency,
    }
}

fn aged(context: &PollContext, limits: Thresholds, began: f64, shown: &str) -> (Status, Option<String>) {
    if began == 0.0 {
        return (Status::Unknown, Some("its node does not report when it ran".to_owned()));
    }
    if let Some(verdict) = context.future(began, "the last backup") {
        return verdict;
    }
    if began < 0.0 {
        return (Status::Unknown, Some(format!("the last backup is of {shown}, which is impossible")));
    }
    let (status, limit) = limits.evaluate((context.seconds() - began) / 3600.0);
    let why = (status != Status::Ok).then(|| format!("the last backup is of {shown}, more than {limit} hours ago"));
    (status, why)
}
