//! Computes the interval to the next poll after a success.
//!
//! The `pulse` formula, its constants and its test vectors come from Pulse's `scheduler.go`.
//!
//! `adaptive` uses the same formula with another score. Pulse's is zero right after a success, so it cannot favour a
//! target that changes. Ours is the greater of staleness and *activity*, and activity is chosen so that the interval
//! follows the rate at which a target is expected to change ([`crate::rates`]):
//!
//! `interval = base · √(one change an hour / expected rate) · stretch`
//!
//! Let `r` be the rate of a target's changes and `T` its interval. A change is detected `T/2` later on average. For a
//! fixed number of polls over many targets, `T ∝ 1/√r` minimises the mean delay over all changes (Lagrange
//! multiplier). The simulator computes the best intervals for the true rates, for comparison. (Cho and Garcia-Molina,
//! "Effective page refresh policies", 2003, and Azar, Horvitz and others, "Tractable near-optimal policies for
//! crawling", PNAS 2018, solve the same problem for the time that a copy is stale. Their solutions stop polling pages
//! that change too often, which a poller must not do.)
//!
//! The base is the interval of a target that changes once an hour. It is also the longest interval, unless an operator
//! set another: a target is never polled less often than its interval promises. All targets together are limited to
//! twice the polls that their base intervals would cost (`stretch`), so that an estate with many incidents is not
//! overloaded by its poller. Where an operator allowed longer intervals, the limit is the number of polls that the base
//! intervals would cost. Polls of targets in trouble are limited further, so that they do not delay the detection of
//! incidents ([`crate::target::Spending::stretch`]).

use model::Cadence;
use std::time::Duration;

/// Weight of the new target interval against the last smoothed one.
const ALPHA: f64 = 0.6;
/// How much each failure before this success tightens the interval.
const ERROR_PENALTY: f64 = 0.6;
/// How much each poll held back by a cap lengthens the interval.
const QUEUE_STRETCH: f64 = 0.1;
/// The interval varies by this fraction in either direction.
const JITTER: f64 = 0.05;
/// The rate of changes per second at which a target is polled at its base interval.
const RATE_AT_BASE: f64 = 1.0 / 3600.0;

/// The inputs of the formula besides the score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Consecutive failures that this success ended.
    pub errors: u32,
    /// Targets held back by the process-wide cap or the token bucket.
    pub due: usize,
}

/// The bounds of a target's interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The initial `last` of the smoothing, and the interval of `fixed`.
    pub base: Duration,
    /// The shortest interval.
    pub min: Duration,
    /// The longest interval.
    pub max: Duration,
}

impl Bounds {
    /// Returns the nearest interval within the bounds, in seconds.
    pub(crate) fn clamp(&self, seconds: f64) -> f64 {
        seconds.min(self.max.as_secs_f64()).max(self.min.as_secs_f64())
    }
}

/// Returns `min + (max − min)·(1 − score)` in seconds, shortened by errors and lengthened by load.
pub(crate) fn target_interval(bounds: &Bounds, score: f64, load: Load) -> f64 {
    let (min, max) = (bounds.min.as_secs_f64(), bounds.max.as_secs_f64());
    let mut target = min + (max - min) * (1.0 - score.clamp(0.0, 1.0));
    if load.errors > 0 {
        target = min.max(target / (1.0 + ERROR_PENALTY * f64::from(load.errors)));
    }
    if load.due > 1 {
        target = max.min(target * (1.0 + QUEUE_STRETCH * (load.due - 1) as f64));
    }
    target
}

/// Returns `0.6·target + 0.4·last` in seconds, within the bounds.
pub(crate) fn smoothed_interval(bounds: &Bounds, target: f64, last: f64) -> f64 {
    bounds.clamp(ALPHA * target + (1.0 - ALPHA) * last)
}

/// An interval and the terms that it was computed from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Computed {
    pub cadence: Cadence,
    pub bounds: Bounds,
    pub scores: Scores,
    pub load: Load,
    /// The interval before smoothing, in seconds.
    pub target: f64,
    /// The last smoothed interval, in seconds.
    pub last: f64,
    /// The smoothed interval, before jitter.
    pub interval: Duration,
}

/// Computes the smoothed interval of a cadence, before jitter.
pub(crate) fn compute(
    cadence: Cadence,
    bounds: Bounds,
    scores: Scores,
    load: Load,
    last: Option<Duration>,
) -> Computed {
    let last = last.unwrap_or(bounds.base).as_secs_f64();
    let target = match cadence {
        Cadence::Fixed => bounds.base.as_secs_f64(),
        Cadence::Pulse | Cadence::Adaptive => target_interval(&bounds, scores.of(cadence), load),
    };
    let seconds = match cadence {
        Cadence::Fixed => target,
        Cadence::Adaptive if target < last => bounds.clamp(target),
        Cadence::Pulse | Cadence::Adaptive => smoothed_interval(&bounds, target, last),
    };
    Computed { cadence, bounds, scores, load, target, last, interval: Duration::from_secs_f64(seconds) }
}

/// Returns the interval with jitter, within the bounds. `unit` is uniform in [0, 1); `fixed` has no jitter.
pub(crate) fn jittered(computed: &Computed, unit: f64) -> Duration {
    if computed.cadence == Cadence::Fixed {
        return computed.interval;
    }
    let spread = 1.0 + (2.0 * unit - 1.0) * JITTER;
    Duration::from_secs_f64(computed.bounds.clamp(computed.interval.as_secs_f64() * spread))
}

/// Returns the delay until the next poll for a plugin's wish, within the bounds and the budget of polls. `unit` is
/// uniform in [0, 1): the poll is up to 5 % later, so that targets with the same wish are not polled together.
pub(crate) fn wished(computed: &Computed, wish: Duration, unit: f64) -> Duration {
    let wanted = computed.bounds.clamp(wish.as_secs_f64()) * computed.scores.stretch;
    Duration::from_secs_f64(computed.bounds.clamp(wanted * (1.0 + unit * JITTER)))
}

/// The scores of a target; `staleness` and `activity` are in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scores {
    /// Age of the last success over the longest interval; 1 if there was none.
    pub staleness: f64,
    /// 0 if the longest interval is short enough for the expected change, 1 if the shortest is needed.
    pub activity: f64,
    /// Expected changes per second.
    pub rate: f64,
    /// The interval for that rate, in seconds, before the budget is applied.
    pub wanted: f64,
    /// The factor on `wanted` that keeps the polls of all targets within the budget; at least 1.
    pub stretch: f64,
}

impl Scores {
    /// Returns the score that the cadence uses.
    pub(crate) fn of(&self, cadence: Cadence) -> f64 {
        match cadence {
            Cadence::Adaptive => self.staleness.max(self.activity),
            Cadence::Pulse | Cadence::Fixed => self.staleness,
        }
    }
}

/// Returns the age of the last success over `max`, at most 1; 1 if there was none.
pub(crate) fn staleness(age: Option<Duration>, max: Duration) -> f64 {
    age.map_or(1.0, |age| (age.as_secs_f64() / max.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0))
}

/// Returns the interval in seconds for a rate of changes, within the bounds and before the budget is applied.
pub(crate) fn wanted(bounds: &Bounds, rate: f64) -> f64 {
    let (min, max) = (bounds.min.as_secs_f64(), bounds.max.as_secs_f64());
    let wanted = bounds.base.as_secs_f64() * (RATE_AT_BASE / rate.max(f64::MIN_POSITIVE)).sqrt();
    wanted.clamp(min, max)
}

/// Returns the score for which the formula yields `wanted` seconds.
pub(crate) fn activity(bounds: &Bounds, wanted: f64) -> f64 {
    let (min, max) = (bounds.min.as_secs_f64(), bounds.max.as_secs_f64());
    if max > min { ((max - wanted) / (max - min)).clamp(0.0, 1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { base: Duration::from_secs(10), min: Duration::from_secs(5), max: Duration::from_secs(300) };

    #[test]
    fn pulse_formula_matches_the_reference_vectors() {
        // score, errors, due, last, target, smoothed: computed by Pulse's formula with its default bounds.
        let vectors = [
            (0.0, 0, 1, 10.0, 300.0, 184.0),
            (0.0, 0, 1, 184.0, 300.0, 253.6),
            (1.0, 0, 1, 184.0, 5.0, 76.6),
            (0.5, 0, 1, 10.0, 152.5, 95.5),
            (0.5, 2, 1, 10.0, 69.318_182, 45.590_909),
            (0.5, 0, 11, 10.0, 300.0, 184.0),
            (0.12, 0, 7, 60.0, 300.0, 204.0),
            (1.0, 5, 50, 5.0, 29.5, 19.7),
            (0.0, 0, 40, 300.0, 300.0, 300.0),
        ];
        for (score, errors, due, last, target, smoothed) in vectors {
            let found = target_interval(&BOUNDS, score, Load { errors, due });
            assert!((found - target).abs() < 1e-6, "target of {score} {errors} {due}: {found}");
            let found = smoothed_interval(&BOUNDS, found, last);
            assert!((found - smoothed).abs() < 1e-6, "smoothed of {score} {errors} {due} {last}: {found}");
        }
    }

    #[test]
    fn adaptive_tightens_at_once_and_relaxes_slowly() {
        let at = |activity, last| {
            let scores = Scores { staleness: 0.0, activity, rate: 0.0, wanted: 0.0, stretch: 1.0 };
            let last = Some(Duration::from_secs(last));
            compute(Cadence::Adaptive, BOUNDS, scores, Load::default(), last).interval.as_secs_f64()
        };
        assert_eq!(at(1.0, 300), 5.0);
        assert_eq!(at(0.0, 5), 182.0);
        assert_eq!(staleness(None, BOUNDS.max), 1.0);
        assert_eq!(staleness(Some(Duration::from_secs(30)), BOUNDS.max), 0.1);
        assert_eq!(staleness(Some(Duration::from_secs(3000)), BOUNDS.max), 1.0);
    }

    #[test]
    fn the_interval_follows_the_rate_of_changes() {
        let hourly = 1.0 / 3600.0;
        assert_eq!(wanted(&BOUNDS, hourly), 10.0, "one change an hour yields the base interval");
        assert!(
            (wanted(&BOUNDS, hourly / 81.0) - 90.0).abs() < 1e-9,
            "a rate 81 times lower yields an interval nine times longer"
        );
        assert_eq!(wanted(&BOUNDS, 0.0), 300.0);
        assert_eq!(wanted(&BOUNDS, f64::MAX), 5.0);
        for seconds in [5.0, 20.0, 152.5, 300.0] {
            let aimed = target_interval(&BOUNDS, activity(&BOUNDS, seconds), Load::default());
            assert!((aimed - seconds).abs() < 1e-9, "{aimed}");
        }
        assert_eq!(activity(&Bounds { max: BOUNDS.min, ..BOUNDS }, 5.0), 1.0);
    }

    #[test]
    fn a_wish_stays_within_the_bounds_and_the_budget() {
        let at = |wish: u64, stretch, unit| {
            let scores = Scores { staleness: 0.0, activity: 0.0, rate: 0.0, wanted: 0.0, stretch };
            let computed = compute(Cadence::Adaptive, BOUNDS, scores, Load::default(), None);
            wished(&computed, Duration::from_millis(wish), unit).as_secs_f64()
        };
        assert_eq!((at(60_000, 1.0, 0.0), at(60_000, 1.0, 1.0)), (60.0, 63.0));
        assert_eq!((at(0, 1.0, 0.0), at(u32::MAX.into(), 1.0, 0.9)), (5.0, 300.0));
        assert_eq!((at(0, 2.0, 0.0), at(200_000, 2.0, 0.0)), (10.0, 300.0), "the budget lengthens it");
    }

    #[test]
    fn jitter_stays_within_five_percent_and_the_bounds() {
        let at = |cadence, seconds, unit| {
            let scores = Scores { staleness: 0.0, activity: 0.0, rate: 0.0, wanted: 0.0, stretch: 1.0 };
            let computed = compute(cadence, BOUNDS, scores, Load::default(), None);
            jittered(&Computed { interval: Duration::from_secs(seconds), ..computed }, unit).as_secs_f64()
        };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-3, "{found}");
        near(at(Cadence::Pulse, 100, 0.0), 95.0);
        near(at(Cadence::Pulse, 100, 0.5), 100.0);
        near(at(Cadence::Pulse, 100, 0.999_999), 105.0);
        near(at(Cadence::Pulse, 300, 0.9), 300.0);
        near(at(Cadence::Pulse, 5, 0.1), 5.0);
        near(at(Cadence::Fixed, 100, 0.0), 100.0);
    }
}
