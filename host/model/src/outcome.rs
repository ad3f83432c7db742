//! The outcome of a poll.

use crate::{Failure, Report};

/// The outcome of a poll. A failed poll is a value, not an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The plugin returned a report.
    Success(Report),
    /// The poll failed.
    Failure(Failure),
    /// The poll did not run, because no instance slot became free within its time limit. It does not count as a
    /// failure.
    Skipped,
}
