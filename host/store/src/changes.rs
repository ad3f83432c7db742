//! What a poll changed.

use model::{DependencyRecord, FailureCategory, Json, LatencyPoint, PollFailure, Status, Timestamp};
use std::sync::Arc;

/// A dependency's status changed from one report to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Which dependency.
    pub dependency: String,
    /// What it was.
    pub previous: Status,
    /// What it is.
    pub current: Status,
}

/// One entry of a dependency's error history; without an error it is a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Which dependency.
    pub dependency: String,
    /// What the source said.
    pub error: Option<Json>,
    /// The same for a person.
    pub message: Option<String>,
}

/// One entry of a target's poll errors; without a failure it is a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollErrorEntry {
    /// Category, code and message.
    pub failure: Option<(FailureCategory, String, String)>,
}

/// What a poll changed. Empty for one that found everything as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Statuses that changed.
    pub transitions: Vec<Transition>,
    /// Dependencies whose status, error or presence changed, or that are new: to be written at once.
    pub urgent: Vec<Arc<DependencyRecord>>,
    /// Dependencies of which only descriptions changed: to be written with what merely continued.
    pub details: Vec<Arc<DependencyRecord>>,
    /// Dependencies that have been missing for so long that they are forgotten.
    pub forgotten: Vec<String>,
    /// Entries of the error history.
    pub errors: Vec<ErrorEntry>,
    /// An entry of the target's poll errors.
    pub poll_error: Option<PollErrorEntry>,
    /// Whether warnings, the poll's failure or staleness changed.
    pub target: Option<TargetRecord>,
    /// Latency windows that are over.
    pub points: Vec<(u32, LatencyPoint)>,
}

/// What is written of a target itself.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetRecord {
    /// The warnings of its last report.
    pub warnings: Vec<String>,
    /// Why its last poll failed.
    pub failure: Option<PollFailure>,
    /// Since when what is known is stale.
    pub stale_since: Option<Timestamp>,
}

impl Changes {
    /// Whether something must be on disk before it is told.
    pub fn is_urgent(&self) -> bool {
        !(self.transitions.is_empty()
            && self.urgent.is_empty()
            && self.forgotten.is_empty()
            && self.errors.is_empty()
            && self.poll_error.is_none()
            && self.target.is_none())
    }
}
