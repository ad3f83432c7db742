//! What others may know of the scheduler.

use super::Scheduler;
use crate::{Settings, TargetStatus};
use model::{Counters, Explanation, Kind, Moment, Place, Schedule, TargetId};
use std::collections::BTreeMap;

impl Scheduler {
    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How often things happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Targets that wait for their due time, a host or a cap.
    pub fn depth(&self) -> usize {
        self.queue.len() + self.ready.len() + self.doubtful.len() + self.hosts.waiting()
    }

    /// Who is due next, and when.
    pub fn next_due(&self) -> Option<(&TargetId, Moment)> {
        let waiting = self.ready.first().into_iter().chain(self.doubtful.first()).min();
        let waiting = waiting.map(|turn| (&turn.id, turn.due));
        waiting.or_else(|| self.queue.peek().map(|entry| (self.queue.id(entry.slot), entry.due)))
    }

    /// Polls in flight, by kind.
    pub fn in_flight(&self) -> &BTreeMap<Kind, usize> {
        &self.in_flight_by_kind
    }

    /// The number of polls in flight.
    pub fn in_flight_count(&self) -> usize {
        self.in_flight
    }

    /// One target's schedule.
    pub fn status(&self, target: &TargetId) -> Option<TargetStatus> {
        let slot = self.queue.slot(target)?;
        Some(self.target(slot).status(&self.settings))
    }

    /// What of one target's schedule is to be stored.
    pub fn saved(&self, target: &TargetId, now: Moment) -> Option<Schedule<Moment>> {
        let slot = self.queue.slot(target)?;
        Some(self.target(slot).saved(&self.settings, now))
    }

    /// Why a target runs next when it does.
    pub fn explain(&self, target: &TargetId, now: Moment) -> Option<Explanation<Moment>> {
        let slot = self.queue.slot(target)?;
        let target = self.target(slot);
        let host = self.hosts.running(&target.spec.host);
        Some(crate::explain::explain(target, &self.settings, (host, self.young.len()), now))
    }

    /// Whether every target is in the one place that it says it is in; if not, what is wrong. Looks at all of them.
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
            found[3] += usize::from(target.flight.is_some());
            if (target.place == Place::Queued) != queued.is_some() {
                return Err(format!("{id} says it is {}, and the queue says {queued:?}", target.place.as_str()));
            }
            if queued.is_some_and(|entry| entry.due != target.schedule.due) {
                return Err(format!("{id} is queued for another time than it says"));
            }
            if (target.place == Place::InFlight) != target.flight.is_some() {
                return Err(format!("{id} says it is {}, and its poll says otherwise", target.place.as_str()));
            }
            if (target.place == Place::Ready) != target.turn.is_some() {
                return Err(format!("{id} says it is {}, and its turn says otherwise", target.place.as_str()));
            }
        }
        let orphans = self.orphans.len();
        let ready = self.ready.len() + self.doubtful.len();
        let expected = [self.queue.len(), ready, self.hosts.waiting(), self.in_flight - orphans];
        let by_kind: usize = self.in_flight_by_kind.values().sum();
        let doubtful =
            self.targets.iter().flatten().filter_map(|target| target.flight.as_ref()).chain(self.orphans.values());
        if doubtful.filter(|flight| flight.doubtful).count() != self.doubtful_in_flight {
            return Err(format!("{} slots of doubtful targets are said to be taken", self.doubtful_in_flight));
        }
        if found != expected || by_kind != self.in_flight {
            return Err(format!(
                "queued, ready, waiting and in flight are {expected:?} and {by_kind}, and the targets say {found:?}"
            ));
        }
        Ok(())
    }
}
