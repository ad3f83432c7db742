//! The writer's inputs and outputs.

use crate::changes::Changes;
use crate::known::KnownState;
use model::{Event, Kind, Schedule, SequencedEvent, TargetId, Timestamp, Volatile};

/// A target's schedule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSchedule {
    /// A hash of what identifies the target: URL, TLS, kind, secrets. A schedule with another identity is not restored.
    pub identity: i64,
    /// The schedule by the wall clock.
    pub schedule: Schedule<Timestamp>,
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
    pub schedule: Option<StoredSchedule>,
    /// The events to announce once this is on disk.
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
    pub schedule: StoredSchedule,
    /// When its last report came.
    pub last_report: Option<Timestamp>,
    /// What continues of each dependency, by its slot.
    pub volatile: Vec<(u32, Volatile)>,
    /// Dependencies of which only descriptions changed, and latency windows that are over.
    pub changes: Changes,
}

impl Progress {
    /// What merely continued for a target, from what is known.
    pub fn of(target: TargetId, kind: Kind, schedule: StoredSchedule, known: &KnownState) -> Self {
        let present = known.dependencies.iter().filter(|dependency| dependency.record.missing_since.is_none());
        let volatile = present.map(|dependency| (dependency.record.slot, dependency.volatile)).collect();
        Self { target, kind, schedule, last_report: known.last_report, volatile, changes: Changes::default() }
    }
}

/// Runs on the writer's thread once a commit is on disk, with the commit's events in sequence.
pub type Publish = Box<dyn FnOnce(Vec<SequencedEvent>) + Send>;

/// Receives the events of every commit without a [`Publish`] of its own, on the writer's thread, in the order of the commits.
pub type Announce = Box<dyn Fn(Vec<SequencedEvent>) + Send>;
