//! The inputs and outputs of the writer.

use crate::changes::Changes;
use crate::known::KnownState;
use model::{AlertChange, DeploymentReport, Event, Kind, Schedule, SequencedEvent, TargetId, Timestamp, Volatile};

/// A target's schedule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSchedule {
    /// A hash of what identifies the target: URL, TLS, kind, secrets. A schedule with another identity is not restored.
    pub identity: i64,
    /// The schedule by the wall clock.
    pub schedule: Schedule<Timestamp>,
}

/// The changes of one target, which are committed at once and in one transaction.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The id of the target.
    pub target: TargetId,
    /// The kind of the target.
    pub kind: Kind,
    /// The time of the poll.
    pub at: Timestamp,
    /// The changes of the poll.
    pub changes: Changes,
    /// The schedule of the target; `None` if it is unchanged.
    pub schedule: Option<StoredSchedule>,
    /// The events to announce once this is on disk.
    pub events: Vec<Event>,
    /// The alerts that changed with it, of this target and of others.
    pub alerts: Vec<AlertChange>,
    /// The state of the target's deployment after the poll, for the operator of the fleet; `None` if it is unchanged.
    pub report: Option<DeploymentReport>,
}

/// The progress of one target: fields that change with every poll.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The id of the target.
    pub target: TargetId,
    /// The kind of the target.
    pub kind: Kind,
    /// The schedule of the target.
    pub schedule: StoredSchedule,
    /// The time of the last report.
    pub last_report: Option<Timestamp>,
    /// The volatile fields of each dependency, by slot.
    pub volatile: Vec<(u32, Volatile)>,
    /// Dependencies of which only descriptions changed, and completed latency windows.
    pub changes: Changes,
}

impl Progress {
    /// Creates the progress of a target from its known state.
    pub fn of(target: TargetId, kind: Kind, schedule: StoredSchedule, known: &KnownState) -> Self {
        let present = known.dependencies.iter().filter(|dependency| dependency.record.missing_since.is_none());
        let volatile = present.map(|dependency| (dependency.record.slot, dependency.volatile)).collect();
        Self { target, kind, schedule, last_report: known.last_report, volatile, changes: Changes::default() }
    }
}

/// Runs on the writer's thread once a commit is on disk, with the commit's events in sequence.
pub type Publish = Box<dyn FnOnce(Vec<SequencedEvent>) + Send>;

/// Receives the events of every commit without a [`Publish`], on the writer's thread, in the order of the
/// commits.
pub type Announce = Box<dyn Fn(Vec<SequencedEvent>) + Send>;
