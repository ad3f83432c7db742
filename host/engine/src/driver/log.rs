//! Log lines for events that may require action, and for their ends.

use catalog::PluginSet;
use model::{Event, EventKind, Failure, Status, TargetId, Timestamp};
use store::{Changes, Transition};

/// Logs a target's events; `failure` is the poll's failure that led to them.
pub(super) fn of_target(events: &[Event], failure: Option<&Failure>) {
    let why = failure.map(|failure| format!(": {} ({})", failure.message, failure.code)).unwrap_or_default();
    let has = |is: fn(&EventKind) -> bool| events.iter().any(|event| is(&event.kind));
    for event in events {
        match &event.kind {
            // A dead letter's breaker opens and closes as well; one line is enough.
            EventKind::CircuitOpen { .. } if has(|kind| matches!(kind, EventKind::DeadLetter { .. })) => {}
            EventKind::CircuitClose { .. } if has(|kind| matches!(kind, EventKind::Revived { .. })) => {}
            EventKind::CircuitOpen { target, failures } => {
                tracing::warn!(
                    "{target} failed {failures} times in a row: its circuit breaker opened, and it is polled less often until it answers{why}"
                );
            }
            EventKind::DeadLetter { target, .. } => {
                tracing::warn!("{target} is a dead letter: it is polled rarely until it answers{why}");
            }
            EventKind::Revived { target } => {
                tracing::info!("{target} is no longer a dead letter: it is polled normally again");
            }
            EventKind::CircuitClose { target } => {
                tracing::info!("{target} recovered: back to its normal interval");
            }
            EventKind::Unreachable { target, code, message } => {
                tracing::warn!("{target} is unreachable: {message} ({code})");
            }
            EventKind::Reachable { target, failures } => {
                let failures = counted(*failures as usize, "failure");
                tracing::info!("{target} answers again, after {failures}");
            }
            _ => {}
        }
    }
}

/// Most log lines of each type for one report.
const LINES: usize = 10;

/// Logs the changes of a report: status changes with the source's message, new problems, and missing dependencies.
pub(super) fn of_changes(target: &TargetId, changes: &Changes, at: Timestamp) {
    let says = |name: &str| {
        let record = changes.urgent.iter().find(|record| record.reported.name == name);
        let message = record.and_then(|record| record.reported.error_message.as_deref());
        message.map(|message| format!(": {message}")).unwrap_or_default()
    };
    let changed = changes.transitions.iter().filter(|change| change.previous != change.current);
    for Transition { dependency, previous, current } in changed.clone().take(LINES) {
        let (is, was) = (current.as_str(), previous.as_str());
        match current {
            Status::Ok => tracing::info!("{dependency} of {target} is ok again, was {was}"),
            _ => tracing::warn!("{dependency} of {target} is {is}, was {was}{}", says(dependency)),
        }
    }
    // A dependency that is not ok in its first report has no transition; log it here.
    let new = changes.urgent.iter().filter(|record| record.first_seen == at && record.reported.status != Status::Ok);
    for record in new.clone().take(LINES) {
        let (name, is) = (&record.reported.name, record.reported.status.as_str());
        tracing::warn!("{name} of {target} is {is}{}", says(name));
    }
    let missing = changes.urgent.iter().filter(|record| record.missing_since == Some(at));
    for record in missing.clone().take(LINES) {
        tracing::warn!("{} of {target} is missing: the target no longer reports it", record.reported.name);
    }
    let more = changed.count().saturating_sub(LINES)
        + new.count().saturating_sub(LINES)
        + missing.count().saturating_sub(LINES);
    if more > 0 {
        tracing::warn!("{more} more dependencies of {target} changed");
    }
}

/// Logs an event that is not about a target.
pub(super) fn of_plugin(kind: &EventKind, plugins: &PluginSet, failure: Option<&Failure>) {
    if let EventKind::PluginReleased { plugin } = kind {
        tracing::info!("the plugin of kind {plugin} is no longer in quarantine: its targets are polled normally again");
    }
    if let EventKind::PluginQuarantined { plugin, targets } = kind {
        let last = failure.map(|failure| format!(", the last with: {}", failure.message)).unwrap_or_default();
        let source = plugins.get(plugin).map_or("no plugin", |served| &served.source);
        tracing::warn!(
            "{source} is in quarantine: the latest polls of {} of kind {plugin}, one after another, ended in \
             plugin faults{last}; it is tried every 5 min, when its file changes, and by `polliwog plugin retry {plugin}` (`polliwog targets` \
             names the fault of each)",
            counted(*targets as usize, "target")
        );
    }
}

/// `1 failure`, `2 failures`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
