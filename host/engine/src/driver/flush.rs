//! Writing the values that change with every poll, for all targets together.
//!
//! Copying the state of thousands of targets would delay polls if it took one turn of the loop. So a flush is gathered
//! over several turns, and written as one row, or as several if there are very many.

use super::{Driver, FLUSH};
use crate::schedule_time::to_wall;
use model::TargetId;
use std::sync::atomic::Ordering;
use store::{Changes, Progress, StoredSchedule};

/// Targets gathered in one turn, which takes about a millisecond.
const SLICE: usize = 100;
/// Targets in one row. It bounds the memory that a flush needs.
const ROW: usize = 2_000;

impl Driver {
    /// Starts a flush of due times and volatile fields if it is time, unless the database has not taken the last one:
    /// then they are kept. Gathers a part of a flush that has started.
    pub(super) fn flush(&mut self) {
        let now = self.wiring.clock.now();
        if now >= self.next_flush {
            self.next_flush = now.after(FLUSH);
            let is_taken = self.wiring.store.writer().gauges().flushes.load(Ordering::Relaxed) == 0;
            if is_taken && !self.gathering.is_active() {
                self.begin_flush();
            }
        }
        self.gather_slice(SLICE);
    }

    /// Starts a flush of every target that changed since the last one.
    pub(super) fn begin_flush(&mut self) {
        self.gathering.rest = self.dirty.keys().cloned().collect();
    }

    /// Writes due times and volatile fields of every target that changed since the last flush.
    pub(super) fn flush_all(&mut self) {
        self.begin_flush();
        self.gather_slice(usize::MAX);
    }

    /// Gathers at most this many targets. Writes a row when it is full, or when all are gathered.
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
            if self.gathering.gathered.len() >= ROW {
                self.write_gathered();
            }
        }
        if !self.gathering.is_active() {
            self.write_gathered();
        }
    }

    fn write_gathered(&mut self) {
        let gathered = std::mem::take(&mut self.gathering.gathered);
        if !gathered.is_empty() {
            let clock = self.wiring.clock;
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
