//! How long until the next poll after a success.
//!
//! The `pulse` formula is that of Pulse's `scheduler.go`; constants and test vectors are its own.
//!
//! `adaptive` is the same formula with another score. Pulse's is zero right after a success, so it cannot favour a target
//! that changes. Ours is the greater of staleness and *activity*, and activity is chosen so that the interval follows the
//! rate at which a target is expected to change ([`crate::rates`]):
//!
//! `wanted = base · (one change an hour / expected rate)^(2/3) · stretch`
//!
//! With `r` the rate of a target's changes and `T` its interval, a change waits `T/2` on average to be seen. Of all ways to
//! spend a number of polls on many targets, `T ∝ r^−p` makes the mean over all changes of the delay's `(1/p − 1)`-th power
//! least, by Lagrange's multiplier: `p = 1/2` is best for the mean delay, and `p = 1` for the mean of its logarithm, which
//! a median follows, but no better than equal intervals for the mean. 2/3 lies between: it is best for the mean square
//! root, and better than equal intervals by either measure. (Cho and Garcia-Molina, "Effective page refresh policies", 2003,
//! and Azar, Horvitz and others, "Tractable near-optimal policies for crawling", PNAS 2018, solve the same problem for the
//! time that a copy is stale, where what changes too often is given up; nobody wants that of a poller.)
//!
//! The base is the interval of a target that changes once an hour, and the longest one, unless an operator set another: an
//! interval is a promise. What all targets want together is held to twice the polls that their bases would cost
//! (`stretch`), so that an estate on fire is not set upon by its poller; where an operator allowed longer intervals, to as
//! many polls as the bases would cost.

use model::Cadence;
use std::time::Duration;

/// Weight of the new target interval against the last smoothed one.
const ALPHA: f64 = 0.6;
/// How much each failure before this success tightens the interval.
const ERROR_PENALTY: f64 = 0.6;
/// How much each poll held back by a cap stretches the interval.
const QUEUE_STRETCH: f64 = 0.1;
/// The interval is spread by this fraction to either side.
const JITTER: f64 = 0.05;
/// Activity while a dependency is critical, at least: people wait for its end.
const ACTIVITY_WHILE_CRITICAL: f64 = 0.5;
/// The rate of changes, in a second, at which a target's base interval is right.
const RATE_AT_BASE: f64 = 1.0 / 3600.0;
/// How strongly the interval follows the rate; see above.
const EXPONENT: f64 = 2.0 / 3.0;
/// After a change another is expected at the rate above, less and less: by half in this time.
const AFTERMATH: Duration = Duration::from_secs(600);

/// What the formula is told beside the score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Failures in a row that this success ended.
    pub errors: u32,
    /// Targets held back by the cap over the process or the token bucket.
    pub due: usize,
}

/// The bounds within which a target is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The first `last` of the smoothing, and the interval of `fixed`.
    pub base: Duration,
    /// Never more often.
    pub min: Duration,
    /// Never less often.
    pub max: Duration,
}

impl Bounds {
    fn clamp(&self, seconds: f64) -> f64 {
        seconds.min(self.max.as_secs_f64()).max(self.min.as_secs_f64())
    }
}

/// `min + (max − min)·(1 − score)`, tightened by errors and stretched by load. Seconds.
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

/// `0.6·target + 0.4·last`, within the bounds. Seconds.
pub(crate) fn smoothed_interval(bounds: &Bounds, target: f64, last: f64) -> f64 {
    bounds.clamp(ALPHA * target + (1.0 - ALPHA) * last)
}

/// How an interval came about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Computed {
    /// By which cadence.
    pub cadence: Cadence,
    /// Within which bounds.
    pub bounds: Bounds,
    /// From which scores.
    pub scores: Scores,
    /// Under which load.
    pub load: Load,
    /// What the formula aimed at, in seconds.
    pub target: f64,
    /// The last smoothed interval, in seconds.
    pub last: f64,
    /// The interval, before jitter.
    pub interval: Duration,
}

/// The smoothed interval that a cadence gives, before jitter, and how it came about.
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

/// The interval with its jitter, within the bounds. `unit` is uniform in [0, 1); `fixed` has none.
pub(crate) fn jittered(computed: &Computed, unit: f64) -> Duration {
    if computed.cadence == Cadence::Fixed {
        return computed.interval;
    }
    let spread = 1.0 + (2.0 * unit - 1.0) * JITTER;
    Duration::from_secs_f64(computed.bounds.clamp(computed.interval.as_secs_f64() * spread))
}

/// Why a target should be polled soon, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scores {
    /// Age of the last success over the longest interval; 1 when there was none.
    pub staleness: f64,
    /// How soon a change is expected, between the longest interval (0) and the shortest (1).
    pub activity: f64,
    /// Changes expected in a second.
    pub rate: f64,
    /// The interval that they call for, in seconds, without a share of the budget.
    pub wanted: f64,
    /// By how much all targets' wishes are stretched to stay within what their bases allow; 1 or more.
    pub stretch: f64,
}

impl Scores {
    /// The score that a cadence goes by.
    pub(crate) fn of(&self, cadence: Cadence) -> f64 {
        match cadence {
            Cadence::Adaptive => self.staleness.max(self.activity),
            Cadence::Pulse | Cadence::Fixed => self.staleness,
        }
    }
}

/// Age of the last success over `max`, at most 1; 1 when there was none.
pub(crate) fn staleness(age: Option<Duration>, max: Duration) -> f64 {
    age.map_or(1.0, |age| (age.as_secs_f64() / max.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0))
}

/// Changes expected in a second: what was learnt, or a recent change's aftermath.
pub(crate) fn expected_rate(learnt: f64, since_change: Option<Duration>) -> f64 {
    let halves = |age: Duration| age.as_secs_f64() / AFTERMATH.as_secs_f64();
    learnt.max(since_change.map_or(0.0, |age| RATE_AT_BASE * 0.5_f64.powf(halves(age))))
}

/// The interval, in seconds, that a rate of changes calls for, within the bounds and without a share of the budget.
pub(crate) fn wanted(bounds: &Bounds, rate: f64) -> f64 {
    let (min, max) = (bounds.min.as_secs_f64(), bounds.max.as_secs_f64());
    let wish = bounds.base.as_secs_f64() * (RATE_AT_BASE / rate.max(f64::MIN_POSITIVE)).powf(EXPONENT);
    wish.clamp(min, max)
}

/// The score that makes the formula aim at `wanted` seconds.
pub(crate) fn activity(bounds: &Bounds, wanted: f64, critical: bool) -> f64 {
    let (min, max) = (bounds.min.as_secs_f64(), bounds.max.as_secs_f64());
    let activity = if max > min { ((max - wanted) / (max - min)).clamp(0.0, 1.0) } else { 1.0 };
    if critical { activity.max(ACTIVITY_WHILE_CRITICAL) } else { activity }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { base: Duration::from_secs(10), min: Duration::from_secs(5), max: Duration::from_secs(300) };

    #[test]
    fn pulse_vectors() {
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
        assert_eq!(wanted(&BOUNDS, hourly), 10.0, "the base is right for one change an hour");
        assert!((wanted(&BOUNDS, hourly / 27.0) - 90.0).abs() < 1e-9, "27 times as rare, nine times as long");
        assert_eq!(wanted(&BOUNDS, 0.0), 300.0);
        assert_eq!(wanted(&BOUNDS, f64::MAX), 5.0);
        for seconds in [5.0, 20.0, 152.5, 300.0] {
            let aimed = target_interval(&BOUNDS, activity(&BOUNDS, seconds, false), Load::default());
            assert!((aimed - seconds).abs() < 1e-9, "{aimed}");
        }
        assert_eq!(activity(&BOUNDS, 300.0, true), 0.5, "an outage is looked at");
        assert_eq!(activity(&Bounds { max: BOUNDS.min, ..BOUNDS }, 5.0, false), 1.0);
        assert_eq!(expected_rate(0.0, None), 0.0);
        assert_eq!(expected_rate(0.0, Some(Duration::from_secs(600))), hourly / 2.0);
        assert_eq!(expected_rate(1.0, Some(Duration::ZERO)), 1.0);
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
