//! What the log says of events: those after which somebody may have to do something, and their ends.

use crate::plugins::PluginSet;
use model::{Event, EventKind, Failure, Status, TargetId, Timestamp};
use store::{Changes, Transition};

/// Of a target's events, and why its poll failed where that brought them about.
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
                    "{target} failed {failures} times in a row; it is polled less often until it answers{why}"
                );
            }
            EventKind::DeadLetter { target, .. } => {
                tracing::warn!("{target} is a dead letter: it is polled rarely until it answers{why}");
            }
            EventKind::CircuitClose { target } | EventKind::Revived { target } => {
                tracing::info!("{target} is polled again as it was");
            }
            EventKind::Unreachable { target, code, message } => {
                tracing::warn!("{target} is unreachable, it cannot be polled: {message} ({code})");
            }
            EventKind::Reachable { target, failures } => {
                let failures = crate::common::counted(*failures as usize, "failure");
                tracing::info!("{target} answers again, after {failures}");
            }
            _ => {}
        }
    }
}

/// Lines that one report may cause.
const LINES: usize = 10;

/// Of what a report changed: what became critical or ok, with what its source says, and what is no longer reported.
pub(super) fn of_changes(target: &TargetId, changes: &Changes, at: Timestamp) {
    let says = |name: &str| {
        let facts = changes.urgent.iter().find(|facts| facts.reported.name == name);
        let message = facts.and_then(|facts| facts.reported.error_message.as_deref());
        message.map(|message| format!(": {message}")).unwrap_or_default()
    };
    let told = changes.transitions.iter().filter(|change| change.previous != change.current);
    for Transition { dependency, previous, current } in told.clone().take(LINES) {
        let (is, was) = (current.as_str(), previous.as_str());
        match current {
            Status::Ok => tracing::info!("{dependency} of {target} is ok again, was {was}"),
            _ => tracing::warn!("{dependency} of {target} is {is}, was {was}{}", says(dependency)),
        }
    }
    // A dependency that is not ok in its first report has no transition; log it here.
    let new = changes.urgent.iter().filter(|facts| facts.first_seen == at && facts.reported.status != Status::Ok);
    for facts in new.clone().take(LINES) {
        let (name, is) = (&facts.reported.name, facts.reported.status.as_str());
        tracing::warn!("{name} of {target} is {is}{}", says(name));
    }
    let missing = changes.urgent.iter().filter(|facts| facts.missing_since == Some(at));
    for facts in missing.clone().take(LINES) {
        tracing::warn!("{} of {target} is missing: the target reports it no more", facts.reported.name);
    }
    let more =
        told.count().saturating_sub(LINES) + new.count().saturating_sub(LINES) + missing.count().saturating_sub(LINES);
    if more > 0 {
        tracing::warn!("{more} more dependencies of {target} changed");
    }
}

/// Of an event of no one target.
pub(super) fn of_plugin(kind: &EventKind, plugins: &PluginSet, failure: Option<&Failure>) {
    if let EventKind::PluginQuarantined { plugin, targets } = kind {
        let last = failure.map(|failure| format!(", the last with: {}", failure.message)).unwrap_or_default();
        let source = plugins.get(plugin).map_or("no plugin", |served| &served.source);
        tracing::warn!(
            "{source} is in quarantine: the latest polls of {} of kind {plugin}, one after another, ended in \
             faults of its own{last}; it is tried every 5 min, when its file changes, and by `polliwog plugin retry {plugin}` (`polliwog targets` \
             names the fault of each)",
            crate::common::counted(*targets as usize, "target")
        );
    }
}
