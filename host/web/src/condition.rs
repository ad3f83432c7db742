//! A dependency's condition as displayed: with a colour, a sign and a word, so that it is readable without the colour.

use model::{DependencyState, Status, TargetState, Timestamp};

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
            _ if target.is_stale_in(dependency) => Self::Stale,
            _ if record.reported.skipped => Self::Skipped,
            Status::Ok => Self::Ok,
            Status::Warning => Self::Warning,
            Status::Critical => Self::Critical,
            Status::Unknown => Self::Unknown,
        }
    }

    /// The time since when a dependency is in this condition.
    pub(crate) fn since(self, target: &TargetState, dependency: &DependencyState) -> Timestamp {
        let record = &dependency.record;
        let valid_until = record.reported.valid_for.map(|valid| dependency.volatile.checked_at.after(valid));
        let stale_since = valid_until.or(target.observed.stale_since).filter(|_| self == Self::Stale);
        let since = record.missing_since.or(stale_since).or(record.last_status_change);
        since.unwrap_or(record.first_seen)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use std::sync::Arc;

    #[test]
    fn a_condition_has_its_time() {
        let at = Timestamp::from_millis;
        let mut changed = dependency("db", Status::Ok);
        let record = Arc::make_mut(&mut changed.record);
        (record.first_seen, record.last_status_change) = (at(1), Some(at(5)));
        let mut gone = changed.clone();
        Arc::make_mut(&mut gone.record).missing_since = Some(at(7));
        let fresh = target("t");
        let stale = with(target("t"), |observed| observed.stale_since = Some(at(9)));
        let since = |target: &TargetState, dependency: &DependencyState| {
            Condition::of(target, dependency).since(target, dependency)
        };
        assert_eq!(since(&fresh, &changed), at(5));
        assert_eq!(since(&stale, &changed), at(9), "it was ok since 5, and is stale since 9");
        assert_eq!((since(&fresh, &gone), since(&stale, &gone)), (at(7), at(7)));
        let mut old = changed.clone();
        Arc::make_mut(&mut old.record).reported.valid_for = Some(std::time::Duration::from_millis(6));
        assert_eq!(since(&stale, &old), at(5), "it is valid while polls fail");
        (old.volatile.checked_at, old.volatile.is_expired) = (at(2), true);
        assert_eq!(since(&fresh, &old), at(8), "it is stale although polls succeed");
        Arc::make_mut(&mut changed.record).last_status_change = None;
        assert_eq!(since(&fresh, &changed), at(1));
    }
}
