//! The newest state of a target in the journal, as far as the next one need not repeat it.

use crate::digits::code;
use crate::wire::{LiveWire, ScheduleWire, StoredPoint, encode};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The newest state of a target in the journal.
#[derive(Debug)]
pub(super) struct Newest {
    /// The version of the state that has the rest of the schedule.
    pub version: u64,
    /// A hash of the fields of the schedule that not every poll changes.
    rest: u64,
    /// The windows with one measurement in the order of the slots: slot, window and code of the latency.
    singles: Box<[(u32, u32, u16)]>,
}

impl Newest {
    pub(super) fn of(version: u64, rest: &ScheduleWire, lives: &[LiveWire]) -> rusqlite::Result<Self> {
        let mut hasher = DefaultHasher::new();
        encode(rest)?.hash(&mut hasher);
        let single = |live: &LiveWire| live.single().map(|(window, us)| (live.slot, window, code(us)));
        let mut singles: Box<[_]> = lives.iter().filter_map(single).collect();
        singles.sort_unstable();
        Ok(Self { version, rest: hasher.finish(), singles })
    }

    /// Whether both have the same rest of the schedule.
    pub(super) fn has_rest_of(&self, other: &Self) -> bool {
        self.rest == other.rest
    }

    /// Whether the state has the point as the latency of a window with one measurement.
    pub(super) fn has_point(&self, StoredPoint { slot, point, .. }: &StoredPoint) -> bool {
        point.count == 1 && self.singles.binary_search(&(*slot, point.window, code(point.mean_us))).is_ok()
    }
}
