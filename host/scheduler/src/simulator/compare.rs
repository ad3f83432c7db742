//! Compares how late each cadence detects changes, at an equal number of polls.

use crate::Settings;
use crate::simulator::drive::drive;
use crate::simulator::optimum::{self, Optimum};
use crate::simulator::world::{Row, World};
use crate::simulator::{Class, Estate};
use model::Cadence;
use std::time::Duration;

/// Numbers of polls count as equal within this relative difference.
const EQUAL: f64 = 0.005;
/// The number of corrections of an interval to reach an equal number of polls.
const CORRECTIONS: usize = 6;

/// The results of all cadences on one estate. All but `configured` have the same number of polls.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Every target at the same fixed interval.
    pub fixed: Row,
    /// Pulse's cadence.
    pub pulse: Row,
    /// The adaptive cadence.
    pub adaptive: Row,
    /// The best intervals for the mean delay, within the same bounds as `adaptive`, from the true rates of changes.
    pub optimum: Row,
    /// `fixed` at the configured intervals, with whatever number of polls that takes.
    pub configured: Row,
}

impl Comparison {
    /// The results with the same number of polls, with their names.
    pub fn rows(&self) -> [(&'static str, &Row); 4] {
        [("fixed", &self.fixed), ("pulse", &self.pulse), ("adaptive", &self.adaptive), ("optimum", &self.optimum)]
    }

    /// The median delay of `adaptive` over that of `fixed`.
    pub fn adaptive_to_fixed_median(&self) -> f64 {
        self.adaptive.median.as_secs_f64() / self.fixed.median.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The mean delay of `adaptive` over that of `optimum`.
    pub fn adaptive_to_optimum_mean(&self) -> f64 {
        self.adaptive.mean.as_secs_f64() / self.optimum.mean.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Runs `adaptive` on an estate with its settings, and then the others with the intervals at which they start as many
/// polls. All meet the same incidents.
pub fn compare(estate: &Estate, seed: u64) -> Comparison {
    let with = |cadence| Settings { cadence, ..estate.settings.clone() };
    let adaptive = run(estate, &with(Cadence::Adaptive), 1.0, seed);
    let polls = adaptive.polls;
    Comparison {
        fixed: with_equal_polls(estate, Cadence::Fixed, polls, seed),
        pulse: with_equal_polls(estate, Cadence::Pulse, polls, seed),
        optimum: optimum_with_equal_polls(estate, polls, seed),
        configured: run(estate, &with(Cadence::Fixed), 1.0, seed),
        adaptive,
    }
}

/// Runs `attempt` with corrected values until it starts about `wanted` polls. Returns the closest run.
fn corrected(wanted: u64, mut value: f64, attempt: impl Fn(f64) -> Row, correct: impl Fn(f64, f64) -> f64) -> Row {
    let mut best = attempt(value);
    for _ in 1..CORRECTIONS {
        let ratio = best.polls as f64 / wanted.max(1) as f64;
        if (ratio - 1.0).abs() <= EQUAL {
            break;
        }
        value = correct(value, ratio);
        let row = attempt(value);
        if row.polls.abs_diff(wanted) >= best.polls.abs_diff(wanted) {
            break;
        }
        best = row;
    }
    best
}

fn with_equal_polls(estate: &Estate, cadence: Cadence, wanted: u64, seed: u64) -> Row {
    let own = estate.settings.base.unwrap_or(Duration::from_secs(10)).as_secs_f64();
    let attempt = |interval: f64| {
        let base = Duration::from_secs_f64(interval.clamp(0.1, 86_400.0));
        let settings = Settings { cadence, base: Some(base), ..estate.settings.clone() };
        // The `pulse` formula approaches its longest interval after each success, so the longest interval determines
        // the number of polls.
        let (min, max) = match cadence {
            Cadence::Pulse => (estate.settings.min.min(base), base),
            Cadence::Fixed | Cadence::Adaptive => (Duration::from_millis(100), Duration::from_secs(86_400)),
        };
        run(estate, &Settings { min, max: Some(max), ..settings }, interval / own, seed)
    };
    let first = estate.duration.as_secs_f64() * f64::from(estate.targets) / wanted.max(1) as f64;
    corrected(wanted, first, attempt, |interval, ratio| interval * ratio)
}

fn optimum_with_equal_polls(estate: &Estate, wanted: u64, seed: u64) -> Row {
    let attempt = |polls: f64| optimum::run(estate, &Optimum::of(estate, polls), seed);
    corrected(wanted, wanted as f64, attempt, |polls, ratio| polls / ratio)
}

/// Runs one simulation. `scale` multiplies the intervals of the classes.
fn run(estate: &Estate, settings: &Settings, scale: f64, seed: u64) -> Row {
    let mut world = World::new(estate, seed);
    let spec = |(target, class): (usize, &usize)| {
        let class = &estate.classes[*class];
        let interval = class.interval.map(|own| own.mul_f64(scale));
        estate.spec(target, &Class { interval, ..class.clone() })
    };
    let specs: Vec<_> = world.classes.iter().enumerate().map(spec).collect();
    let polls = drive(&mut world, (settings.clone(), specs), (estate.duration, seed));
    world.row(polls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(share: f64, incidents_per_day: f64, minutes: u64) -> Class {
        Class {
            name: String::new(),
            share,
            incidents_per_day,
            incident: Duration::from_secs(60 * minutes),
            latency: Duration::from_millis(50),
            failure_rate: 0.001,
            interval: None,
        }
    }

    fn estate(classes: Vec<Class>) -> Estate {
        Estate {
            name: String::new(),
            targets: 50,
            per_host: 5,
            duration: Duration::from_secs(24 * 3600),
            settings: Settings {
                base: Some(Duration::from_secs(30)),
                max: Some(Duration::from_secs(300)),
                ..Settings::default()
            },
            classes,
            outages: Vec::new(),
        }
    }

    #[test]
    fn a_fixed_interval_detects_changes_after_half_of_it_and_all_cadences_poll_equally_often() {
        let found = compare(&estate(vec![class(0.8, 0.5, 20), class(0.2, 20.0, 10)]), 3);
        for (name, row) in found.rows() {
            assert!((row.polls as f64 / found.adaptive.polls as f64 - 1.0).abs() < 0.02, "{name}: {found:?}");
        }
        let fixed = &found.fixed;
        let half = fixed.interval.as_secs_f64() / 2.0;
        assert!((fixed.median.as_secs_f64() / half - 1.0).abs() < 0.15, "{fixed:?}");
        assert!(fixed.changes > 300, "{fixed:?}");
        assert!(found.adaptive_to_fixed_median() <= 0.5, "{found:?}");
        assert_eq!(found.configured.interval.as_secs_f64().round(), 30.0);
        assert!(
            found.adaptive.polls <= found.configured.polls * 101 / 100,
            "a longest interval does not increase the number of polls: {found:?}"
        );
    }

    #[test]
    fn targets_are_polled_at_least_at_their_base_interval_without_a_longest_one() {
        let mut estate = estate(vec![class(0.8, 0.0, 20), class(0.2, 20.0, 10)]);
        estate.settings.max = None;
        let found = compare(&estate, 3);
        let adaptive = &found.adaptive;
        let (polls, fixed) = (adaptive.polls as f64, found.configured.polls as f64);
        assert!(polls > 1.02 * fixed && polls <= 2.02 * fixed, "{found:?}");
        assert!(adaptive.median <= found.configured.median && adaptive.p95 <= found.configured.p95, "{found:?}");
    }

    #[test]
    fn adaptive_is_near_the_optimum_and_its_tail_is_not_later_than_with_equal_intervals() {
        let alike = estate(vec![class(1.0, 24.0, 5)]);
        let mixed = estate(vec![class(0.8, 0.5, 20), class(0.2, 20.0, 10)]);
        let promised = Settings { max: None, ..mixed.settings.clone() };
        let promised = Estate { settings: promised, ..mixed.clone() };
        for (name, estate) in [("alike", alike), ("mixed", mixed), ("no longest interval", promised)] {
            let found = compare(&Estate { targets: 100, ..estate }, 1);
            assert!(found.adaptive_to_optimum_mean() <= 1.3, "{name}: {found:?}");
            assert!(found.adaptive.p95 <= found.fixed.p95, "{name}: {found:?}");
            // Few changes are missed, so that chance counts.
            assert!(found.adaptive.missed <= found.fixed.missed * 1.25, "{name}: {found:?}");
        }
    }

    #[test]
    fn the_same_seed_yields_the_same_run() {
        let estate = estate(vec![class(1.0, 4.0, 15)]);
        assert_eq!(compare(&estate, 1), compare(&estate, 1));
        assert_ne!(compare(&estate, 1), compare(&estate, 2));
    }

    #[test]
    fn an_empty_class_and_a_class_without_changes_are_simulated() {
        let mut quiet = estate(vec![class(1.0, 0.0, 10), class(0.0, 5.0, 10)]);
        quiet.targets = 1;
        let found = compare(&quiet, 1);
        assert_eq!(found.adaptive.changes, 0);
        assert!(found.adaptive.polls > 200, "about one in five minutes: {found:?}");
    }
}
