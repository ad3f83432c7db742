//! What the parts of the writer share: bounds, and the changes of a transaction.

use crate::tables::history::Place;
use crate::wire::{PointWire, Snapshot};
use model::{TargetId, Timestamp};
use std::collections::{BTreeMap, HashMap};

/// The owner of rows of history: a target's id or number; `None` for rows about no target.
pub(super) type Owner = Option<String>;

/// Milliseconds of a day.
const DAY: u64 = 24 * 3600 * 1000;

/// The bounds of history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Its age, in days.
    pub days: u32,
    /// Rows of each table.
    pub rows: u64,
    /// Bytes of all tables.
    pub bytes: u64,
}

impl Limits {
    /// History before this time is too old.
    pub(super) fn oldest(self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis() - (u64::from(self.days) * DAY) as i64)
    }

    /// The most rows of a table.
    pub(super) fn most_rows(self) -> i64 {
        i64::try_from(self.rows).unwrap_or(i64::MAX)
    }
}

/// What a transaction changes in the writer's state, applied once it is committed.
#[derive(Default)]
pub(super) struct PendingWrite {
    pub numbers: HashMap<TargetId, i64>,
    pub forgotten: Vec<TargetId>,
    pub version: u64,
    pub snapshots: BTreeMap<i64, Snapshot>,
    pub points: Vec<(i64, u32, PointWire)>,
    /// Points of this transaction's commits, and of earlier ones, until a row of the journal takes them.
    pub unjournaled: Vec<(i64, u32, PointWire)>,
    /// New rows of history: table, owner, bytes.
    pub history: Vec<(Place, Owner, usize)>,
    pub rows: u64,
    pub folded: bool,
}
