//! A poll ended: what that means for its target, and for others of its origin.

use super::{DEAD_LETTER_FAILURES, Finish, LONGEST_DELAY, PROBE_SPREAD, Scheduler};
use crate::backoff::plugin_fault_delay;
use crate::cadence::{Load, interval, jittered};
use crate::target::{DEAD_LETTER_LOOK, LONGEST_RETRY_AFTER};
use crate::{BreakerState, DeadLetter, DeadReason, Place};
use model::{Cause, EventKind, Moment, TargetId};
use rand::Rng;
use std::time::Duration;

impl Scheduler {
    pub(super) fn finish(&mut self, id: &TargetId, finish: Finish, now: Moment) {
        let Some(flight) = self.flights.remove(id) else { return };
        self.count_flight(&flight.kind, false);
        if let Some(next) = self.hosts.leave(&flight.host, self.settings.max_per_host) {
            self.make_ready(&next);
        }
        match finish {
            Finish::Success { .. } => self.counters.succeeded += 1,
            Finish::Skipped => self.counters.skipped_no_slot += 1,
            _ => self.counters.failed += 1,
        }
        let Some(target) = self.targets.get_mut(id) else { return };
        target.place = Place::Disabled;
        if !flight.void {
            if finish != Finish::Skipped {
                target.schedule.last_polled = Some(now);
            }
            match finish {
                Finish::Success { changed, critical } => self.succeed(id, flight.due, (changed, critical), now),
                Finish::Transient { cause, retry_after } => self.fail(id, None, (cause, retry_after), now),
                Finish::Permanent { cause, retry_after } => {
                    self.fail(id, Some(DeadReason::Permanent), (cause, retry_after), now);
                }
                Finish::PluginFault => self.fault(id, now),
                Finish::Skipped => self.skip(id, now),
            }
        }
        self.settle(id);
    }

    pub(super) fn succeed(&mut self, id: &TargetId, due: Moment, (changed, critical): (bool, bool), now: Moment) {
        let unit = self.rng.random::<f64>();
        let Some(target) = self.targets.get_mut(id) else { return };
        let schedule = &mut target.schedule;
        let load = Load { errors: schedule.failures, due: self.held };
        let urgent = schedule.failures > 0 || schedule.plugin_faults > 0 || changed;
        schedule.failures = 0;
        schedule.first_failure = None;
        schedule.last_cause = None;
        schedule.plugin_faults = 0;
        schedule.revived = false;
        schedule.last_success = Some(now);
        schedule.critical = critical;
        if changed {
            schedule.last_change = Some(now);
        }
        let closed = schedule.breaker.succeed(now);
        let cadence = target.cadence(&self.settings);
        let bounds = target.bounds(&self.settings);
        let scores = target.scores(&self.settings, now);
        let next = interval(cadence, &bounds, scores, load, target.schedule.interval);
        target.schedule.interval = Some(next);
        target.schedule.due = due.after(jittered(cadence, &bounds, next, unit)).max(now);
        let origin = target.spec.origin.clone();
        if closed {
            self.emit(EventKind::CircuitClose { target: id.clone() });
        }
        self.revive(id);
        self.persist(id, urgent || closed);
        self.revive_neighbours(&origin, id, now);
    }

    pub(super) fn fail(
        &mut self,
        id: &TargetId,
        permanent: Option<DeadReason>,
        (cause, retry_after): (Cause, Option<Duration>),
        now: Moment,
    ) {
        let rules = self.settings.profile.rules();
        let (jitter, spread) = (self.rng.random::<f64>(), 1.0 + PROBE_SPREAD * self.rng.random::<f64>());
        let Some(target) = self.targets.get_mut(id) else { return };
        let base = target.bounds(&self.settings).base;
        let schedule = &mut target.schedule;
        let floor = if rules.retries_early { Duration::ZERO } else { schedule.interval.unwrap_or(base) };
        schedule.failures = schedule.failures.saturating_add(1);
        schedule.plugin_faults = 0;
        schedule.first_failure = schedule.first_failure.or(Some(now));
        schedule.last_cause = Some(cause);
        let failures = schedule.failures;
        let was_closed = schedule.breaker.state == BreakerState::Closed;
        let tripped = schedule.breaker.fail(&rules, failures, now);
        let reason = permanent.or_else(|| (failures >= DEAD_LETTER_FAILURES).then_some(DeadReason::Retries));
        let dead = if rules.dead_letters { schedule.dead.map(|dead| dead.reason).or(reason) } else { None };
        let newly_dead = dead.filter(|_| schedule.dead.is_none());
        schedule.dead = dead.map(|reason| match schedule.dead {
            Some(before) => DeadLetter { last_attempt: now, retries: before.retries + 1, ..before },
            None => DeadLetter { reason, since: now, last_attempt: now, retries: 1 },
        });
        let delay = match (dead, tripped) {
            (Some(_), _) => DEAD_LETTER_LOOK.mul_f64(spread),
            (None, Some(open_for)) => open_for.mul_f64(spread),
            (None, None) => rules.backoff.delay(failures, jitter).max(floor),
        };
        let delay = delay.max(retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER)).min(LONGEST_DELAY);
        schedule.due = now.after(delay);
        if was_closed && tripped.is_some() {
            self.emit(EventKind::CircuitOpen { target: id.clone(), failures });
        }
        if let Some(reason) = newly_dead {
            self.emit(EventKind::DeadLetter { target: id.clone(), reason: reason.as_str() });
        }
        self.index_hope(id);
        self.persist(id, true);
    }

    pub(super) fn fault(&mut self, id: &TargetId, now: Moment) {
        self.with(id, |target| {
            let schedule = &mut target.schedule;
            schedule.plugin_faults = schedule.plugin_faults.saturating_add(1);
            let mut delay = plugin_fault_delay(schedule.plugin_faults);
            delay = delay.max(schedule.breaker.lose_probe(now).unwrap_or_default());
            if schedule.dead.is_some() {
                delay = delay.max(DEAD_LETTER_LOOK);
            }
            schedule.due = now.after(delay);
        });
        self.persist(id, true);
    }

    pub(super) fn skip(&mut self, id: &TargetId, now: Moment) {
        let settings = self.settings.clone();
        self.with(id, |target| {
            let again = target.schedule.breaker.lose_probe(now).unwrap_or_default();
            let dead = if target.schedule.dead.is_some() { DEAD_LETTER_LOOK } else { Duration::ZERO };
            target.schedule.due = now.after(target.bounds(&settings).min.max(again).max(dead));
        });
    }

    /// Takes a target out of the dead letters.
    pub(super) fn revive(&mut self, id: &TargetId) {
        self.forget_hope(id);
        let Some(target) = self.targets.get_mut(id) else { return };
        if target.schedule.dead.take().is_some() {
            self.emit(EventKind::Revived { target: id.clone() });
        }
    }

    /// An origin answered: its dead letters that could not reach it get one more try.
    pub(super) fn revive_neighbours(&mut self, origin: &str, except: &TargetId, now: Moment) {
        let Some(hopeful) = self.hopeful.get(origin) else { return };
        let neighbours: Vec<TargetId> = hopeful.iter().filter(|id| *id != except).cloned().collect();
        for id in neighbours {
            self.revive(&id);
            self.take_out(&id);
            self.with(&id, |target| {
                target.schedule.revived = true;
                target.schedule.due = now;
            });
            self.settle(&id);
            self.persist(&id, true);
        }
    }
}
