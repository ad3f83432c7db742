//! How a poll ended.

use crate::Report;
use std::time::Duration;

/// What a poll came to. A failed poll is a value, not an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The plugin made a report.
    Success(Report),
    /// There is no report, and this is why.
    Failure(Failure),
    /// The poll never began: it waited for an instance slot until its time was over. Nobody's failure.
    Skipped,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose failure it is and whether another try may help.
    pub category: FailureCategory,
    /// Stable, snake_case, for programs.
    pub code: String,
    /// One sentence for a person: what is wrong and what to do.
    pub message: String,
    /// How long the source asked to be left alone.
    pub retry_after: Option<Duration>,
}

/// Whose failure it is and whether another try may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureCategory {
    /// The target's; another try may help.
    Transient,
    /// The target's; it fails again until somebody changes something.
    Permanent,
    /// The plugin's: a trap, a limit, bad output.
    Plugin,
}

impl FailureCategory {
    /// Every category.
    pub const ALL: [Self; 3] = [Self::Transient, Self::Permanent, Self::Plugin];

    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Plugin => "plugin",
        }
    }

    /// The category that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == word)
    }
}

/// What a failure was about, as far as others of the same origin are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// DNS, connecting, or a time-out: when another target of the origin answers, this one may as well.
    Unreachable,
    /// Anything else; a wrong password does not get better because somebody else's is right.
    Other,
}

impl Failure {
    /// What the failure's code says about the origin as a whole.
    pub fn cause(&self) -> Cause {
        let unreachable = ["dns_", "connect_", "timeout"].iter().any(|prefix| self.code.starts_with(prefix));
        if unreachable { Cause::Unreachable } else { Cause::Other }
    }
}
