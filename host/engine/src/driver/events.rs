//! The events of a finished poll.

use super::Tracked;
use super::poll::poll_error;
use model::{Event, EventKind, Failure, TargetId, Timestamp};
use store::{Changes, Transition};

/// The events of a poll that are stored: transitions, missing dependencies, and its error if that differs from the one
/// before.
pub(super) fn of_poll(id: &TargetId, changes: &Changes, failure: Option<&Failure>, at: Timestamp) -> Vec<Event> {
    let change = |t: &Transition| EventKind::StatusChange {
        target: id.clone(),
        dependency: t.dependency.clone(),
        previous: t.previous,
        current: t.current,
    };
    let transitions = changes.transitions.iter().map(change);
    let missing = (changes.urgent.iter())
        .filter(|record| record.missing_since == Some(at))
        .map(|record| EventKind::DependencyMissing { target: id.clone(), dependency: record.reported.name.clone() });
    let error = failure.filter(|_| changes.poll_error.is_some()).map(|failure| poll_error(id, failure));
    transitions.chain(missing).chain(error).map(|kind| Event { at, kind }).collect()
}

impl Tracked {
    /// The event that the target became unreachable, or reachable again; `None` if neither changed. `failures` is the
    /// number of failures in a row after the poll.
    pub(super) fn reach(&mut self, unreachable: bool, failures: u32, failure: Option<&Failure>) -> Option<EventKind> {
        let target = self.target.id().clone();
        match (self.unreachable, unreachable) {
            (None, true) => {
                self.unreachable = Some(failures);
                let (code, message) = failure.map(|failure| (failure.code.clone(), failure.message.clone())).unzip();
                let (code, message) = (code.unwrap_or_default(), message.unwrap_or_default());
                Some(EventKind::Unreachable { target, code, message })
            }
            (Some(_), true) => {
                self.unreachable = Some(failures);
                None
            }
            (Some(before), false) if failures == 0 => {
                self.unreachable = None;
                Some(EventKind::Reachable { target, failures: before })
            }
            _ => None,
        }
    }
}
