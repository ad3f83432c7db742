//! Applies changes of targets and settings, and commands of operators.

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
        // Without, the table would grow to up to twice its length.
        self.targets.reserve_exact(targets.len());
        for (spec, saved) in targets {
            let first = saved.is_none();
            if first && spec.enabled {
                self.emit(EventKind::ServiceStarted { target: spec.id.clone() });
            }
            let mut target = Target::new(spec, saved.unwrap_or_else(|| Schedule::new(now)), Why::Restored);
            // The due time is too late, because a clock was set back or an interval was shortened. Such targets are
            // spread together with the overdue ones; otherwise they would all be due at once.
            let too_far = target.schedule.due > target.latest_due(&self.settings, now);
            let due = target.schedule.due <= now;
            // The cause may have been corrected while the host was down: a secret in the environment can only be
            // changed by a restart.
            let is_dead =
                target.spec.enabled && target.schedule.dead.is_some() && self.settings.profile.has_dead_letters();
            if too_far || is_dead {
                target.schedule.due = now;
            }
            let slot = self.insert(target);
            self.settle(slot, now);
            if first || due || too_far || is_dead {
                overdue.push(slot);
            }
        }
        self.spread(&overdue, now);
    }

    /// Spreads targets that are due at once, in the order of a hash of their URLs.
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

    /// Spreads overdue targets if the machine slept or the host was stopped.
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

    /// Saves targets of which only the due time changed.
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
        self.index_revivable(slot);
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
        // A poll of a removed target with this id may still be in flight; a target is never polled twice at once.
        target.in_flight = self.orphans.remove(&target.spec.id);
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
        self.withdraw_probe(slot);
        self.forget_revivable(slot);
        let target = self.target_mut(slot);
        let was_enabled = target.spec.enabled;
        target.spec = spec;
        let (mut was_open, mut was_dead) = (false, false);
        if matches!(change, Change::Reset | Change::PollNow) {
            (target.schedule.due, target.why) = (now, Why::Changed);
            // A poll in flight belongs to the old definition. The target is polled again as soon as that poll has
            // ended.
            if let Some(in_flight) = &mut target.in_flight {
                in_flight.void = true;
                target.schedule.breaker.lose_probe(now);
            }
        }
        match change {
            Change::Reset => {
                was_open = target.schedule.breaker.state != BreakerState::Closed;
                was_dead = target.schedule.dead.is_some();
                crate::target::reset(&mut target.schedule);
                target.asked_to_wait = false;
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
        self.index_revivable(slot);
        self.emit_enabling(slot, was_enabled, now);
        self.settle(slot, now);
        self.persist(slot, true);
    }

    fn emit_enabling(&mut self, slot: Slot, was_enabled: bool, now: Moment) {
        let target = self.target_mut(slot);
        let id = target.spec.id.clone();
        match (was_enabled, target.spec.enabled) {
            (false, true) => {
                target.why = Why::Enabled;
                // Polls missed while the target was disabled are not made up.
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
        self.withdraw_probe(slot);
        self.forget_revivable(slot);
        self.spend(slot, Spending::default());
        let Some(target) = self.targets[slot.index()].take() else { return };
        if let Some(in_flight) = target.in_flight {
            self.orphans.insert(id.clone(), super::InFlight { void: true, ..in_flight });
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
        let dead_letter_rules = |settings: &Settings| (settings.profile, settings.dead_letter_interval);
        if dead_letter_rules(&before) != dead_letter_rules(&self.settings) {
            self.advance_dead_letters(now);
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

    /// Moves dead letters forward whose due time is later than the current dead-letter interval allows.
    fn advance_dead_letters(&mut self, now: Moment) {
        let profile = self.settings.profile;
        let dead = self.slots(|target| target.place == Place::Queued && target.schedule.dead.is_some());
        for slot in dead {
            let latest = now.after(self.target(slot).dead_letter_interval(&self.settings));
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
            if let Some(in_flight) = &mut target.in_flight {
                in_flight.outdated = true;
            }
        }
        if known {
            return;
        }
        let of_kind = self.slots(|target| target.spec.kind == kind);
        self.settle_all(&of_kind, now);
    }

    /// Settles targets again after a condition on them changed. Overdue targets are spread.
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
            self.withdraw_probe(slot);
        } else if ask != Ask::Enable {
            self.admit_probe(slot);
        }
        self.take_out(slot);
        self.emit_enabling(slot, was_enabled, now);
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
                // Polls missed during the quarantine are not made up.
                target.schedule.due = now;
            }
            target.why = Why::Asked(ask);
        }
        self.settle(slot, now);
        self.persist(slot, ask != Ask::PollNow);
    }

    /// Updates whether a success of another target of the same origin may revive this target.
    pub(super) fn index_revivable(&mut self, slot: Slot) {
        let target = self.target(slot);
        let schedule = &target.schedule;
        if schedule.dead.is_some() && !schedule.revived && schedule.last_cause == Some(Cause::Unreachable) {
            let (origin, id) = (target.spec.origin.clone(), target.spec.id.clone());
            self.revivable.entry(origin).or_default().insert(id, slot);
        } else {
            self.forget_revivable(slot);
        }
    }

    pub(super) fn forget_revivable(&mut self, slot: Slot) {
        if self.revivable.is_empty() {
            return;
        }
        let target = self.targets[slot.index()].as_ref().expect("a registered slot has a target");
        if let Some(revivable) = self.revivable.get_mut(&target.spec.origin) {
            revivable.remove(&target.spec.id);
            if revivable.is_empty() {
                self.revivable.remove(&target.spec.origin);
            }
        }
    }
}
