//! The known state of a target and its dependencies.

use crate::{
    BreakerState, Cadence, Dependency, FailureCategory, Json, Kind, LatencyPoint, Place, Sample, Schedule, TargetId,
    Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The values that a plugin stored for a target or a channel, by key.
pub type PluginValues = Arc<BTreeMap<String, Vec<u8>>>;

/// The failure of a poll with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollFailure {
    /// The party at fault, and whether another attempt may succeed.
    pub category: FailureCategory,
    /// A stable code in snake_case.
    pub code: String,
    /// The message for users, one sentence.
    pub message: String,
    /// When the failure last occurred.
    pub at: Timestamp,
}

/// The fields of a dependency that are written when they change.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyRecord {
    /// A small number, unique within the target: the key of the dependency in the journal.
    pub slot: u32,
    /// The last report's fields, except time and latency, which are in [`Volatile`].
    pub reported: Dependency,
    /// The canonical name that dependencies of several targets share.
    pub canonical: Option<String>,
    /// The last recorded error; `None` after a recovery.
    pub error_state: Option<Json>,
    /// When the dependency was first reported.
    pub first_seen: Timestamp,
    /// When the status last changed; `None` if it never changed.
    pub last_status_change: Option<Timestamp>,
    /// When the dependency was first missing from a report; `None` if the last report contains it.
    pub missing_since: Option<Timestamp>,
}

/// The fields of a dependency that change with every poll.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Volatile {
    /// When the source last checked the dependency; the end of the poll if the source reports no time.
    pub checked_at: Timestamp,
    /// Latency in milliseconds.
    pub latency_ms: Option<f64>,
    /// The current latency window.
    pub window: Option<LatencyPoint>,
    /// Whether the state was older than [`Dependency::valid_for`] at the last poll.
    pub is_expired: bool,
}

/// The state of one dependency.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyState {
    /// The fields that are written when they change.
    pub record: Arc<DependencyRecord>,
    /// The fields that change with every poll.
    pub volatile: Volatile,
}

/// The constant part of a target, from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// The id.
    pub id: TargetId,
    /// The display name.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// The URL, without secrets.
    pub url: String,
    /// The labels, sorted by name.
    pub labels: Vec<(String, String)>,
    /// The source of the definition.
    pub source: TargetSource,
}

/// The source of a target's definition. Only its source can change the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSource {
    /// The configuration file, or the demo.
    File,
    /// The API.
    Api,
    /// A deployment that the operator of the fleet assigned.
    Assignment,
}

impl TargetSource {
    /// All sources.
    pub const ALL: [Self; 3] = [Self::File, Self::Api, Self::Assignment];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::Assignment => "assignment",
        }
    }
}

/// The results of a target's polls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The dependencies of the last report in its order, then the missing ones.
    pub dependencies: Arc<Vec<DependencyState>>,
    /// The warnings of the last report.
    pub warnings: Vec<String>,
    /// The failure of the last poll; `None` if it succeeded.
    pub failure: Option<PollFailure>,
    /// The time since which the dependencies are stale; `None` if they are not.
    pub stale_since: Option<Timestamp>,
    /// The samples of the last report; empty while polls fail.
    pub samples: Arc<Vec<Sample>>,
}

impl Observed {
    /// Returns why a target is not ok although nothing in its last report is wrong: the report has no dependency, or
    /// skips all of them. `None` if the report checks something.
    pub fn nothing_checked(&self) -> Option<String> {
        nothing_checked(&self.dependencies, &self.warnings)
    }
}

/// See [`Observed::nothing_checked`]. `dependencies` include the missing ones, `warnings` are those of the report.
pub fn nothing_checked(dependencies: &[DependencyState], warnings: &[String]) -> Option<String> {
    let mut present = dependencies.iter().filter(|found| found.record.missing_since.is_none());
    let what = match present.next() {
        None => "its report has no dependency",
        Some(first) if first.record.reported.skipped && present.all(|found| found.record.reported.skipped) => {
            "its report skips every check"
        }
        Some(_) => return None,
    };
    let why = warnings.first().map_or_else(String::new, |warning| format!(": {warning}"));
    Some(format!("{what}{why}"))
}

/// The state of one target for API, metrics and user interface: committed results and schedule, and the current place.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetState {
    /// The constant part, from the configuration.
    pub info: Arc<TargetInfo>,
    /// The current place.
    pub place: Place,
    /// Whether the target is polled.
    pub enabled: bool,
    /// The active cadence.
    pub cadence: Cadence,
    /// The committed schedule.
    pub schedule: Schedule<Timestamp>,
    /// Whether the target is unreachable, as the scheduler decides.
    pub unreachable: bool,
    /// The longest interval. The staleness is 1 when the last success is this old.
    pub longest: Duration,
    /// The committed results of the polls.
    pub observed: Arc<Observed>,
}

impl TargetState {
    /// Returns when the target is polled next; `None` if it is not polled, or is being polled now.
    pub fn next_run(&self) -> Option<Timestamp> {
        self.place.waits().then_some(self.schedule.due)
    }

    /// Returns when the breaker admits the next probe; `None` if the breaker is closed.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.next_run().filter(|_| self.schedule.breaker.state != BreakerState::Closed)
    }

    /// Returns the state of the breaker. A poll in flight with an open breaker is its probe.
    pub fn breaker_state(&self) -> BreakerState {
        match (self.schedule.breaker.state, self.place) {
            (BreakerState::Open, Place::InFlight) => BreakerState::HalfOpen,
            (state, _) => state,
        }
    }

    /// Returns the staleness: 0 right after a success, 1 if the last success is as old as the longest interval or
    /// missing.
    pub fn staleness(&self, now: Timestamp) -> f64 {
        let longest = self.longest.as_secs_f64().max(f64::MIN_POSITIVE);
        self.schedule.last_success.map_or(1.0, |at| (now.since(at).as_secs_f64() / longest).min(1.0))
    }

    /// Returns true if the last status of a dependency of this target is out of date.
    pub fn is_stale_in(&self, dependency: &DependencyState) -> bool {
        match dependency.record.reported.valid_for {
            Some(_) => dependency.volatile.is_expired || self.place.lacks_plugin(),
            None => self.is_stale(),
        }
    }

    /// Returns true if the last statuses of its dependencies are out of date, apart from those with a validity.
    pub fn is_stale(&self) -> bool {
        self.observed.stale_since.is_some() || self.place.lacks_plugin()
    }
}
