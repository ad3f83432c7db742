//! Targets come, change and go; settings change; operators ask.

use super::{Change, Scheduler};
use crate::breaker::Transitions;
use crate::queue::Slot;
use crate::spread;
use crate::target::{Spending, Target};
use crate::why::Why;
use crate::{Settings, TargetSpec};
use model::{Ask, Breaker, BreakerState, Cause, EventKind, Kind, Moment, Place, Schedule, TargetId};
use rand::Rng;
use std::time::Duration;

impl Scheduler {
    pub(super) fn start(&mut self, mut targets: Vec<(TargetSpec, Option<Schedule<Moment>>)>, now: Moment) {
        targets.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        let mut overdue = Vec::new();
        for (spec, saved) in targets {
            let first = saved.is_none();
            if first && spec.enabled {
                self.emit(EventKind::ServiceStarted { target: spec.id.clone() });
            }
            let mut target = Target::new(spec, saved.unwrap_or_else(|| Schedule::new(now)), Why::Restored);
            self.usual.add(&target.schedule.rates);
            // Too far away, because a clock was set back or an interval shortened: due as well, or all would be at once.
            let too_far = target.schedule.due > target.latest_due(&self.settings, now);
            let due = target.schedule.due <= now;
            if too_far {
                target.schedule.due = now;
            }
            let slot = self.insert(target);
            self.settle(slot, now);
            if first || due || too_far {
                overdue.push(slot);
            }
        }
        self.spread(&overdue, now);
    }

    /// Many are due at once: they run one after another, in the order of a hash of their URLs.
    pub(super) fn spread(&mut self, overdue: &[Slot], now: Moment) {
        let key = |slot: &Slot| {
            let target = self.target(*slot);
            (target.spec.url_hash, target.bounds(&self.settings).base)
        };
        let delays = spread::delays(&overdue.iter().map(key).collect::<Vec<_>>());
        for (&slot, delay) in overdue.iter().zip(delays) {
            self.take_out(slot);
            let target = self.target_mut(slot);
            let was = std::mem::replace(&mut target.schedule.due, now.after(delay));
            target.why = Why::Spread { was, delay };
            self.settle(slot, now);
        }
        if overdue.len() > 1 {
            self.counters.spread += overdue.len() as u64;
        }
    }

    /// The host may have slept, or been stopped: what fell due meanwhile is spread.
    pub(super) fn wake(&mut self, now: Moment) {
        self.latest = now;
        let late = now.before(super::SLEPT);
        if self.queue.next_due().is_none_or(|due| due >= late) {
            return;
        }
        let overdue: Vec<Slot> = self.queue.pop_due(now, usize::MAX).into_iter().map(|entry| entry.slot).collect();
        for &slot in &overdue {
            self.target_mut(slot).place = Place::Disabled;
        }
        self.spread(&overdue, now);
        self.persist_all(&overdue);
    }

    /// Their due times are others now, and nothing else.
    fn persist_all(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.persist(slot, false);
        }
    }

    fn insert(&mut self, target: Target) -> Slot {
        let slot = self.queue.register(&target.spec.id);
        if self.targets.len() <= slot.index() {
            self.targets.resize_with(slot.index() + 1, || None);
        }
        self.targets[slot.index()] = Some(target);
        self.index_hope(slot);
        slot
    }

    pub(super) fn add(&mut self, spec: TargetSpec, now: Moment) {
        if self.queue.slot(&spec.id).is_some() {
            return self.change(spec, Change::Reset, now);
        }
        if spec.enabled {
            self.emit(EventKind::ServiceStarted { target: spec.id.clone() });
        }
        let mut target = Target::new(spec, Schedule::new(now), Why::Added);
        // A poll of a target of this name may still be under way; never two at once.
        target.flight = self.orphans.remove(&target.spec.id);
        let slot = self.insert(target);
        self.settle(slot, now);
        self.persist(slot, true);
    }

    pub(super) fn change(&mut self, spec: TargetSpec, change: Change, now: Moment) {
        let Some(slot) = self.queue.slot(&spec.id) else { return self.add(spec, now) };
        if change == Change::Nothing && self.target(slot).spec == spec {
            return;
        }
        self.take_out(slot);
        self.is_no_probe(slot);
        self.forget_hope(slot);
        let target = self.target_mut(slot);
        let was_enabled = target.spec.enabled;
        target.spec = spec;
        let (mut was_open, mut was_dead) = (false, false);
        if matches!(change, Change::Reset | Change::PollNow) {
            (target.schedule.due, target.why) = (now, Why::Changed);
            // A poll under way is one of what the target was; it is polled again as soon as that has ended.
            if let Some(flight) = &mut target.flight {
                flight.void = true;
                target.schedule.breaker.lose_probe(now);
            }
        }
        match change {
            Change::Reset => {
                was_open = target.schedule.breaker.state != BreakerState::Closed;
                was_dead = target.schedule.dead.is_some();
                crate::target::reset(&mut target.schedule);
            }
            Change::PollNow => {}
            Change::Requeue => self.recompute(slot, now),
            Change::Nothing => {}
        }
        let id = self.queue.id(slot).clone();
        if was_open {
            self.emit(EventKind::CircuitClose { target: id.clone() });
        }
        if was_dead {
            self.emit(EventKind::Revived { target: id });
        }
        self.index_hope(slot);
        self.tell_of_enabling(slot, was_enabled, now);
        self.settle(slot, now);
        self.persist(slot, true);
    }

    fn tell_of_enabling(&mut self, slot: Slot, was_enabled: bool, now: Moment) {
        let target = self.target_mut(slot);
        let id = target.spec.id.clone();
        match (was_enabled, target.spec.enabled) {
            (false, true) => {
                target.why = Why::Enabled;
                // What fell due while it was disabled did not fall due for it.
                target.schedule.due = now;
                self.emit(EventKind::ServiceStarted { target: id });
            }
            (true, false) => self.emit(EventKind::ServiceStopped { target: id }),
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, id: &TargetId) {
        let Some(slot) = self.queue.slot(id) else { return };
        self.take_out(slot);
        self.is_no_probe(slot);
        self.forget_hope(slot);
        self.spend(slot, Spending::default());
        let Some(target) = self.targets[slot.index()].take() else { return };
        if let Some(flight) = target.flight {
            self.orphans.insert(id.clone(), super::Flight { void: true, ..flight });
        }
        self.queue.forget(slot);
        if target.spec.enabled {
            self.emit(EventKind::ServiceStopped { target: id.clone() });
        }
    }

    pub(super) fn set(&mut self, settings: Settings, now: Moment) {
        let before = std::mem::replace(&mut self.settings, settings);
        let cadence = |settings: &Settings| (settings.cadence, settings.base, settings.min, settings.max);
        if cadence(&before) != cadence(&self.settings) {
            let queued = self.slots(|target| target.place == Place::Queued);
            let mut overdue = Vec::new();
            for &slot in &queued {
                self.take_out(slot);
                self.recompute(slot, now);
                self.settle(slot, now);
                if self.target(slot).schedule.due <= now {
                    overdue.push(slot);
                }
            }
            self.spread(&overdue, now);
            self.persist_all(&queued);
        }
        let profile = self.settings.profile;
        let looks = |settings: &Settings| (settings.profile, settings.dead_letter_interval);
        if looks(&before) != looks(&self.settings) {
            self.look_sooner(now);
        }
        if !profile.has_dead_letters() {
            let dead = self.slots(|target| target.schedule.dead.is_some());
            for &slot in &dead {
                self.revive(slot);
                self.persist(slot, true);
            }
            let waiting: Vec<Slot> =
                dead.into_iter().filter(|slot| self.target(*slot).place == Place::Queued).collect();
            self.spread(&waiting, now);
            for slot in waiting {
                self.target_mut(slot).why = Why::Profile(profile);
            }
        }
        if self.settings.max_per_host > before.max_per_host {
            for slot in self.hosts.released(self.settings.max_per_host) {
                self.make_ready(slot, now);
            }
        }
    }

    /// Dead letters that wait for longer than they would now are looked at when they would be.
    fn look_sooner(&mut self, now: Moment) {
        let profile = self.settings.profile;
        let dead = self.slots(|target| target.place == Place::Queued && target.schedule.dead.is_some());
        for slot in dead {
            let latest = now.after(self.target(slot).dead_letter_look(&self.settings));
            if self.target(slot).schedule.due > latest {
                self.take_out(slot);
                let earlier = Duration::from_secs_f64(30.0 * self.rng.random::<f64>());
                let target = self.target_mut(slot);
                target.schedule.due = latest.before(earlier);
                target.why = Why::Profile(profile);
                self.settle(slot, now);
                self.persist(slot, true);
            }
        }
    }

    pub(super) fn slots(&self, wanted: impl Fn(&Target) -> bool) -> Vec<Slot> {
        let wanted = self.targets.iter().flatten().filter(|target| wanted(target));
        wanted.filter_map(|target| self.queue.slot(&target.spec.id)).collect()
    }

    pub(super) fn serve(&mut self, kind: Kind, served: bool, now: Moment) {
        let known = if served { !self.unserved.remove(&kind) } else { !self.unserved.insert(kind.clone()) };
        self.clear(&kind, now);
        for target in self.targets.iter_mut().flatten().filter(|target| target.spec.kind == kind) {
            if let Some(flight) = &mut target.flight {
                flight.outdated = true;
            }
        }
        if known {
            return;
        }
        let of_kind = self.slots(|target| target.spec.kind == kind);
        self.settle_all(&of_kind, now);
    }

    /// Something that concerned these targets is over or begins; those that are overdue now are spread.
    pub(super) fn settle_all(&mut self, slots: &[Slot], now: Moment) {
        let mut overdue = Vec::new();
        for &slot in slots {
            self.take_out(slot);
            self.settle(slot, now);
            let target = self.target(slot);
            if target.place == Place::Queued && target.schedule.due <= now {
                overdue.push(slot);
            }
        }
        self.spread(&overdue, now);
        self.persist_all(&overdue);
    }

    pub(super) fn ask(&mut self, id: &TargetId, ask: Ask, now: Moment) {
        let Some(slot) = self.queue.slot(id) else { return };
        let target = self.target_mut(slot);
        let was_enabled = target.spec.enabled;
        let was_open = target.schedule.breaker.state != BreakerState::Closed;
        let quarantined = target.place == Place::Quarantined;
        match ask {
            Ask::PollNow | Ask::Retry => {}
            Ask::Enable => target.spec.enabled = true,
            Ask::Disable => target.spec.enabled = false,
            Ask::ResetBreaker => {
                target.schedule.failures = 0;
                target.schedule.first_failure = None;
                target.schedule.breaker = Breaker::CLOSED;
            }
        }
        if ask == Ask::Disable {
            self.is_no_probe(slot);
        } else if ask != Ask::Enable {
            self.let_through(slot);
        }
        self.take_out(slot);
        self.tell_of_enabling(slot, was_enabled, now);
        if ask == Ask::ResetBreaker && was_open {
            self.emit(EventKind::CircuitClose { target: id.clone() });
        }
        if matches!(ask, Ask::Retry | Ask::ResetBreaker) {
            self.revive(slot);
        }
        if matches!(ask, Ask::PollNow | Ask::Retry | Ask::ResetBreaker) {
            let target = self.target_mut(slot);
            target.schedule.due = target.schedule.due.min(now);
            if quarantined {
                // What fell due while it waited for its plugin did not fall due for it.
                target.schedule.due = now;
            }
            target.why = Why::Asked(ask);
        }
        self.settle(slot, now);
        self.persist(slot, ask != Ask::PollNow);
    }

    /// Notes whether a neighbour's success may revive a target.
    pub(super) fn index_hope(&mut self, slot: Slot) {
        let target = self.target(slot);
        let schedule = &target.schedule;
        if schedule.dead.is_some() && !schedule.revived && schedule.last_cause == Some(Cause::Unreachable) {
            let (origin, id) = (target.spec.origin.clone(), target.spec.id.clone());
            self.hopeful.entry(origin).or_default().insert(id, slot);
        } else {
            self.forget_hope(slot);
        }
    }

    pub(super) fn forget_hope(&mut self, slot: Slot) {
        if self.hopeful.is_empty() {
            return;
        }
        let target = self.targets[slot.index()].as_ref().expect("a registered slot has a target");
        if let Some(hopeful) = self.hopeful.get_mut(&target.spec.origin) {
            hopeful.remove(&target.spec.id);
            if hopeful.is_empty() {
                self.hopeful.remove(&target.spec.origin);
            }
        }
    }
}
