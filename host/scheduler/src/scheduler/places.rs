//! Where targets are, and who may start.

use super::{Action, Flight, MAX_UNWRITTEN, Scheduler};
use crate::cadence::{Load, interval, jittered};
use crate::target::Target;
use crate::{Entry, Place};
use model::{Moment, TargetId};
use rand::Rng;

impl Scheduler {
    /// Puts a target that is nowhere where it belongs.
    pub(super) fn settle(&mut self, id: &TargetId) {
        let Some(target) = self.targets.get(id) else { return };
        let place = if self.flights.contains_key(id) {
            Place::InFlight
        } else if !target.spec.enabled {
            Place::Disabled
        } else if self.unserved.contains(&target.spec.kind) {
            Place::NoPlugin
        } else {
            Place::Queued
        };
        if place == Place::Queued {
            let entry = self.entry(target, target.schedule.due);
            self.queue.push(entry);
        }
        self.with(id, |target| target.place = place);
    }

    pub(super) fn entry(&self, target: &Target, now: Moment) -> Entry {
        Entry {
            target: target.spec.id.clone(),
            kind: target.spec.kind.clone(),
            due: target.schedule.due,
            score: target.score(&self.settings, now),
            last_polled: last_polled(target),
        }
    }

    /// Takes a target from wherever it waits; a poll in flight goes on.
    pub(super) fn take_out(&mut self, id: &TargetId) {
        let Some(target) = self.targets.get_mut(id) else { return };
        let place = target.place;
        match place {
            Place::Queued => drop(self.queue.remove(id)),
            Place::Ready => drop(self.ready.remove(id)),
            Place::WaitingForHost => self.hosts.give_up(&target.spec.host, last_polled(target), id),
            Place::InFlight | Place::Disabled | Place::NoPlugin => {}
        }
        if place != Place::InFlight {
            target.place = Place::Disabled;
        }
        if place == Place::Ready {
            // It may have been given its host's free slot; that goes to the next.
            let host = target.spec.host.clone();
            self.hand_on(&host);
        }
    }

    /// A host has a slot that nobody took: whoever waits for it comes next.
    pub(super) fn hand_on(&mut self, host: &str) {
        if let Some(next) = self.hosts.next(host, self.settings.max_per_host) {
            self.make_ready(&next);
        }
    }

    pub(super) fn make_ready(&mut self, id: &TargetId) {
        let Some(target) = self.targets.get(id) else { return };
        let entry = self.entry(target, target.schedule.due);
        self.enter_ready(entry);
    }

    pub(super) fn enter_ready(&mut self, entry: Entry) {
        let step = self.step;
        self.with(&entry.target, |target| (target.place, target.ready_since) = (Place::Ready, step));
        self.entered += 1;
        self.ready.push(entry);
    }

    pub(super) fn void_flight(&mut self, id: &TargetId) {
        if let Some(flight) = self.flights.get_mut(id) {
            flight.void = true;
        }
    }

    /// Computes a healthy target's next poll again, counted from its last one; a failing one keeps its time.
    pub(super) fn recompute(&mut self, id: &TargetId, now: Moment) {
        let Some(target) = self.targets.get_mut(id) else { return };
        if target.schedule.failures > 0 || target.schedule.plugin_faults > 0 {
            return;
        }
        let Some(last) = target.schedule.last_polled else { return };
        let cadence = target.cadence(&self.settings);
        let bounds = target.bounds(&self.settings);
        let scores = target.scores(&self.settings, now);
        let next = interval(cadence, &bounds, scores, Load::default(), target.schedule.interval);
        target.schedule.due = last.after(jittered(cadence, &bounds, next, self.rng.random::<f64>())).max(now);
    }

    pub(super) fn dispatch(&mut self, now: Moment) {
        for entry in self.queue.pop_due(now, usize::MAX) {
            self.enter_ready(entry);
        }
        while !self.stopping && self.flights.len() < self.settings.max_in_flight {
            let Some(entry) = self.ready.pop() else { break };
            if !self.start_one(entry, now) {
                break;
            }
        }
        self.held = self.ready.len();
        self.counters.held_by_caps += self.entered.saturating_sub(self.left);
    }

    /// Starts a poll, or says where it waits instead. False when the token bucket is empty.
    pub(super) fn start_one(&mut self, entry: Entry, now: Moment) -> bool {
        let id = entry.target.clone();
        let Some(target) = self.targets.get_mut(&id) else { return true };
        let fresh = u64::from(target.ready_since == self.step);
        if target.unwritten >= MAX_UNWRITTEN {
            self.counters.skipped_unwritten += 1;
            let delay = target.schedule.interval.unwrap_or_else(|| target.bounds(&self.settings).base);
            target.schedule.due = now.after(delay);
            let host = target.spec.host.clone();
            self.left += fresh;
            self.settle(&id);
            self.hand_on(&host);
            return true;
        }
        if !self.hosts.has_room(&target.spec.host, self.settings.max_per_host) {
            self.counters.held_by_hosts += 1;
            self.left += fresh;
            target.place = Place::WaitingForHost;
            self.hosts.wait(&target.spec.host, last_polled(target), id);
            return true;
        }
        if !self.bucket.take(self.settings.rate_per_second, now) {
            self.ready.push(entry);
            return false;
        }
        self.left += fresh;
        target.place = Place::InFlight;
        target.schedule.breaker.start(now);
        let (host, kind, due) = (target.spec.host.clone(), target.spec.kind.clone(), target.schedule.due);
        self.hosts.enter(&host);
        self.count_flight(&kind, true);
        self.flights.insert(id.clone(), Flight { host, kind, due, void: false });
        self.counters.started += 1;
        self.actions.push(Action::Start(id, due));
        true
    }
}

/// The key of a waiting list; constant while a target waits, because only a poll changes it.
fn last_polled(target: &Target) -> Moment {
    target.schedule.last_polled.unwrap_or(Moment::from_nanos(i64::MIN))
}
