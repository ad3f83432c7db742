//! Types that the parts of the writer share: bounds, and the changes of a transaction.

use crate::tables::history::Place;
use crate::wire::StoredPoint;
use model::{TargetId, Timestamp};
use std::collections::HashMap;

/// The owner of rows of history: a target's id or number; `None` for rows about no target.
pub(super) type Owner = Option<String>;

/// Milliseconds of a day.
const DAY: u64 = 24 * 3600 * 1000;

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
    /// New rows of the journal since its last fold.
    pub rows: u64,
    /// Whether the journal was folded.
    pub folded: bool,
}
