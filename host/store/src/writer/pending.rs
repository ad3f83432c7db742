//! Types that the parts of the writer share: bounds, and the changes of a transaction.

use super::newest::Newest;
use crate::tables::history::Place;
use crate::wire::StoredPoint;
use model::{TargetId, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

/// The owner of rows of history: a target's id or number; `None` for rows about no target.
pub(super) type Owner = Option<String>;

/// Milliseconds of a day.
const DAY: u64 = 24 * 3600 * 1000;

/// The journal is folded this time after each full hour, when the points of that hour are complete, so that the
/// latency blocks of an hour are written once.
const AFTER_THE_HOUR: Duration = Duration::from_secs(600);

/// The bounds of history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum age in days.
    pub days: u32,
    /// The maximum number of rows per table.
    pub rows: u64,
    /// The maximum size of all tables in bytes.
    pub bytes: u64,
}

impl Limits {
    /// Returns the time before which history is deleted.
    pub(super) fn oldest(self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis() - (u64::from(self.days) * DAY) as i64)
    }

    /// Returns the maximum number of rows per table.
    pub(super) fn most_rows(self) -> i64 {
        i64::try_from(self.rows).unwrap_or(i64::MAX)
    }
}

/// Returns the first hour since the epoch whose points are not complete at a time.
pub(super) fn incomplete_hour(at: Timestamp) -> i64 {
    (at.as_millis() - AFTER_THE_HOUR.as_millis() as i64).div_euclid(3_600_000)
}

/// The writer's state before a group.
pub(super) struct Known<'a> {
    /// The numbers of targets.
    pub numbers: &'a HashMap<TargetId, i64>,
    /// The newest states of targets in the journal.
    pub newest: &'a HashMap<i64, Newest>,
    /// The time until which the last host ran.
    pub last_run: Option<Timestamp>,
}

/// A fold of the journal.
pub(super) struct Fold {
    /// The time of the row that has the state of all targets.
    pub at: Timestamp,
    /// Whether the host ends with it.
    pub ended: bool,
    /// The hour since the epoch from which on latency points stay in the journal, because more follow.
    pub incomplete: i64,
}

/// The changes of a transaction to the writer's state, applied once it is committed.
#[derive(Default)]
pub(super) struct PendingWrite {
    pub numbers: HashMap<TargetId, i64>,
    pub forgotten: Vec<TargetId>,
    pub version: u64,
    /// Latency points of this and earlier transactions that are not in the journal yet.
    pub unjournaled: Vec<(i64, StoredPoint)>,
    /// New rows of history: table, owner, bytes.
    pub history: Vec<(Place, Owner, usize)>,
    /// The place of the last row of the journal.
    pub place: u32,
    /// The number of the next target. A number is not used again while the journal may have rows with it.
    pub next_number: i64,
    /// The newest states of targets in the journal; `None` for targets that have none.
    pub newest: HashMap<i64, Option<Newest>>,
    /// Whether the journal was folded.
    pub folded: bool,
}
