//! Why a poll failed.

use std::time::Duration;

/// Why a poll returned no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The party at fault, and whether another attempt may succeed.
    pub category: FailureCategory,
    /// A stable code in snake_case, for programs.
    pub code: String,
    /// The cause, as far as it matters for other targets of the same origin.
    pub cause: Cause,
    /// The problem and the remedy, as one sentence for users.
    pub message: String,
    /// The delay before the next poll that the source requested (Retry-After).
    pub retry_after: Option<Duration>,
}

/// The party at fault, and whether another attempt may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCategory {
    /// The target failed; another attempt may succeed.
    Transient,
    /// The target refuses exactly what was sent, and will refuse it again.
    Permanent,
    /// The target will fail again until an operator changes it or its configuration.
    Misconfigured,
    /// The plugin failed: a trap, an exceeded limit, or invalid output.
    Plugin,
}

impl FailureCategory {
    /// All categories.
    pub const ALL: [Self; 4] = [Self::Transient, Self::Permanent, Self::Misconfigured, Self::Plugin];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Misconfigured => "misconfigured",
            Self::Plugin => "plugin",
        }
    }

    /// Returns the category with the name `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == word)
    }
}

/// The cause of a failure, as far as it matters for other targets of the same origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// DNS, connecting, or a time-out: if another target of the origin answers, this one may answer too.
    Unreachable,
    /// Any other cause, such as a wrong password: a success of another target does not affect it.
    Other,
}
