//! The stored past of a target.

use crate::{FailureCategory, Status, Timestamp};

/// A change of a dependency's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusChange {
    /// The name of the dependency.
    pub dependency: String,
    /// The status before.
    pub previous: Status,
    /// The status after.
    pub current: Status,
    /// The time of the change.
    pub at: Timestamp,
}

/// A change between polls that fail and polls that succeed, or a new reason for failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollChange {
    /// The failure: its category, its code and its message for users. `None` if polls succeed again.
    pub failure: Option<(FailureCategory, String, String)>,
    /// The time of the change.
    pub at: Timestamp,
}

/// An entry of a dependency's error history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorChange {
    /// The name of the dependency.
    pub dependency: String,
    /// The error as JSON; `None` for a recovery.
    pub error: Option<String>,
    /// The error message for users.
    pub message: Option<String>,
    /// The time of the entry.
    pub at: Timestamp,
}

/// The stored past of a target from some time until now. Every list has the oldest entry first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The lists are complete from this time on. Earlier entries were not requested, or were deleted.
    pub since: Timestamp,
    /// Changes of its dependencies' statuses.
    pub statuses: Vec<StatusChange>,
    /// Changes of its polls. The first may be older than `since`: polls failed at that time, or not.
    pub polls: Vec<PollChange>,
    /// Errors and recoveries of its dependencies.
    pub errors: Vec<ErrorChange>,
    /// The times in which no host ran: begin and end.
    pub gaps: Vec<(Timestamp, Timestamp)>,
}
