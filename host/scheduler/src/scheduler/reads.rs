//! Read access to the scheduler's state.

use super::Scheduler;
use crate::{Settings, TargetStatus};
use model::{Counters, Explanation, Kind, Moment, Place, Schedule, TargetId};
use std::collections::BTreeMap;

impl Scheduler {
    /// Returns the active settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of targets that wait for their due time, a host or a cap.
    pub fn depth(&self) -> usize {
        self.queue.len() + self.ready.len() + self.doubtful.len() + self.hosts.waiting()
    }

    /// Returns true if a target that is due waits for the end of another poll.
    pub fn has_waiting(&self) -> bool {
        self.depth() > self.queue.len()
    }

    /// Returns the target that is due next, and its due time.
    pub fn next_due(&self) -> Option<(&TargetId, Moment)> {
        let waiting = self.ready.first().into_iter().chain(self.doubtful.first()).min();
        let waiting = waiting.map(|ready_entry| (&ready_entry.id, ready_entry.due));
        waiting.or_else(|| self.queue.peek().map(|entry| (self.queue.id(entry.slot), entry.due)))
    }

    /// Returns the number of polls in flight by kind.
    pub fn in_flight(&self) -> &BTreeMap<Kind, usize> {
        &self.in_flight_by_kind
    }

    /// Returns the number of polls in flight.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight
    }

    /// Returns the status of one target.
    pub fn status(&self, target: &TargetId) -> Option<TargetStatus> {
        let slot = self.queue.slot(target)?;
        Some(self.target(slot).status(&self.settings))
    }

    /// Returns the schedule of one target as it is to be stored.
    pub fn saved(&self, target: &TargetId, now: Moment) -> Option<Schedule<Moment>> {
        let slot = self.queue.slot(target)?;
        Some(self.target(slot).saved(&self.settings, now))
    }

    /// Explains when a target is polled next.
    pub fn explain(&self, target: &TargetId, now: Moment) -> Option<Explanation<Moment>> {
        let slot = self.queue.slot(target)?;
        let target = self.target(slot);
        let host = self.hosts.running(&target.spec.host);
        Some(crate::explain::explain(target, &self.settings, (host, self.young.len()), now))
    }

    /// Checks that every target is in exactly the place that it records. Visits all targets. Fails with a description
    /// of the first violation.
    pub fn audit(&self) -> Result<(), String> {
        let mut found = [0; 4];
        for target in self.targets.iter().flatten() {
            let id = &target.spec.id;
            let slot = self.queue.slot(id).ok_or_else(|| format!("{id} has no slot"))?;
            let queued = self.queue.get(slot);
            match target.place {
                Place::Queued => found[0] += 1,
                Place::Ready => found[1] += 1,
                Place::WaitingForHost => found[2] += 1,
                Place::InFlight | Place::Disabled | Place::NoPlugin | Place::Quarantined => {}
            }
            found[3] += usize::from(target.in_flight.is_some());
            if (target.place == Place::Queued) != queued.is_some() {
                return Err(format!(
                    "{id} is recorded as {}, but its queue entry is {queued:?}",
                    target.place.as_str()
                ));
            }
            if queued.is_some_and(|entry| entry.due != target.schedule.due) {
                return Err(format!("{id} is queued for a time other than its due time"));
            }
            if (target.place == Place::InFlight) != target.in_flight.is_some() {
                return Err(format!(
                    "{id} is recorded as {}, which contradicts its poll in flight",
                    target.place.as_str()
                ));
            }
            if (target.place == Place::Ready) != target.ready_entry.is_some() {
                return Err(format!(
                    "{id} is recorded as {}, which contradicts its ready entry",
                    target.place.as_str()
                ));
            }
        }
        let orphans = self.orphans.len();
        let ready = self.ready.len() + self.doubtful.len();
        let expected = [self.queue.len(), ready, self.hosts.waiting(), self.in_flight - orphans];
        let by_kind: usize = self.in_flight_by_kind.values().sum();
        let doubtful =
            self.targets.iter().flatten().filter_map(|target| target.in_flight.as_ref()).chain(self.orphans.values());
        if doubtful.filter(|in_flight| in_flight.doubtful).count() != self.doubtful_in_flight {
            return Err(format!(
                "{} slots of doubtful targets are recorded as taken, which contradicts the polls in flight",
                self.doubtful_in_flight
            ));
        }
        if found != expected || by_kind != self.in_flight {
            return Err(format!(
                "queued, ready, waiting and in flight are {expected:?} and {by_kind}, but the targets record {found:?}"
            ));
        }
        Ok(())
    }
}
