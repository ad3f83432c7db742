//! What is handed to the writer, and what comes back.

use crate::changes::Changes;
use crate::known::{Known, Live};
use model::{Cause, Event, Kind, TargetId, Timestamp};
use std::time::Duration;

/// A target's schedule as it is stored: by the wall clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// A hash of what makes its target another one: URL, TLS, kind, secrets. A schedule of another identity is not taken
    /// up.
    pub identity: i64,
    /// When it runs next.
    pub due: Timestamp,
    /// The last smoothed interval.
    pub interval: Option<Duration>,
    /// Failures in a row.
    pub failures: u32,
    /// When the first of them was.
    pub first_failure: Option<Timestamp>,
    /// What the last of them was about.
    pub last_cause: Option<Cause>,
    /// Plugin faults in a row.
    pub plugin_faults: u32,
    /// Whether its breaker is open (half-open counts as open), since when, and how long the last trip was.
    pub breaker_open: bool,
    /// When the breaker came into its state.
    pub breaker_since: Option<Timestamp>,
    /// How long the last trip was.
    pub open_for: Option<Duration>,
    /// Whether it is a dead letter.
    pub dead: Option<DeadRecord>,
    /// Whether a neighbour's success has revived it since its own last one.
    pub revived: bool,
    /// Its last success.
    pub last_success: Option<Timestamp>,
    /// When it was last polled.
    pub last_polled: Option<Timestamp>,
    /// Its last transition.
    pub last_change: Option<Timestamp>,
    /// Whether a dependency is critical.
    pub critical: bool,
    /// How often it was seen to change: changes and seconds while quiet, changes and seconds while in trouble.
    pub rates: [f32; 4],
}

/// A dead letter as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadRecord {
    /// `permanent_failure` or `max_retry_attempts`.
    pub reason: String,
    /// When it became one.
    pub since: Timestamp,
    /// The last failed look.
    pub last_attempt: Timestamp,
    /// How many times it was sent here.
    pub retries: u32,
}

/// What changed for one target, to be committed at once and in one transaction.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Whose.
    pub target: TargetId,
    /// Its kind.
    pub kind: Kind,
    /// When.
    pub at: Timestamp,
    /// What the poll changed.
    pub changes: Changes,
    /// Its schedule.
    pub schedule: Option<Schedule>,
    /// What is to be told once this is on disk.
    pub events: Vec<Event>,
}

/// What merely continued for one target.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Whose.
    pub target: TargetId,
    /// Its kind.
    pub kind: Kind,
    /// Its schedule.
    pub schedule: Schedule,
    /// When its last report came.
    pub last_report: Option<Timestamp>,
    /// What continues of each dependency, by its slot.
    pub live: Vec<(u32, Live)>,
    /// Dependencies of which only descriptions changed, and latency windows that are over.
    pub changes: Changes,
}

impl Progress {
    /// What merely continued for a target, from what is known.
    pub fn of(target: TargetId, kind: Kind, schedule: Schedule, known: &Known) -> Self {
        let present = known.dependencies.iter().filter(|dependency| dependency.facts.missing_since.is_none());
        let live = present.map(|dependency| (dependency.facts.slot, dependency.live)).collect();
        Self { target, kind, schedule, last_report: known.last_report, live, changes: Changes::default() }
    }
}

/// An event that is on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// Its place in the sequence.
    pub sequence: i64,
    /// What happened.
    pub event: Event,
}

/// A commit that is on disk.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Whose; nothing for an event that is about no target.
    pub target: Option<TargetId>,
    /// Its events, with their places in the sequence.
    pub events: Vec<StoredEvent>,
}

/// Who hears of what is on disk; called on the writer's thread, in the order of the commits.
pub type Acknowledge = Box<dyn Fn(Committed) + Send>;
