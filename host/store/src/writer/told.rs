//! The newest row of the journal for a target, as far as the next row need not repeat it.

use crate::digits::code;
use crate::wire::{LiveWire, ScheduleWire, StoredPoint, WindowWire, encode};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The content of the newest row for a target.
#[derive(Debug)]
pub(super) struct Told {
    /// A hash of the other fields of the schedule, without those that each poll changes.
    rest: u64,
    /// The windows with one measurement in the order of the slots: slot, window and code of the latency.
    singles: Box<[(u32, u32, u16)]>,
}

impl Told {
    pub(super) fn of(rest: &ScheduleWire, lives: &[LiveWire]) -> rusqlite::Result<Self> {
        let mut hasher = DefaultHasher::new();
        encode(rest)?.hash(&mut hasher);
        let single = |live: &LiveWire| match (live.window, live.latency_us) {
            (WindowWire::One(window), Some(us)) => Some((live.slot, window, code(us))),
            _ => None,
        };
        let mut singles: Box<[_]> = lives.iter().filter_map(single).collect();
        singles.sort_unstable();
        Ok(Self { rest: hasher.finish(), singles })
    }

    /// Whether both have the same rest of the schedule.
    pub(super) fn has_rest_of(&self, other: &Self) -> bool {
        self.rest == other.rest
    }

    /// Whether the journal has the point as the latency of a window with one measurement.
    pub(super) fn has_point(&self, StoredPoint { slot, point, .. }: &StoredPoint) -> bool {
        point.count == 1 && self.singles.binary_search(&(*slot, point.window, code(point.mean_us))).is_ok()
    }
}
