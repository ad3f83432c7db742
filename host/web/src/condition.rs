//! A dependency's condition as displayed: with a colour, a sign and a word, so that it is readable without the colour.

use model::{DependencyState, Status, TargetState};

/// A dependency's condition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Ok,
    Warning,
    Critical,
    Unknown,
    Stale,
    Missing,
    Skipped,
}

impl Condition {
    pub(crate) const ALL: [Self; 7] =
        [Self::Ok, Self::Warning, Self::Critical, Self::Unknown, Self::Stale, Self::Missing, Self::Skipped];

    pub(crate) fn of(target: &TargetState, dependency: &DependencyState) -> Self {
        let record = &dependency.record;
        match record.reported.status {
            _ if record.missing_since.is_some() => Self::Missing,
            _ if target.is_stale() => Self::Stale,
            _ if record.reported.skipped => Self::Skipped,
            Status::Ok => Self::Ok,
            Status::Warning => Self::Warning,
            Status::Critical => Self::Critical,
            Status::Unknown => Self::Unknown,
        }
    }

    /// The order in which conditions need attention: less is worse.
    pub(crate) fn urgency(self) -> u8 {
        match self {
            Self::Critical => 1,
            Self::Missing => 2,
            Self::Warning => 3,
            Self::Unknown => 4,
            Self::Stale => 5,
            Self::Ok | Self::Skipped => 6,
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Unknown => "unknown",
            Self::Stale => "stale",
            Self::Missing => "missing",
            Self::Skipped => "skipped",
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Ok => "✓",
            Self::Warning => "!",
            Self::Critical => "✗",
            Self::Unknown => "?",
            Self::Stale => "⏱",
            Self::Missing => "∅",
            Self::Skipped => "»",
        }
    }

    /// The word for the condition; for a stale or missing dependency, with its last status.
    pub(crate) fn word(self, status: Status) -> String {
        match self {
            Self::Stale | Self::Missing => format!("{}, was {}", self.class(), status.as_str()),
            _ => self.class().to_owned(),
        }
    }
}
