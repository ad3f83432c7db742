//! Writing what changes with every poll, for all targets together.

use super::{Driver, FLUSH};
use crate::schedule_time::to_wall;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use store::{Changes, Progress, StoredSchedule};

/// Latency points kept for one target while the database takes nothing; older ones are dropped.
const POINTS: usize = 100_000;

impl Driver {
    /// Writes due times and volatile fields, unless the database has not taken the last flush: then they are kept.
    pub(super) fn flush(&mut self) {
        self.next_flush = self.wiring.clock.now().after(FLUSH);
        if self.wiring.store.writer().gauges().flushes.load(Ordering::Relaxed) == 0 {
            self.flush_all();
        }
    }

    /// Writes due times and volatile fields of every target that changed since the last flush, in one row.
    pub(super) fn flush_all(&mut self) {
        let (clock, dirty) = (&self.wiring.clock, std::mem::take(&mut self.dirty));
        let (now, at) = (clock.now(), clock.wall());
        let progress: Vec<Progress> = (dirty.into_iter())
            .filter_map(|(id, changes)| {
                let target = &self.targets.get(&id)?.target;
                let schedule = to_wall(self.scheduler.saved(&id, now)?, clock);
                let schedule = StoredSchedule { identity: target.identity, schedule };
                let progress = Progress::of(id, target.config.kind.clone(), schedule, &target.known());
                Some(Progress { changes, ..progress })
            })
            .collect();
        if !progress.is_empty() {
            self.wiring.store.writer().progress(progress, at, clock.is_plausible());
        }
    }
}

/// Adds the changes of one more poll to those that wait for the flush.
pub(super) fn merge(held: &mut Changes, more: Changes) {
    let names: HashSet<&str> = more.details.iter().map(|record| record.reported.name.as_str()).collect();
    held.details.retain(|record| !names.contains(record.reported.name.as_str()));
    drop(names);
    held.details.extend(more.details);
    held.points.extend(more.points);
    let surplus = held.points.len().saturating_sub(POINTS);
    held.points.drain(..surplus);
}

/// Removes what a commit supersedes: an older description must not be written over it.
pub(super) fn forget_details(held: &mut Changes, commit: &Changes) {
    let changed = commit.urgent.iter().chain(&commit.details).map(|record| record.reported.name.as_str());
    let names: HashSet<&str> = changed.chain(commit.forgotten.iter().map(String::as_str)).collect();
    if !names.is_empty() {
        held.details.retain(|record| !names.contains(record.reported.name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Dependency, Outcome, Report, Status, Timestamp};
    use store::KnownState;

    #[test]
    fn a_commit_supersedes_older_details_of_its_dependencies() {
        let mut known = KnownState::default();
        let mut merge_report = |status, description: &str| {
            let dependency = Dependency { description: Some(description.to_owned()), ..Dependency::new("db", status) };
            let report = Report { dependencies: vec![dependency], ..Report::default() };
            known.merge(Outcome::Success(report), Timestamp::from_millis(0), &store::Aliases::new())
        };
        merge_report(Status::Ok, "one");
        let mut held = Changes::default();
        merge(&mut held, merge_report(Status::Ok, "two"));
        merge(&mut held, merge_report(Status::Ok, "three"));
        assert_eq!(held.details.len(), 1);
        assert_eq!(held.details[0].reported.description.as_deref(), Some("three"));
        forget_details(&mut held, &merge_report(Status::Critical, "three"));
        assert!(held.details.is_empty(), "the commit is newer");
    }
}
