//! The flush that is being gathered, and the changes that wait for a flush.

use model::TargetId;
use std::collections::{BTreeMap, HashSet};
use store::{Changes, Progress};

/// Most latency points kept for one target while the database accepts nothing. Older ones are dropped.
const POINTS: usize = 100_000;
/// The flush that is being gathered: what it will write.
#[derive(Default)]
pub(super) struct Gathering {
    /// Targets that are not gathered yet.
    pub(super) rest: Vec<TargetId>,
    pub(super) gathered: BTreeMap<TargetId, Progress>,
}

impl Gathering {
    /// Whether a flush is being gathered, so that the loop must not wait.
    pub(super) fn is_active(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Forgets a removed target.
    pub(super) fn forget(&mut self, id: &TargetId) {
        self.gathered.remove(id);
    }

    pub(super) fn contains(&self, id: &TargetId) -> bool {
        self.gathered.contains_key(id)
    }

    /// Takes a target back into `dirty` if it is already gathered. Newer state is about to be written, which the older
    /// state of this flush must not overwrite.
    pub(super) fn take_back(&mut self, id: &TargetId, dirty: &mut Changes) {
        if let Some(progress) = self.gathered.remove(id) {
            let newer = std::mem::replace(dirty, progress.changes);
            merge(dirty, newer);
        }
    }
}

/// Adds the changes of one more poll to those that wait for the flush.
pub(super) fn merge(held: &mut Changes, more: Changes) {
    let names: HashSet<&str> = more.details.iter().map(|record| record.reported.name.as_str()).collect();
    held.details.retain(|record| !names.contains(record.reported.name.as_str()));
    drop(names);
    held.details.extend(more.details);
    held.values = more.values.or(held.values.take());
    held.points.extend(more.points);
    let surplus = held.points.len().saturating_sub(POINTS);
    held.points.drain(..surplus);
}

/// Removes the details and values that a commit supersedes. Older ones must not overwrite it.
pub(super) fn forget_details(held: &mut Changes, commit: &Changes) {
    held.values.take_if(|_| commit.values.is_some());
    let changed = commit.urgent.iter().chain(&commit.details).map(|record| record.reported.name.as_str());
    let names: HashSet<&str> = changed.chain(commit.forgotten.iter().map(String::as_str)).collect();
    if !names.is_empty() {
        held.details.retain(|record| !names.contains(record.reported.name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Dependency, Kind, LatencyPoint, LatencyWindow, Outcome, Report, Schedule, Sketch, Status, Timestamp};
    use store::{KnownState, StoredSchedule};

    #[test]
    fn a_commit_takes_its_target_out_of_the_flush_that_is_being_gathered() {
        let (id, kind) = (TargetId::new("t").unwrap(), Kind::new("http").unwrap());
        let changes = |slot| {
            let point = LatencyPoint { start: Timestamp::from_millis(0), min: 1.0, max: 1.0, sum: 1.0, count: 1 };
            let window = LatencyWindow { point, sketch: Sketch::default() };
            Changes { points: vec![(slot, window)], ..Changes::default() }
        };
        let schedule = StoredSchedule { identity: 1, schedule: Schedule::new(Timestamp::from_millis(9)) };
        let progress = Progress::of(id.clone(), kind, schedule, &KnownState::default());
        let progress = Progress { changes: changes(1), ..progress };
        let mut gathering = Gathering { rest: Vec::new(), gathered: BTreeMap::from([(id.clone(), progress)]) };
        let mut dirty = changes(2);
        gathering.take_back(&id, &mut dirty);
        assert!(!gathering.contains(&id), "its older schedule would be written after the commit");
        assert_eq!(dirty.points.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [1, 2], "in the order of the polls");
        gathering.take_back(&id, &mut dirty);
        assert_eq!(dirty.points.len(), 2);
    }

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
