//! The changes that a poll made to the known state of its target.

use model::{DependencyRecord, FailureCategory, Json, LatencyWindow, PluginValues, PollFailure, Status, Timestamp};
use std::sync::Arc;

/// A change of a dependency's status from one report to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The name of the dependency.
    pub dependency: String,
    /// The status before.
    pub previous: Status,
    /// The status after.
    pub current: Status,
}

/// An entry of a dependency's error history; a recovery if `error` is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The name of the dependency.
    pub dependency: String,
    /// The error as the source reported it.
    pub error: Option<Json>,
    /// The error message for users.
    pub message: Option<String>,
}

/// An entry of a target's poll errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollErrorEntry {
    /// Polls fail from here on, for this reason.
    Failed {
        /// The party at fault, and whether another attempt may succeed.
        category: FailureCategory,
        /// A stable code in snake_case.
        code: String,
        /// The message for users, one sentence.
        message: String,
    },
    /// Polls succeed again.
    Recovered,
}

/// The changes of one poll; empty if the poll found no change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Changed statuses.
    pub transitions: Vec<Transition>,
    /// Dependencies whose status, error or presence changed, or that are new. They are written at once.
    pub urgent: Vec<Arc<DependencyRecord>>,
    /// Dependencies of which only descriptions changed. They are written with the next flush.
    pub details: Vec<Arc<DependencyRecord>>,
    /// Names of dependencies that are forgotten because they were missing for too long or were dismissed.
    pub forgotten: Vec<String>,
    /// New entries of the error history.
    pub errors: Vec<ErrorEntry>,
    /// The new entry of the target's poll errors, if any.
    pub poll_error: Option<PollErrorEntry>,
    /// The target's record if its warnings, failure or staleness changed.
    pub target: Option<TargetRecord>,
    /// Completed latency windows, each with its dependency's slot.
    pub points: Vec<(u32, LatencyWindow)>,
    /// The values that the plugin stores, if they changed.
    pub values: Option<PluginValues>,
}

/// The stored fields of a target itself.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetRecord {
    /// The warnings of the last report.
    pub warnings: Vec<String>,
    /// The failure of the last poll; `None` if it succeeded.
    pub failure: Option<PollFailure>,
    /// The time since which the known state is stale; `None` if it is not.
    pub stale_since: Option<Timestamp>,
}

impl Changes {
    /// Returns true if a dependency or the target itself is not what it was. Latencies and times do not count.
    pub fn is_change(&self) -> bool {
        self.is_urgent() || !self.details.is_empty()
    }

    /// Returns true if the changes must be on disk before they are announced.
    pub fn is_urgent(&self) -> bool {
        !(self.transitions.is_empty()
            && self.urgent.is_empty()
            && self.forgotten.is_empty()
            && self.errors.is_empty()
            && self.poll_error.is_none()
            && self.target.is_none())
    }
}
