//! What is known of a target and of its dependencies.

use crate::{
    BreakerState, Cadence, Dependency, FailureCategory, Json, Kind, LatencyPoint, Place, Sample, Schedule, TargetId,
    Timestamp,
};
use std::sync::Arc;
use std::time::Duration;

/// Why a poll failed, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollFailure {
    /// The party at fault, and whether another try may help.
    pub category: FailureCategory,
    /// A stable code in snake_case.
    pub code: String,
    /// One sentence for a person.
    pub message: String,
    /// When the failure was last seen.
    pub at: Timestamp,
}

/// The fields of a dependency that are written when they change.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyRecord {
    /// A small number, unique for its target: the dependency's key in the journal.
    pub slot: u32,
    /// The last report's fields, except time and latency, which are in [`Volatile`].
    pub reported: Dependency,
    /// The canonical name that dependencies of several targets share.
    pub canonical: Option<String>,
    /// The last recorded error; `None` after a recovery.
    pub error_state: Option<Json>,
    /// When it was first reported.
    pub first_seen: Timestamp,
    /// When its status last changed; `None` if it never did.
    pub last_status_change: Option<Timestamp>,
    /// When reports stopped to contain it; `None` while they do.
    pub missing_since: Option<Timestamp>,
}

/// The fields of a dependency that change with every poll.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Volatile {
    /// When the source last checked it, or the end of the poll if the source gave no time.
    pub checked_at: Timestamp,
    /// Latency in milliseconds.
    pub latency_ms: Option<f64>,
    /// The current latency window.
    pub window: Option<LatencyPoint>,
}

/// One dependency.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyState {
    /// The fields that are written when they change.
    pub record: Arc<DependencyRecord>,
    /// The fields that change with every poll.
    pub volatile: Volatile,
}

/// The constant part of a target: what its configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its id.
    pub id: TargetId,
    /// Its name for people.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its URL, without secrets.
    pub url: String,
    /// Names and values, by name.
    pub labels: Vec<(String, String)>,
    /// Where it is defined.
    pub source: TargetSource,
}

/// Where a target is defined. Only its source can change its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSource {
    /// The configuration file, or the demo.
    File,
    /// The API.
    Api,
}

impl TargetSource {
    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
        }
    }
}

/// The results of a target's polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The dependencies of the last report in its order, then the missing ones.
    pub dependencies: Vec<DependencyState>,
    /// The warnings of its last report.
    pub warnings: Vec<String>,
    /// Why its last poll failed; `None` if it succeeded.
    pub failure: Option<PollFailure>,
    /// Since when the dependencies are stale.
    pub stale_since: Option<Timestamp>,
    /// The samples of the last report; empty while polls fail.
    pub samples: Arc<Vec<Sample>>,
}

/// One target as every surface may show it: its committed results and schedule, and where it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetState {
    /// What its configuration says.
    pub info: Arc<TargetInfo>,
    /// Where it is now.
    pub place: Place,
    /// Whether it is polled at all.
    pub enabled: bool,
    /// The cadence that it follows.
    pub cadence: Cadence,
    /// Its schedule as far as it is committed.
    pub schedule: Schedule<Timestamp>,
    /// Whether it cannot be polled: the scheduler decides from which failure on.
    pub unreachable: bool,
    /// Its staleness is 1 when its last success is this old.
    pub longest: Duration,
    /// The committed results of its polls.
    pub observed: Arc<Observed>,
}

impl TargetState {
    /// When it is polled next; `None` while it is not, or while it is being polled.
    pub fn next_run(&self) -> Option<Timestamp> {
        self.place.waits().then_some(self.schedule.due)
    }

    /// When its breaker admits the next probe; `None` while the breaker is closed.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.next_run().filter(|_| self.schedule.breaker.state != BreakerState::Closed)
    }

    /// The state of its breaker. A poll in flight behind an open breaker is its probe.
    pub fn breaker_state(&self) -> BreakerState {
        match (self.schedule.breaker.state, self.place) {
            (BreakerState::Open, Place::InFlight) => BreakerState::HalfOpen,
            (state, _) => state,
        }
    }

    /// How stale it is: 0 right after a success, 1 once its last success is as old as its longest interval, or without one.
    pub fn staleness(&self, now: Timestamp) -> f64 {
        let longest = self.longest.as_secs_f64().max(f64::MIN_POSITIVE);
        self.schedule.last_success.map_or(1.0, |at| (now.since(at).as_secs_f64() / longest).min(1.0))
    }

    /// Whether its dependencies' last statuses no longer describe the present.
    pub fn is_stale(&self) -> bool {
        self.observed.stale_since.is_some() || self.place.lacks_plugin()
    }
}
