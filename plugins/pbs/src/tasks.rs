//! Tasks that failed in the last day.

use crate::context::{Permissions, PollContext};
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Number, Text};
use proxmox::SortedMap;
use proxmox::{Ended, Part, count, evaluated, list};
use serde::Deserialize;
use std::time::Duration;

const PART: Part<'_> = ("tasks", &[]);
/// How often tasks are checked.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// A check that could not read them runs again after this time.
const AGAIN: Duration = Duration::from_secs(60);
/// How long ago a task may have ended. Seconds.
const BACK: f64 = 24.0 * 3600.0;
/// How long a task may have run. Seconds.
const LONGEST: f64 = 48.0 * 3600.0;
/// The number of tasks that are read.
const MOST: usize = 200;

/// One entry of `/nodes/localhost/tasks`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Task {
    worker_type: Field<Text>,
    worker_id: Field<Text>,
    status: Field<Text>,
    endtime: Field<Number>,
}

pub(crate) fn report(context: &mut PollContext) {
    if !context.settings.tasks.warn {
        return context.report.remove(PART.0);
    }
    if !context.is_due(PART.0) {
        return context.report.keep(PART.0);
    }
    // The server compares with the start of a task.
    let ended_after = context.seconds() - BACK;
    let since = (ended_after - LONGEST).max(0.0);
    let [answer] = context.api.ask([format!("/nodes/localhost/tasks?errors=1&since={since:.0}&limit={MOST}").as_str()]);
    let tasks = answer.list::<Task>(&mut context.diagnostics);
    let Some(tasks) = context.part(PART, tasks) else { return context.checked(PART.0, AGAIN) };
    let mut failed: SortedMap<String, (usize, String)> = SortedMap::new();
    for task in &tasks {
        let ended = context.diagnostics.number(&task.endtime, || "endtime of a task that failed".to_owned());
        let names = task.names();
        let excluded = context.settings.tasks.exclude.match_any(names.iter().map(String::as_str));
        if excluded || ended.is_some_and(|ended| ended < ended_after) {
            continue;
        }
        let result = match &task.status {
            Field::Is(Text(status)) => Ended::read(Some(status), true),
            // The server lists tasks that are running as well.
            Field::Absent if task.endtime == Field::Absent => Ended::Running,
            Field::Absent => Ended::Failed("without a result".to_owned()),
            Field::Odd(odd) => Ended::Failed(odd.clone()),
        };
        // Older versions list tasks with warnings as well.
        if let Ended::Failed(why) = result {
            let what = task.worker_type.get().map_or("a task", |Text(kind)| kind.as_str());
            let on = task.worker_id.get().map(|Text(id)| format!(" of {id}")).unwrap_or_default();
            let (times, said) = failed.get_or_default(format!("{what}{on}"));
            *times += 1;
            *said = why;
        }
    }
    let all = failed.values().map(|(times, _)| times).sum::<usize>();
    let shown = |(name, (times, why)): (String, (usize, String))| match times {
        1 => format!("{name} ({why})"),
        times => format!("{name} ({times} times; {why})"),
    };
    let names: Vec<String> = failed.into_iter().map(shown).collect();
    let verdict = if all == 0 {
        whose(context)
    } else {
        (Status::Warning, Some(format!("{} failed in the last day: {}", count(all, "task"), list(&names))))
    };
    context.add(evaluated(PART.0, "pbs-tasks", verdict));
    context.checked(PART.0, PERIOD);
}

impl Task {
    /// All names that match a task in the settings.
    fn names(&self) -> Vec<String> {
        let word = |field: &Field<Text>| field.get().map(|Text(word)| word.clone());
        let kind = word(&self.worker_type).unwrap_or_default();
        let on = word(&self.worker_id).map(|id| format!("{kind}:{id}"));
        [kind].into_iter().chain(on).collect()
    }
}

/// Evaluates an empty list: without Sys.Audit it contains the token's own tasks only.
fn whose(context: &mut PollContext) -> (Status, Option<String>) {
    let [answer] = context.api.ask(["/access/permissions"]);
    match answer.read::<Permissions>() {
        Ok(permissions) if permissions.values().any(|held| held.contains_key("Sys.Audit")) => (Status::Ok, None),
        Ok(_) => {
            let grant = context.api.product().grant_rights();
            (Status::Unknown, Some(format!("the token lacks Sys.Audit, so others' tasks are hidden from it: {grant}")))
        }
        Err(error) => {
            (Status::Unknown, Some(format!("it is not known whose tasks the token may see: {}", error.message)))
        }
    }
}
