//! The scheduler's state of one target.

use crate::Settings;
use crate::breaker::Transitions;
use crate::cadence::{Bounds, Scores, activity, staleness, wanted};
use crate::queue::Slot;
use crate::rates::{Learn, PopulationPrior};
use crate::settings::PULSE_MAX;
use crate::why::Why;
use model::{BreakerState, Cadence, Kind, Moment, Place, Schedule, TargetId};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// Upper bound on a Retry-After.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// The base interval if neither the target, the operator nor the kind sets one.
const BASE: Duration = Duration::from_secs(10);
/// The limits on every interval bound, whatever a server or a configuration requests.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));

/// The parts of a target's definition that the scheduler uses.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// The id of the target.
    pub id: TargetId,
    /// The kind of the target, which selects its plugin.
    pub kind: Kind,
    /// A hash of the URL; orders first polls.
    pub url_hash: u64,
    /// Lower-case host name; concurrent polls are limited per host.
    pub host: Arc<str>,
    /// Scheme, host and port; a success of one target revives dead letters of the same origin.
    pub origin: Arc<str>,
    /// The target's own cadence.
    pub cadence: Option<Cadence>,
    /// The target's own base interval.
    pub interval: Option<Duration>,
    /// The target's own shortest interval.
    pub min: Option<Duration>,
    /// The target's own longest interval.
    pub max: Option<Duration>,
    /// The base interval of its kind.
    pub kind_interval: Option<Duration>,
    /// Whether the target is polled.
    pub enabled: bool,
}

/// Returns true if a target is unreachable: after two consecutive failures, or after one failure if the next poll does
/// not come soon (before any success, with an open breaker, as a dead letter, or with a Retry-After longer than its
/// interval and a minute).
pub(crate) fn is_unreachable(schedule: &Schedule<Moment>) -> bool {
    const SOON: Duration = Duration::from_secs(60);
    // Allows for jitter and the duration of a poll.
    const MARGIN: f64 = 1.2;
    let soon = schedule.interval.unwrap_or_default().max(SOON).mul_f64(MARGIN);
    let waits_long = schedule.last_polled.is_some_and(|polled| schedule.due.since(polled) > soon);
    match schedule.failures.max(schedule.plugin_faults) {
        0 => false,
        1 => {
            let is_open = schedule.breaker.state != BreakerState::Closed;
            schedule.last_success.is_none() || schedule.dead.is_some() || is_open || waits_long
        }
        _ => true,
    }
}

/// Resets streaks, breaker and dead letter after the target's definition changed.
pub(crate) fn reset(schedule: &mut Schedule<Moment>) {
    *schedule = Schedule {
        last_success: schedule.last_success,
        last_polled: schedule.last_polled,
        last_change: schedule.last_change,
        ..Schedule::new(schedule.due)
    };
}

/// A target's schedule as the API and the user interface show it.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetStatus {
    /// The place of the target.
    pub place: Place,
    /// The schedule of the target.
    pub schedule: Schedule<Moment>,
    /// Whether the target is unreachable.
    pub unreachable: bool,
    /// The longest interval. The staleness is 1 when the last success is this old.
    pub longest: Duration,
    /// The active cadence.
    pub cadence: Cadence,
    /// Whether the target is polled. A poll that is in flight ends normally after the target is disabled.
    pub enabled: bool,
}

/// A poll in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub host: Arc<str>,
    pub kind: Kind,
    pub due: Moment,
    pub started: Moment,
    /// The number of polls started before this one.
    pub number: u64,
    /// Whether it takes one of the slots for targets whose last poll was slow or failed.
    pub doubtful: bool,
    /// The target was changed or removed since the start; the outcome is ignored.
    pub void: bool,
    /// The plugin was replaced since the start; the outcome does not count for the new version.
    pub outdated: bool,
}

/// A due target that waits for a process-wide cap.
#[derive(Clone, Debug)]
pub(crate) struct ReadyEntry {
    pub due: Moment,
    pub score: f32,
    pub last_polled: Moment,
    pub id: TargetId,
    pub slot: Slot,
    /// Whether the target's last poll was slow or failed.
    pub doubtful: bool,
}

impl Ord for ReadyEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due.cmp(&other.due))
            .then_with(|| other.score.total_cmp(&self.score))
            .then_with(|| self.last_polled.cmp(&other.last_polled))
            .then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for ReadyEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReadyEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ReadyEntry {}

/// The factor by which equal intervals may be longer while targets are quiet, for shorter ones in trouble.
const SLOWER_WHILE_QUIET: f64 = 1.02;
/// The largest factor on the intervals of targets in trouble.
const MOST_STRETCH: f64 = 10.0;

/// Numbers of one target, or their sums over all targets, from which the budget of polls is computed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spending {
    /// Polls per second that the adaptive cadence wants.
    pub wanted: f64,
    /// The part of `wanted` of targets in trouble.
    pub in_trouble: f64,
    /// The budget: twice the rate of the base interval, or once if the interval may be longer than the base.
    pub allowed: f64,
    /// The number of targets.
    pub targets: f64,
    /// The number of quiet targets. Sums of whole numbers are exact, those of other numbers keep a rounding error.
    pub quiet: f64,
    /// Expected changes per second of quiet targets.
    pub changes: f64,
    /// The sum of their expected changes per second, each multiplied by the wanted interval in seconds.
    pub exposure: f64,
}

impl Spending {
    /// Adds `new` and subtracts `old`.
    pub(crate) fn replace(&mut self, old: &Self, new: &Self) {
        self.wanted += new.wanted - old.wanted;
        self.in_trouble += new.in_trouble - old.in_trouble;
        self.allowed += new.allowed - old.allowed;
        self.targets += new.targets - old.targets;
        self.quiet += new.quiet - old.quiet;
        self.changes += new.changes - old.changes;
        self.exposure += new.exposure - old.exposure;
    }

    /// Returns the factor on the wanted interval of a target, at least 1.
    ///
    /// The first factor keeps the polls of all targets within the budget. The second one, for targets in trouble, keeps
    /// the beginning of an incident from being detected later than with equal intervals, however many targets are in
    /// trouble: the mean interval of quiet targets, weighted by their changes, is at most [`SLOWER_WHILE_QUIET`] times
    /// the interval with which all targets together would be polled as often.
    pub(crate) fn stretch(&self, in_trouble: bool) -> f64 {
        let budget = if self.allowed > 0.0 { (self.wanted / self.allowed).max(1.0) } else { 1.0 };
        if !in_trouble || self.quiet < 1.0 || self.exposure <= 0.0 {
            return budget;
        }
        let polls = SLOWER_WHILE_QUIET * self.targets * self.changes / self.exposure;
        let rest = polls - (self.wanted - self.in_trouble);
        let trouble = if rest > 0.0 { (self.in_trouble / rest).max(1.0) } else { MOST_STRETCH };
        budget * trouble.min(MOST_STRETCH)
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    pub spec: TargetSpec,
    pub place: Place,
    /// The place at the last drain.
    pub announced: Place,
    pub schedule: Schedule<Moment>,
    /// The reason for the due time.
    /// Whether a failure since the last success asked to wait (Retry-After).
    pub asked_to_wait: bool,
    pub why: Why,
    /// The poll in flight.
    pub in_flight: Option<InFlight>,
    /// The entry in the scheduler's ready set; `None` if the target is not ready.
    pub ready_entry: Option<ReadyEntry>,
    /// The target's part of the scheduler's total spending.
    pub spending: Spending,
    /// The number of results that are not written to the database.
    pub unwritten: u8,
    /// The scheduler's step in which the target last became ready.
    pub ready_since: u64,
    /// Whether the last poll took longer than `SLOW`.
    pub slow: bool,
}

impl Target {
    pub(crate) fn new(spec: TargetSpec, schedule: Schedule<Moment>, why: Why) -> Self {
        Self {
            spec,
            place: Place::Disabled,
            announced: Place::Disabled,
            schedule,
            why,
            asked_to_wait: false,
            in_flight: None,
            ready_entry: None,
            spending: Spending::default(),
            unwritten: 0,
            ready_since: 0,
            slow: false,
        }
    }

    /// Returns true if the last poll was slow or failed, because the next one may hang too.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.slow || self.schedule.failures > 0 || self.schedule.plugin_faults > 0
    }

    pub(crate) fn cadence(&self, settings: &Settings) -> Cadence {
        self.spec.cadence.unwrap_or(settings.cadence)
    }

    /// Returns the interval bounds.
    pub(crate) fn bounds(&self, settings: &Settings) -> Bounds {
        bounds(&self.spec, settings, self.cadence(settings))
    }

    /// Returns the longest interval that an operator set.
    pub(crate) fn longest(&self, settings: &Settings) -> Option<Duration> {
        longest(&self.spec, settings)
    }

    /// Returns the interval while the target answers: the last one computed, or the base.
    pub(crate) fn interval(&self, settings: &Settings) -> Duration {
        self.schedule.interval.unwrap_or_else(|| self.bounds(settings).base)
    }

    /// Returns the interval at which the target is polled as a dead letter.
    pub(crate) fn dead_letter_interval(&self, settings: &Settings) -> Duration {
        settings.profile.dead_letter_interval(settings, self.interval(settings))
    }

    pub(crate) fn scores(
        &self,
        settings: &Settings,
        (spending, population_prior): (&Spending, &PopulationPrior),
        now: Moment,
    ) -> Scores {
        let (schedule, bounds) = (&self.schedule, self.bounds(settings));
        let staleness = self.staleness(settings, now);
        if self.cadence(settings) != Cadence::Adaptive {
            return Scores { staleness, activity: 0.0, rate: 0.0, wanted: 0.0, stretch: 1.0 };
        }
        let rate = schedule.rates.expected(schedule.critical, population_prior);
        let wanted = wanted(&bounds, rate);
        let stretch = spending.stretch(schedule.critical);
        let activity = activity(&bounds, wanted * stretch);
        Scores { staleness, activity, rate, wanted, stretch }
    }

    fn staleness(&self, settings: &Settings, now: Moment) -> f64 {
        let age = self.schedule.last_success.map(|moment| now.since(moment));
        staleness(age, self.bounds(settings).max)
    }

    /// Returns the key of a waiting list. It is constant while a target waits, because only a poll changes it.
    pub(crate) fn last_polled(&self) -> Moment {
        self.schedule.last_polled.unwrap_or(Moment::from_nanos(i64::MIN))
    }

    /// Returns the latest plausible due time. A restored due time is checked against it, so that a clock that jumped
    /// while the host was down does not stall the target.
    pub(crate) fn latest_due(&self, settings: &Settings, now: Moment) -> Moment {
        let failing = self.schedule.failures > 0 || self.schedule.plugin_faults > 0;
        let longest = match (self.schedule.dead, self.schedule.breaker.open_for) {
            (Some(_), _) => self.dead_letter_interval(settings).mul_f64(1.1).max(LONGEST_RETRY_AFTER),
            (None, open_for) if failing || open_for.is_some() => LONGEST_RETRY_AFTER,
            // Includes the jitter, and the delay that the last poll of a killed host may have had.
            _ => self.bounds(settings).max.mul_f64(1.06),
        };
        now.after(longest)
    }

    pub(crate) fn status(&self, settings: &Settings) -> TargetStatus {
        TargetStatus {
            place: self.place,
            schedule: self.schedule.clone(),
            unreachable: is_unreachable(&self.schedule),
            longest: self.bounds(settings).max,
            cadence: self.cadence(settings),
            enabled: self.spec.enabled,
        }
    }

    /// Returns the schedule to save. A probe in flight is saved as one that ended without an outcome, as after a
    /// restart.
    pub(crate) fn saved(&self, settings: &Settings, now: Moment) -> Schedule<Moment> {
        let mut saved = self.schedule.clone();
        let is_probe = saved.dead.is_some() && self.in_flight.as_ref().is_some_and(|in_flight| !in_flight.void);
        if saved.breaker.state == BreakerState::HalfOpen || is_probe {
            let again = saved.breaker.lose_probe(now).unwrap_or_default();
            let dead = if saved.dead.is_some() { self.dead_letter_interval(settings) } else { Duration::ZERO };
            saved.due = now.after(again.max(dead));
        }
        saved
    }
}

fn longest(spec: &TargetSpec, settings: &Settings) -> Option<Duration> {
    spec.max.or(settings.max)
}

/// Returns the interval bounds of a target with this cadence. A base outside them is moved to the nearer bound.
pub(crate) fn bounds(spec: &TargetSpec, settings: &Settings, cadence: Cadence) -> Bounds {
    let min = spec.min.unwrap_or(settings.min).clamp(BOUNDS.0, BOUNDS.1);
    let base = spec.interval.or(settings.base).or(spec.kind_interval).unwrap_or(BASE);
    // The base is the longest interval, unless an operator set one or selected the `pulse` cadence.
    let max = longest(spec, settings).unwrap_or(match cadence {
        Cadence::Pulse => PULSE_MAX,
        Cadence::Adaptive | Cadence::Fixed => base,
    });
    let max = max.clamp(min, BOUNDS.1);
    Bounds { base: base.clamp(min, max), min, max }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums over targets, each with its wanted interval in seconds and its rate of changes if it is quiet.
    fn sums(all: &[(usize, f64, Option<f64>)], allowed: f64) -> Spending {
        let mut sums = Spending { allowed, ..Spending::default() };
        for (count, interval, rate) in all {
            let (count, rate, polls) = (*count as f64, *rate, *count as f64 / interval);
            let in_trouble = if rate.is_none() { polls } else { 0.0 };
            let rate = rate.unwrap_or(0.0);
            let (changes, exposure) = (count * rate, count * rate * interval);
            let quiet = if in_trouble > 0.0 { 0.0 } else { count };
            let one = Spending { wanted: polls, in_trouble, allowed: 0.0, targets: count, quiet, changes, exposure };
            sums.replace(&Spending::default(), &one);
        }
        sums
    }

    #[test]
    fn the_polls_of_all_targets_stay_within_the_budget() {
        let all = [(10, 5.0, Some(0.001))];
        assert_eq!(sums(&all, 4.0).stretch(false), 1.0);
        assert_eq!(sums(&all, 0.5).stretch(false), 4.0, "two polls a second are wanted, and half a one is allowed");
        assert_eq!(Spending::default().stretch(true), 1.0, "no target");
    }

    #[test]
    fn targets_in_trouble_do_not_delay_the_detection_of_incidents() {
        // All targets are alike: quiet ones are polled every 100 s, those in trouble every 10 s.
        let alike = sums(&[(90, 100.0, Some(0.001)), (10, 10.0, None)], 100.0);
        assert_eq!(alike.stretch(false), 1.0);
        let stretch = alike.stretch(true);
        let equal = 100.0 / (90.0 / 100.0 + 10.0 / (10.0 * stretch));
        assert!((100.0 / equal - SLOWER_WHILE_QUIET).abs() < 1e-9, "{stretch}: {equal}");
        // The changes come from targets that are polled often anyway.
        let mixed = sums(&[(90, 100.0, Some(1e-6)), (10, 10.0, Some(0.01)), (10, 10.0, None)], 100.0);
        assert_eq!(mixed.stretch(true), 1.0);
        let hopeless = sums(&[(10, 10.0, Some(1e-6)), (1, 100.0, Some(0.1)), (10, 10.0, None)], 100.0);
        assert_eq!(hopeless.stretch(true), MOST_STRETCH);
    }

    #[test]
    fn rounding_errors_do_not_stretch_intervals_when_no_target_is_quiet() {
        let target = |polls: f64, quiet: f64| Spending {
            wanted: polls,
            in_trouble: polls * (1.0 - quiet),
            allowed: 10.0,
            targets: 1.0,
            quiet,
            changes: quiet * polls * polls,
            exposure: quiet * polls,
        };
        for count in 1..40 {
            let (mut sums, mut held) = (Spending::default(), vec![Spending::default(); count]);
            for round in 1..=50 {
                for (number, before) in held.iter_mut().enumerate() {
                    let now = target(1.0 / (f64::from(round) * 1.7 + number as f64 / 3.0), 1.0);
                    sums.replace(&std::mem::replace(before, now), &now);
                }
            }
            held.iter().for_each(|before| sums.replace(before, &target(0.1, 0.0)));
            assert_eq!(sums.stretch(true), 1.0, "{count}: {sums:?}");
        }
    }
}
