//! Writing the values that change with every poll, for all targets together.
//!
//! Copying the state of thousands of targets would delay polls if it took one turn of the loop. So a flush is gathered
//! over several turns, and then written as one row.

use super::{Driver, FLUSH};
use crate::schedule_time::to_wall;
use model::TargetId;
use std::sync::atomic::Ordering;
use store::{Changes, Progress, StoredSchedule};

/// Targets gathered in one turn, which takes about a millisecond.
const SLICE: usize = 100;

impl Driver {
    /// Starts a flush of due times and volatile fields if it is time, unless the database has not taken the last one:
    /// then they are kept. Gathers a part of a flush that has started.
    pub(super) fn flush(&mut self) {
        let now = self.wiring.clock.now();
        if now >= self.next_flush {
            self.next_flush = now.after(FLUSH);
            let is_taken = self.wiring.store.writer().gauges().flushes.load(Ordering::Relaxed) == 0;
            if is_taken && !self.gathering.is_active() {
                self.gathering.rest = self.dirty.keys().cloned().collect();
            }
        }
        self.gather_slice(SLICE);
    }

    /// Writes due times and volatile fields of every target that changed since the last flush, in one row.
    pub(super) fn flush_all(&mut self) {
        self.gathering.rest = self.dirty.keys().cloned().collect();
        self.gather_slice(usize::MAX);
    }

    /// Gathers at most this many targets. Writes the row when all are gathered.
    fn gather_slice(&mut self, most: usize) {
        let clock = self.wiring.clock;
        let now = clock.now();
        let rest = self.gathering.rest.len().saturating_sub(most);
        for id in self.gathering.rest.split_off(rest) {
            let Some(mut changes) = self.dirty.remove(&id) else { continue };
            self.gathering.take_back(&id, &mut changes);
            let tracked = self.targets.get(&id);
            let Some((tracked, saved)) = tracked.zip(self.scheduler.saved(&id, now)) else { continue };
            let target = &tracked.target;
            let schedule = StoredSchedule { identity: target.identity, schedule: to_wall(saved, &clock) };
            let progress = Progress::of(id.clone(), target.config.kind.clone(), schedule, &target.known());
            self.gathering.gathered.insert(id, Progress { changes, ..progress });
        }
        if !self.gathering.is_active() && !self.gathering.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathering.gathered);
            self.wiring.store.writer().progress(gathered.into_values().collect(), clock.wall(), clock.is_plausible());
        }
    }

    /// The changes of a target that is about to be committed, as they wait for the next flush.
    pub(super) fn waiting_changes(&mut self, id: &TargetId) -> &mut Changes {
        let dirty = self.dirty.entry(id.clone()).or_default();
        self.gathering.take_back(id, dirty);
        dirty
    }
}
