//! The events of a finished poll.

use model::{Event, EventKind, Failure, TargetId, Timestamp};
use scheduler::TargetStatus;
use store::{Changes, Transition};

/// The events of a poll that are stored: its transitions, what is no longer reported, and its error when that is another
/// one than before.
pub(super) fn of_poll(id: &TargetId, changes: &Changes, failure: Option<&Failure>, at: Timestamp) -> Vec<Event> {
    let change = |t: &Transition| EventKind::StatusChange {
        target: id.clone(),
        dependency: t.dependency.clone(),
        previous: t.previous,
        current: t.current,
    };
    let transitions = changes.transitions.iter().map(change);
    let missing = changes
        .urgent
        .iter()
        .filter(|facts| facts.missing_since == Some(at))
        .map(|facts| EventKind::DependencyMissing { target: id.clone(), dependency: facts.reported.name.clone() });
    let error = failure.filter(|_| changes.poll_error.is_some()).map(|failure| super::worker::poll_error(id, failure));
    transitions.chain(missing).chain(error).map(|kind| Event { at, kind }).collect()
}

/// The event that a target became unreachable, or reachable again; `None` if neither changed.
pub(super) fn of_reach(
    id: &TargetId,
    (before, now): (Option<&TargetStatus>, &TargetStatus),
    failure: Option<&Failure>,
) -> Option<EventKind> {
    let is_unreachable = |status: &TargetStatus| status.schedule.is_unreachable();
    match (before.is_some_and(is_unreachable), is_unreachable(now)) {
        (false, true) => {
            let (code, message) = failure.map(|failure| (failure.code.clone(), failure.message.clone())).unzip();
            let (code, message) = (code.unwrap_or_default(), message.unwrap_or_default());
            Some(EventKind::Unreachable { target: id.clone(), code, message })
        }
        (true, false) => {
            let failures = before.map_or(0, |before| before.schedule.failures.max(before.schedule.plugin_faults));
            Some(EventKind::Reachable { target: id.clone(), failures })
        }
        _ => None,
    }
}
