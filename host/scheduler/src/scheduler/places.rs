//! Moves targets between places and starts polls.

use super::{Action, InFlight, MAX_UNWRITTEN, SLOW, Scheduler};
use crate::Entry;
use crate::breaker::Transitions;
use crate::cadence::{Computed, Load, compute, jittered};
use crate::queue::Slot;
use crate::target::{ReadyEntry, Spending, Target};
use crate::why::Why;
use model::{BreakerState, Cadence, Kind, Moment, Place};
use rand::Rng;
use std::collections::BTreeSet;
use std::time::Duration;

/// The poll budget of a target without a longest interval: this many times the polls of its base interval.
const MOST_SPENDING: f64 = 2.0;

/// The result of an attempt to start a poll.
#[derive(PartialEq, Eq)]
enum Attempt {
    /// The target is being polled or waits elsewhere.
    Done,
    /// The token bucket is empty.
    NoToken,
}

impl Scheduler {
    /// Puts a target that is in no place into the place where it belongs.
    pub(super) fn settle(&mut self, slot: Slot, now: Moment) {
        self.settle_scored(slot, None, now);
    }

    /// Like `settle`, with a score that is already computed.
    pub(super) fn settle_scored(&mut self, slot: Slot, score: Option<f64>, now: Moment) {
        let target = self.target(slot);
        let place = if target.in_flight.is_some() {
            Place::InFlight
        } else if !target.spec.enabled {
            Place::Disabled
        } else if !self.unserved.is_empty() && self.unserved.contains(&target.spec.kind) {
            Place::NoPlugin
        } else if !self.records.is_empty() && self.is_quarantined(&target.spec.kind, slot) {
            Place::Quarantined
        } else {
            Place::Queued
        };
        if place == Place::Queued {
            let score = score.unwrap_or_else(|| self.score(target, now)) as f32;
            let entry = Entry { slot, due: target.schedule.due, score, last_polled: target.last_polled() };
            self.queue.push(entry);
        } else if matches!(place, Place::Disabled | Place::NoPlugin | Place::Quarantined) {
            self.spend(slot, Spending::default());
        }
        if place == Place::Quarantined {
            self.park(slot);
        }
        self.target_mut(slot).place = place;
        self.moved.push(slot);
    }

    fn score(&self, target: &Target, now: Moment) -> f64 {
        target.scores(&self.settings, (&self.spending, &self.population_prior), now).of(target.cadence(&self.settings))
    }

    /// Removes a target from the place where it waits. A poll in flight continues.
    pub(super) fn take_out(&mut self, slot: Slot) {
        let target = self.target_mut(slot);
        let place = target.place;
        if place == Place::InFlight {
            return;
        }
        target.place = Place::Disabled;
        let host = target.spec.host.clone();
        match place {
            Place::Queued => drop(self.queue.remove(slot)),
            Place::Ready => {
                if let Some(ready_entry) = target.ready_entry.take() {
                    self.ready_entries(ready_entry.doubtful).remove(&ready_entry);
                }
                // The target may have been assigned a free slot of its host; pass that slot on.
                self.hand_on(&host);
            }
            Place::WaitingForHost => {
                let waiting = (target.last_polled(), target.spec.id.clone(), slot);
                self.hosts.give_up(&host, &waiting);
            }
            Place::InFlight | Place::Disabled | Place::NoPlugin | Place::Quarantined => {}
        }
    }

    /// Passes a free slot of a host on to the next target that waits for it.
    pub(super) fn hand_on(&mut self, host: &str) {
        let limit = self.settings.max_per_host;
        let Some(next) = self.hosts.next(host, limit) else { return };
        // A target whose last poll was slow or failed may have to wait for one of another host. So a healthy target of
        // this host becomes ready too, and the first that may start takes the slot.
        let healthy = if self.target(next).is_doubtful() { self.hosts.next_healthy(host, limit) } else { None };
        for slot in [next].into_iter().chain(healthy) {
            self.make_ready(slot, self.latest);
        }
    }

    pub(super) fn make_ready(&mut self, slot: Slot, now: Moment) {
        let target = self.target(slot);
        let (due, last_polled) = (target.schedule.due, target.last_polled());
        let score = self.score(target, now) as f32;
        self.enter_ready(Entry { slot, due, score, last_polled });
    }

    fn enter_ready(&mut self, entry: Entry) {
        let ready_entry = self.ready_entry(entry);
        let target = self.target_mut(ready_entry.slot);
        (target.place, target.ready_entry) = (Place::Ready, Some(ready_entry.clone()));
        self.moved.push(ready_entry.slot);
        self.ready_entries(ready_entry.doubtful).insert(ready_entry);
    }

    /// Returns the set of ready entries.
    fn ready_entries(&mut self, doubtful: bool) -> &mut BTreeSet<ReadyEntry> {
        if doubtful { &mut self.doubtful } else { &mut self.ready }
    }

    /// Removes the first entry that may start now.
    fn pop_ready(&mut self) -> Option<ReadyEntry> {
        let doubtful = self.doubtful.first().filter(|_| self.may_doubt());
        match (self.ready.first(), doubtful) {
            (Some(ready), Some(doubtful)) if doubtful < ready => self.doubtful.pop_first(),
            (None, Some(_)) => self.doubtful.pop_first(),
            _ => self.ready.pop_first(),
        }
    }

    /// Creates the ready entry of a target that has become due.
    fn ready_entry(&mut self, entry: Entry) -> ReadyEntry {
        let Entry { slot, due, score, last_polled } = entry;
        self.entered += 1;
        let step = self.step;
        let target = self.target_mut(slot);
        target.ready_since = step;
        let doubtful = target.is_doubtful();
        ReadyEntry { due, score, last_polled, id: self.queue.id(slot).clone(), slot, doubtful }
    }

    /// Computes a healthy target's next poll again, counted from its last poll. A failing target keeps its due time.
    pub(super) fn recompute(&mut self, slot: Slot, now: Moment) {
        let target = self.target(slot);
        if target.schedule.failures > 0 || target.schedule.plugin_faults > 0 {
            return;
        }
        let Some(last) = target.schedule.last_polled else { return };
        let computed = self.computed(slot, Load::default(), None, now);
        let after = jittered(&computed, self.rng.random::<f64>());
        let target = self.target_mut(slot);
        target.schedule.due = last.after(after).max(now);
        target.schedule.interval = Some(computed.interval);
        target.why = Why::Recomputed { computed, after };
    }

    /// Computes the interval of a target from its cadence and updates the target's spending.
    pub(super) fn computed(&mut self, slot: Slot, load: Load, wish: Option<Duration>, now: Moment) -> Computed {
        let target = self.target(slot);
        let (cadence, bounds) = (target.cadence(&self.settings), target.bounds(&self.settings));
        let scores = target.scores(&self.settings, (&self.spending, &self.population_prior), now);
        let last = target.schedule.interval;
        let spending = match cadence {
            Cadence::Adaptive => {
                let share = if target.longest(&self.settings).is_some() { 1.0 } else { MOST_SPENDING };
                let wanted = 1.0 / wish.map_or(scores.wanted, |wish| bounds.clamp(wish.as_secs_f64()));
                let in_trouble = target.schedule.critical;
                Spending {
                    wanted,
                    in_trouble: if in_trouble { wanted } else { 0.0 },
                    allowed: share / bounds.base.as_secs_f64(),
                    targets: 1.0,
                    quiet: if in_trouble { 0.0 } else { 1.0 },
                    changes: if in_trouble { 0.0 } else { scores.rate },
                    exposure: if in_trouble { 0.0 } else { scores.rate * scores.wanted },
                }
            }
            Cadence::Pulse | Cadence::Fixed => Spending::default(),
        };
        self.spend(slot, spending);
        compute(cadence, bounds, scores, load, last)
    }

    pub(super) fn spend(&mut self, slot: Slot, spending: Spending) {
        let before = std::mem::replace(&mut self.target_mut(slot).spending, spending);
        self.spending.replace(&before, &spending);
    }

    pub(super) fn dispatch(&mut self, now: Moment) {
        let mut token = true;
        self.leave_old(now);
        loop {
            let open = token && !self.stopping && self.young.len() < self.max_in_flight();
            let due = self.queue.next_due().is_some_and(|due| due <= now);
            let next = if due { self.queue.pop() } else { None };
            token = match next {
                // No other target waits, so the entry starts without passing through the ready set.
                Some(entry) if open && self.ready.is_empty() && self.doubtful.is_empty() && self.may_doubt() => {
                    let ready_entry = self.ready_entry(entry);
                    self.start_one(ready_entry, now) == Attempt::Done
                }
                Some(entry) => {
                    self.enter_ready(entry);
                    token
                }
                None if open => match self.pop_ready() {
                    Some(ready_entry) => self.start_one(ready_entry, now) == Attempt::Done,
                    None => break,
                },
                None => break,
            };
        }
        self.held = self.ready.len() + self.doubtful.len();
        let held = self.entered.saturating_sub(self.left);
        if !self.stopping {
            *if token { &mut self.counters.held_in_flight } else { &mut self.counters.held_by_rate } += held;
        }
    }

    /// Frees the slots of `max_in_flight` of polls that have run for longer than `SLOW`, for at most `max_in_flight`
    /// such polls. When many targets begin to hang at once, the targets that answer are still polled in time.
    fn leave_old(&mut self, now: Moment) {
        while self.next_to_leave().is_some_and(|at| at <= now) {
            self.young.pop_first();
        }
    }

    /// Returns when the next poll in flight frees its slot of `max_in_flight`.
    pub(super) fn next_to_leave(&self) -> Option<Moment> {
        let room = self.in_flight - self.young.len() < self.max_in_flight();
        self.young.first_key_value().filter(|_| room).map(|(_, started)| started.after(SLOW))
    }

    /// Starts a poll, or moves its target to the place where it waits.
    fn start_one(&mut self, ready_entry: ReadyEntry, now: Moment) -> Attempt {
        let slot = ready_entry.slot;
        let settings = &self.settings;
        let target = self.targets[slot.index()].as_mut().expect("a registered slot has a target");
        target.ready_entry = None;
        self.moved.push(slot);
        let fresh = u64::from(target.ready_since == self.step);
        self.left += fresh;
        if target.unwritten >= MAX_UNWRITTEN {
            self.counters.skipped_unwritten += 1;
            let delay = target.schedule.interval.unwrap_or_else(|| target.bounds(settings).base);
            target.schedule.due = now.after(delay);
            target.why = Why::Unwritten { results: target.unwritten, delay };
            let host = target.spec.host.clone();
            self.withdraw_probe(slot);
            self.settle(slot, now);
            self.persist(slot, false);
            self.hand_on(&host);
            return Attempt::Done;
        }
        if !self.hosts.has_room(&target.spec.host, settings.max_per_host, ready_entry.doubtful) {
            self.counters.held_by_hosts += 1;
            target.place = Place::WaitingForHost;
            self.hosts.wait(&target.spec.host, (target.last_polled(), ready_entry.id, slot), ready_entry.doubtful);
            return Attempt::Done;
        }
        if !self.bucket.take(settings.rate_per_second, now) {
            target.place = Place::Ready;
            target.ready_entry = Some(ready_entry.clone());
            self.ready_entries(ready_entry.doubtful).insert(ready_entry);
            self.left -= fresh;
            return Attempt::NoToken;
        }
        target.place = Place::InFlight;
        target.schedule.breaker.start(now);
        // If the host ends during a probe, the breaker opens again for the same time. The start of the probe must
        // therefore be saved.
        let probes = target.schedule.breaker.state == BreakerState::HalfOpen || target.schedule.dead.is_some();
        let (host, kind, due) = (target.spec.host.clone(), target.spec.kind.clone(), target.schedule.due);
        let doubtful = ready_entry.doubtful;
        self.hosts.enter(&host, doubtful);
        let number = self.counters.started;
        target.in_flight = Some(InFlight {
            host,
            kind: kind.clone(),
            due,
            started: now,
            number,
            doubtful,
            void: false,
            outdated: false,
        });
        self.young.insert(number, now);
        self.in_flight += 1;
        self.doubtful_in_flight += usize::from(doubtful);
        self.count_in_flight(&kind, true);
        self.counters.started += 1;
        if probes {
            self.persist(slot, true);
        }
        self.actions.push(Action::Start(ready_entry.id, due));
        Attempt::Done
    }

    pub(super) fn count_in_flight(&mut self, kind: &Kind, begins: bool) {
        match self.in_flight_by_kind.get_mut(kind) {
            Some(count) => *count = if begins { *count + 1 } else { count.saturating_sub(1) },
            None => drop(self.in_flight_by_kind.insert(kind.clone(), usize::from(begins))),
        }
    }
}
