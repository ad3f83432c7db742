//! Applies the outcome of a poll to its target and to other targets of the same origin.

use super::{Finish, LONGEST_DELAY, SLOW, Scheduler};
use crate::backoff::plugin_fault_delay;
use crate::breaker::Transitions;
use crate::cadence::{Load, jittered, wished};
use crate::queue::Slot;
use crate::rates::Learn;
use crate::target::LONGEST_RETRY_AFTER;
use crate::why::{Failed, Why};
use model::{BreakerState, Cadence, Cause, DeadLetter, EventKind, Moment, Place, TargetId};
use rand::Rng;
use std::time::Duration;

/// A poll that returned a report.
struct Success {
    /// When the poll was due.
    due: Moment,
    changed: bool,
    critical: bool,
    next_poll: Option<Duration>,
}

impl Scheduler {
    pub(super) fn finish(&mut self, id: &TargetId, finish: Finish, now: Moment) {
        let slot = self.queue.slot(id);
        let in_flight = match slot {
            Some(slot) => self.target_mut(slot).in_flight.take(),
            None => self.orphans.remove(id),
        };
        let Some(in_flight) = in_flight else { return };
        self.in_flight -= 1;
        self.doubtful_in_flight -= usize::from(in_flight.doubtful);
        self.young.remove(&in_flight.number);
        self.count_in_flight(&in_flight.kind, false);
        self.hosts.leave(&in_flight.host, in_flight.doubtful);
        self.hand_on(&in_flight.host);
        match finish {
            Finish::Success { .. } => self.counters.succeeded += 1,
            Finish::Skipped => self.counters.skipped_no_slot += 1,
            _ => self.counters.failed += 1,
        }
        let Some(slot) = slot else { return };
        let target = self.target_mut(slot);
        target.place = Place::Disabled;
        let mut score = None;
        if !in_flight.void {
            if finish != Finish::Skipped {
                target.schedule.last_polled = Some(now);
                target.slow = now.since(in_flight.started) >= SLOW;
            }
            match finish {
                // The outcome does not count for the current version of the plugin.
                _ if in_flight.outdated => {}
                Finish::PluginFault => self.record_fault(slot, now),
                Finish::Skipped => {}
                _ => self.clear(&in_flight.kind, now),
            }
            match finish {
                Finish::Success { changed, critical, next_poll } => {
                    let success = Success { due: in_flight.due, changed, critical, next_poll };
                    score = Some(self.succeed(slot, &success, now));
                }
                Finish::Transient { cause, retry_after } => self.fail(slot, false, (cause, retry_after), now),
                Finish::Permanent { cause, retry_after } => {
                    self.fail(slot, true, (cause, retry_after), now);
                }
                Finish::PluginFault => self.fault(slot, now),
                Finish::Skipped => self.skip(slot, now),
            }
        }
        self.settle_scored(slot, score, now);
    }

    /// Records a success. Returns the score from which the next poll was computed.
    fn succeed(&mut self, slot: Slot, success: &Success, now: Moment) -> f64 {
        let Success { due, changed, critical, next_poll } = *success;
        let unit = self.rng.random::<f64>();
        let held = self.held;
        let schedule = &mut self.target_mut(slot).schedule;
        let load = Load { errors: schedule.failures, due: held };
        let urgent = schedule.failures > 0 || schedule.plugin_faults > 0 || changed;
        if let Some(before) = schedule.last_success {
            let (was_in_trouble, span) = (schedule.critical, now.since(before));
            schedule.rates.observe(was_in_trouble, span, changed);
        }
        if self.population_prior.is_due(now) {
            let rates = self.targets.iter().flatten().map(|target| &target.schedule.rates);
            self.population_prior.refresh(rates, now);
        }
        let schedule = &mut self.target_mut(slot).schedule;
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
        // The other cadences promise a formula that knows no wishes.
        let wish = next_poll.filter(|_| self.target(slot).cadence(&self.settings) == Cadence::Adaptive);
        let computed = self.computed(slot, load, wish, now);
        let (after, since) = match wish {
            Some(wish) => (wished(&computed, wish, unit), now),
            None => (jittered(&computed, unit), due),
        };
        let target = self.target_mut(slot);
        target.asked_to_wait = false;
        target.schedule.interval = Some(computed.interval);
        target.schedule.due = since.after(after).max(now);
        target.why = Why::Succeeded { computed, after, since, wish };
        if closed {
            let target = target.spec.id.clone();
            self.emit(EventKind::CircuitClose { target });
        }
        self.revive(slot);
        self.persist(slot, urgent || closed);
        if !self.revivable.is_empty() {
            self.revive_neighbours(slot, now);
        }
        computed.scores.of(computed.cadence)
    }

    fn fail(&mut self, slot: Slot, permanent: bool, (cause, retry_after): (Cause, Option<Duration>), now: Moment) {
        let profile = self.settings.profile;
        let interval = self.target(slot).interval(&self.settings);
        let dead_letter_interval = self.target(slot).dead_letter_interval(&self.settings);
        // A maintenance page often asks for an hour, and the service is back in a minute.
        let longest_wait = match self.target(slot).asked_to_wait {
            true => LONGEST_RETRY_AFTER,
            false => self.target(slot).bounds(&self.settings).max.min(LONGEST_RETRY_AFTER),
        };
        let rules = profile.rules(interval);
        let (jitter, spread) = (self.rng.random::<f64>(), 1.0 + rules.probe_spread * self.rng.random::<f64>());
        let target = self.target_mut(slot);
        let schedule = &mut target.schedule;
        let floor = (!rules.retries_early).then_some(interval);
        schedule.failures = schedule.failures.saturating_add(1);
        schedule.plugin_faults = 0;
        let first_failure = *schedule.first_failure.get_or_insert(now);
        schedule.last_cause = Some(cause);
        let failures = schedule.failures;
        let was_closed = schedule.breaker.state == BreakerState::Closed;
        let open_for = schedule.breaker.fail(&rules, failures, now);
        let reason = profile.dead_letter(permanent, failures, now.since(first_failure));
        let before = schedule.dead.filter(|_| profile.has_dead_letters());
        let dead = before.map(|dead| dead.reason).or(reason);
        let newly_dead = dead.filter(|_| schedule.dead.is_none());
        schedule.dead = dead.map(|reason| match schedule.dead {
            Some(before) => DeadLetter { last_attempt: now, retries: before.retries + 1, ..before },
            None => DeadLetter { reason, since: now, last_attempt: now, retries: 1 },
        });
        let backoff = rules.backoff.delay(failures, jitter).min(rules.cap);
        let delay = match (dead, open_for) {
            (Some(_), _) => dead_letter_interval.mul_f64(spread),
            (None, Some(open_for)) => open_for.mul_f64(spread),
            (None, None) => backoff.max(floor.unwrap_or_default()),
        };
        target.asked_to_wait |= retry_after.is_some();
        let retry_after = retry_after.map(|asked| asked.min(longest_wait));
        let delay = delay.max(retry_after.unwrap_or_default()).min(LONGEST_DELAY);
        schedule.due = now.after(delay);
        target.why =
            Why::Failed(Failed { profile, backoff, floor, open_for, dead, dead_letter_interval, retry_after, delay });
        let id = target.spec.id.clone();
        if was_closed && open_for.is_some() {
            self.emit(EventKind::CircuitOpen { target: id.clone(), failures });
        }
        if let Some(reason) = newly_dead {
            self.emit(EventKind::DeadLetter { target: id, reason });
        }
        self.index_revivable(slot);
        self.persist(slot, true);
    }

    fn fault(&mut self, slot: Slot, now: Moment) {
        let dead_letter_interval = self.target(slot).dead_letter_interval(&self.settings);
        let target = self.target_mut(slot);
        let schedule = &mut target.schedule;
        schedule.plugin_faults = schedule.plugin_faults.saturating_add(1);
        let backoff = plugin_fault_delay(schedule.plugin_faults);
        let probe = schedule.breaker.lose_probe(now);
        let dead = schedule.dead.map(|_| dead_letter_interval);
        let delay = backoff.max(probe.unwrap_or_default()).max(dead.unwrap_or_default());
        schedule.due = now.after(delay);
        target.why = Why::PluginFault { backoff, probe, dead, delay };
        self.persist(slot, true);
    }

    fn skip(&mut self, slot: Slot, now: Moment) {
        let min = self.target(slot).bounds(&self.settings).min;
        let dead_letter_interval = self.target(slot).dead_letter_interval(&self.settings);
        let target = self.target_mut(slot);
        let again = target.schedule.breaker.lose_probe(now).unwrap_or_default();
        let dead = if target.schedule.dead.is_some() { dead_letter_interval } else { Duration::ZERO };
        let delay = min.max(again).max(dead);
        target.schedule.due = now.after(delay);
        target.why = Why::NoSlot { delay };
        self.persist(slot, false);
    }

    /// Removes a target from the dead letters.
    pub(super) fn revive(&mut self, slot: Slot) {
        self.forget_revivable(slot);
        let target = self.target_mut(slot);
        if target.schedule.dead.take().is_some() {
            let target = target.spec.id.clone();
            self.emit(EventKind::Revived { target });
        }
    }

    /// Polls the revivable dead letters of an origin again after another target of the origin answered.
    fn revive_neighbours(&mut self, answered: Slot, now: Moment) {
        let origin = &self.target(answered).spec.origin;
        let Some(revivable) = self.revivable.get(origin) else { return };
        let neighbours: Vec<Slot> = revivable.values().copied().filter(|slot| *slot != answered).collect();
        let neighbour = self.queue.id(answered).clone();
        for slot in neighbours {
            self.revive(slot);
            self.take_out(slot);
            let target = self.target_mut(slot);
            target.schedule.revived = true;
            target.schedule.due = now;
            target.why = Why::Revived { neighbour: neighbour.clone() };
            self.settle(slot, now);
            self.persist(slot, true);
        }
    }
}
