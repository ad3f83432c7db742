//! How long until the next poll after a success.
//!
//! The `pulse` formula is that of Pulse's `scheduler.go`; constants and test vectors are its own.

use std::time::Duration;

/// Weight of the new target interval against the last smoothed one.
const ALPHA: f64 = 0.6;
/// How much each failure before this success tightens the interval.
const ERROR_PENALTY: f64 = 0.6;
/// How much each poll held back by a cap stretches the interval.
const QUEUE_STRETCH: f64 = 0.1;
/// The interval is spread by this fraction to either side.
const JITTER: f64 = 0.05;
/// Activity halves in this time.
const ACTIVITY_HALF_LIFE: Duration = Duration::from_secs(600);
/// Activity while a dependency is critical.
const ACTIVITY_WHILE_CRITICAL: f64 = 0.5;

/// What follows a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// Pulse's formula, scored by staleness or recent activity; tightens at once and relaxes slowly.
    Adaptive,
    /// Pulse's formula to the letter.
    Pulse,
    /// The target's base interval.
    Fixed,
}

impl Cadence {
    /// Every cadence.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Pulse, Self::Fixed];

    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Pulse => "pulse",
            Self::Fixed => "fixed",
        }
    }

    /// The cadence that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cadence| cadence.as_str() == word)
    }
}

/// What the formula is told beside the score.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Failures in a row that this success ended.
    pub errors: u32,
    /// Targets held back by the cap over the process or the token bucket.
    pub due: usize,
}

/// The bounds within which a target is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
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
pub fn target_interval(bounds: &Bounds, score: f64, load: Load) -> f64 {
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
pub fn smoothed_interval(bounds: &Bounds, target: f64, last: f64) -> f64 {
    bounds.clamp(ALPHA * target + (1.0 - ALPHA) * last)
}

/// The smoothed interval that a cadence gives, before jitter.
pub(crate) fn interval(
    cadence: Cadence,
    bounds: &Bounds,
    scores: Scores,
    load: Load,
    last: Option<Duration>,
) -> Duration {
    let last = last.unwrap_or(bounds.base).as_secs_f64();
    let seconds = match cadence {
        Cadence::Fixed => return bounds.base,
        Cadence::Pulse => smoothed_interval(bounds, target_interval(bounds, scores.staleness, load), last),
        Cadence::Adaptive => {
            let target = target_interval(bounds, scores.staleness.max(scores.activity), load);
            if target < last { bounds.clamp(target) } else { smoothed_interval(bounds, target, last) }
        }
    };
    Duration::from_secs_f64(seconds)
}

/// The interval with its jitter, within the bounds. `unit` is uniform in [0, 1); `fixed` has none.
pub(crate) fn jittered(cadence: Cadence, bounds: &Bounds, interval: Duration, unit: f64) -> Duration {
    if cadence == Cadence::Fixed {
        return interval;
    }
    let spread = 1.0 + (2.0 * unit - 1.0) * JITTER;
    Duration::from_secs_f64(bounds.clamp(interval.as_secs_f64() * spread))
}

/// Both scores of a target, each 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    /// Age of the last success over the longest interval; 1 when there was none.
    pub staleness: f64,
    /// 1 at a transition, halving every 10 minutes; at least a half while something is critical.
    pub activity: f64,
}

/// Age of the last success over `max`, at most 1; 1 when there was none.
pub(crate) fn staleness(age: Option<Duration>, max: Duration) -> f64 {
    age.map_or(1.0, |age| (age.as_secs_f64() / max.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0))
}

/// How recently something changed, as a number from 0 to 1.
pub(crate) fn activity(since_change: Option<Duration>, critical: bool) -> f64 {
    let recent = since_change.map_or(0.0, |age| 0.5_f64.powf(age.as_secs_f64() / ACTIVITY_HALF_LIFE.as_secs_f64()));
    if critical { recent.max(ACTIVITY_WHILE_CRITICAL) } else { recent }
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
        let active = Scores { staleness: 0.0, activity: 1.0 };
        let quiet = Scores { staleness: 0.0, activity: 0.0 };
        let at = |scores, last| {
            interval(Cadence::Adaptive, &BOUNDS, scores, Load::default(), Some(Duration::from_secs(last))).as_secs_f64()
        };
        assert_eq!(at(active, 300), 5.0);
        assert_eq!(at(quiet, 5), 182.0);
        assert_eq!(activity(Some(Duration::from_secs(600)), false), 0.5);
        assert_eq!(activity(Some(Duration::from_secs(6000)), true), 0.5);
        assert_eq!(activity(None, false), 0.0);
        assert_eq!(staleness(None, BOUNDS.max), 1.0);
        assert_eq!(staleness(Some(Duration::from_secs(30)), BOUNDS.max), 0.1);
        assert_eq!(staleness(Some(Duration::from_secs(3000)), BOUNDS.max), 1.0);
    }

    #[test]
    fn jitter_stays_within_five_percent_and_the_bounds() {
        let hundred = Duration::from_secs(100);
        let at = |unit| jittered(Cadence::Pulse, &BOUNDS, hundred, unit).as_secs_f64();
        assert!(
            (at(0.0) - 95.0).abs() < 1e-9 && (at(0.5) - 100.0).abs() < 1e-9 && (at(0.999_999) - 105.0).abs() < 1e-3
        );
        assert_eq!(jittered(Cadence::Pulse, &BOUNDS, BOUNDS.max, 0.9), BOUNDS.max);
        assert_eq!(jittered(Cadence::Pulse, &BOUNDS, BOUNDS.min, 0.1), BOUNDS.min);
        assert_eq!(jittered(Cadence::Fixed, &BOUNDS, hundred, 0.0), hundred);
    }
}
