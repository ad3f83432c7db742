//! A target's status as one word, used in headlines, lists, metrics and the API.

use model::{BreakerState, Status, TargetState};

/// A target's status. Ordered for display: the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TargetStatus {
    /// Polls fail: two in a row, or one before any success.
    Unreachable,
    /// A dependency is critical.
    Critical,
    /// No plugin serves its kind, or that plugin is in quarantine.
    NoPlugin,
    /// The worst dependency has a warning, or a dependency is missing.
    Warning,
    /// The worst dependency is unknown or its state has expired, or the target reports no dependency that is checked.
    Unknown,
    /// No poll has succeeded yet.
    Pending,
    /// Every dependency is ok.
    Ok,
    /// An operator disabled the target.
    Disabled,
}

impl TargetStatus {
    pub(crate) const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::Critical,
        Self::NoPlugin,
        Self::Warning,
        Self::Unknown,
        Self::Pending,
        Self::Ok,
        Self::Disabled,
    ];

    /// The word in pages, API and command line.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Critical => "critical",
            Self::NoPlugin => "no_plugin",
            Self::Warning => "warning",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Ok => "ok",
            Self::Disabled => "disabled",
        }
    }

    /// The sign next to the word, readable without colour.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Unreachable => "⚡",
            Self::Critical => "✗",
            Self::NoPlugin => "⊘",
            Self::Warning => "!",
            Self::Unknown => "?",
            Self::Pending => "…",
            Self::Ok => "✓",
            Self::Disabled => "‖",
        }
    }

    /// The status with this word; `None` if the word is unknown.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether an operator has to act now.
    pub(crate) const fn is_bad(self) -> bool {
        matches!(self, Self::Unreachable | Self::Critical | Self::NoPlugin)
    }

    /// Whether a headline shows this status even if its count is 0.
    pub(crate) const fn is_always_shown(self) -> bool {
        matches!(self, Self::Unreachable | Self::Critical | Self::Warning | Self::Ok)
    }

    /// The value of the metric `target_status`: 0 ok, 1 warning, 2 critical, 3 unknown, 4 unreachable or without a
    /// plugin. `None` for a pending or disabled target.
    pub(crate) const fn number(self) -> Option<f64> {
        match self {
            Self::Ok => Some(0.0),
            Self::Warning => Some(1.0),
            Self::Critical => Some(2.0),
            Self::Unknown => Some(3.0),
            Self::Unreachable | Self::NoPlugin => Some(4.0),
            Self::Pending | Self::Disabled => None,
        }
    }
}

impl TargetStatus {
    /// The status of a target.
    pub(crate) fn of(target: &TargetState) -> Self {
        let (missing, reported): (Vec<_>, Vec<_>) =
            target.observed.dependencies.iter().partition(|dependency| dependency.record.missing_since.is_some());
        let worst = reported.iter().filter_map(|dependency| match dependency.record.reported.status {
            _ if dependency.volatile.is_expired => Some(Self::Unknown),
            // It says nothing about the target.
            _ if dependency.record.reported.skipped => None,
            Status::Ok => Some(Self::Ok),
            Status::Warning => Some(Self::Warning),
            Status::Critical => Some(Self::Critical),
            Status::Unknown => Some(Self::Unknown),
        });
        let missing = missing.first().map(|_| Self::Warning);
        if !target.enabled {
            Self::Disabled
        } else if target.place.lacks_plugin() {
            Self::NoPlugin
        } else if target.unreachable {
            Self::Unreachable
        } else if target.schedule.last_success.is_none() {
            Self::Pending
        } else {
            worst.chain(missing).min().unwrap_or(Self::Unknown)
        }
    }
}

/// Whether a target's breaker is not closed or counts failures.
pub(crate) fn has_unusual_breaker(target: &TargetState) -> bool {
    target.breaker_state() != BreakerState::Closed || target.schedule.failures > 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::{
        Cadence, Dependency, DependencyRecord, DependencyState, Kind, Observed, Place, Schedule, TargetId, TargetInfo,
        TargetSource, Timestamp, Volatile,
    };
    use std::sync::Arc;
    use std::time::Duration;

    /// Returns a target that has not been polled.
    pub(crate) fn target(id: &str) -> TargetState {
        TargetState {
            info: Arc::new(TargetInfo {
                id: TargetId::new(id).unwrap(),
                name: id.to_owned(),
                kind: Kind::new("http").unwrap(),
                url: format!("http://{id}/"),
                labels: Vec::new(),
                source: TargetSource::File,
            }),
            place: Place::Queued,
            enabled: true,
            cadence: Cadence::Adaptive,
            schedule: Schedule::new(Timestamp::from_millis(0)),
            unreachable: false,
            longest: Duration::from_secs(10),
            observed: Arc::default(),
        }
    }

    /// Returns the target with changed observations.
    pub(crate) fn with(target: TargetState, change: impl FnOnce(&mut Observed)) -> TargetState {
        let mut observed = Observed::clone(&target.observed);
        change(&mut observed);
        TargetState { observed: Arc::new(observed), ..target }
    }

    /// Returns a dependency with only a name and a status.
    pub(crate) fn dependency(name: &str, status: Status) -> DependencyState {
        let record = DependencyRecord {
            slot: 0,
            reported: Dependency::new(name, status),
            canonical: None,
            error_state: None,
            first_seen: Timestamp::from_millis(0),
            last_status_change: None,
            missing_since: None,
        };
        DependencyState { record: Arc::new(record), volatile: Volatile::default() }
    }

    #[test]
    fn the_first_state_that_applies_is_the_status() {
        let seen = Some(Timestamp::from_millis(5));
        let reporting = |statuses: &[Status]| {
            let mut reporting = with(target("a"), |observed| {
                let named = statuses.iter().enumerate().map(|(n, status)| dependency(&format!("d{n}"), *status));
                observed.dependencies = Arc::new(named.collect());
            });
            reporting.schedule.last_success = seen;
            reporting
        };
        let ok = reporting(&[Status::Ok]);
        let missing = with(reporting(&[Status::Ok, Status::Critical]), |observed| {
            let second = &mut Arc::make_mut(&mut observed.dependencies)[1];
            Arc::make_mut(&mut second.record).missing_since = seen;
        });
        let expired = with(ok.clone(), |observed| {
            Arc::make_mut(&mut observed.dependencies)[0].volatile.is_expired = true;
        });
        let stale = |target: &TargetState| with(target.clone(), |observed| observed.stale_since = seen);
        let cases = [
            (target("a"), "pending"),
            (reporting(&[]), "unknown"),
            (ok.clone(), "ok"),
            (reporting(&[Status::Ok, Status::Unknown]), "unknown"),
            (reporting(&[Status::Warning, Status::Unknown]), "warning"),
            (reporting(&[Status::Warning, Status::Critical]), "critical"),
            (missing, "warning"),
            (expired, "unknown"),
            (stale(&ok), "ok"),
            (TargetState { unreachable: true, ..stale(&ok) }, "unreachable"),
            (TargetState { unreachable: true, ..target("a") }, "unreachable"),
            (TargetState { place: Place::NoPlugin, unreachable: true, ..ok.clone() }, "no_plugin"),
            (TargetState { place: Place::Quarantined, ..ok.clone() }, "no_plugin"),
            (TargetState { enabled: false, unreachable: true, ..ok }, "disabled"),
        ];
        for (state, expected) in cases {
            assert_eq!(TargetStatus::of(&state).as_str(), expected, "{state:?}");
            assert_eq!(TargetStatus::from_word(expected), Some(TargetStatus::of(&state)));
        }
    }
}
