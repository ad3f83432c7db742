//! Estimates how often a target changes from the results of its polls.
//!
//! A target is *quiet* or *in trouble* (a dependency that is not skipped is critical). In either state the next change
//! is assumed to come at a constant rate, estimated as the mean of a Gamma posterior: the number of observed changes
//! over the observed time. Both start from a prior and decay by half in a day. (Cho and Garcia-Molina, "Estimating
//! frequency of change", 2003, estimate one rate for each page. Two states distinguish the end of an incident, which is
//! near, from the start of the next one.)
//!
//! The prior is a Gamma distribution that is fitted to the rates of all targets (an empirical Bayes estimate): its mean
//! is their common rate, and the more their rates differ, the less it counts against a target's own history. So targets
//! that are alike are polled alike, and where some flap, a target that flaps is recognised after a few changes.

use model::{Moment, Rate, Rates};
use std::time::Duration;

/// An observation counts half after this time.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A longer span between two polls counts as this long, because changes within it may be unseen.
const LONGEST_SPAN: Duration = Duration::from_secs(3600);
/// Until a change is observed, a quiet target is assumed to change once in a thousand hours.
const QUIET: Rate = Rate { changes: 0.001, seconds: 3600.0 };
/// Until an incident is observed, an incident is assumed to last ten minutes.
const TROUBLE: Rate = Rate { changes: 1.0, seconds: 600.0 };
/// The population prior counts as at most this many seconds of observation, however alike the targets are.
const LONGEST_PRIOR: f64 = 30.0 * 86_400.0;
/// The population prior is recomputed at this interval.
const REFRESH: Duration = Duration::from_secs(60);

/// Estimates and predicts how often a target changes.
pub(crate) trait Learn {
    /// Records a poll that ended `span` after the previous one. The target was in trouble or quiet during the whole
    /// span; `changed` if the poll detected a change.
    fn observe(&mut self, was_in_trouble: bool, span: Duration, changed: bool);

    /// Returns the expected changes per second.
    fn expected(&self, in_trouble: bool, population_prior: &PopulationPrior) -> f64;
}

impl Learn for Rates {
    fn observe(&mut self, was_in_trouble: bool, span: Duration, changed: bool) {
        let span = span.min(LONGEST_SPAN).as_secs_f32();
        let kept = 0.5_f32.powf(span / HALF_LIFE.as_secs_f32());
        for rate in [&mut self.quiet, &mut self.trouble] {
            rate.changes *= kept;
            rate.seconds *= kept;
        }
        let rate = if was_in_trouble { &mut self.trouble } else { &mut self.quiet };
        rate.seconds += span;
        rate.changes += f32::from(u8::from(changed));
    }

    fn expected(&self, in_trouble: bool, population_prior: &PopulationPrior) -> f64 {
        let (seen, prior) =
            if in_trouble { (self.trouble, population_prior.trouble) } else { (self.quiet, population_prior.quiet) };
        f64::from(seen.changes + prior.changes) / f64::from(seen.seconds + prior.seconds)
    }
}

/// The population prior: the distribution of the rates of change over all targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PopulationPrior {
    quiet: Rate,
    trouble: Rate,
    refreshed: Moment,
}

impl PopulationPrior {
    pub(crate) fn new() -> Self {
        Self { quiet: QUIET, trouble: TROUBLE, refreshed: Moment::from_nanos(i64::MIN) }
    }

    /// Whether the prior should be fitted again.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        now.since(self.refreshed) >= REFRESH
    }

    /// Fits the prior to the observations of all targets.
    pub(crate) fn refresh<'a>(&mut self, all: impl Iterator<Item = &'a Rates> + Clone, now: Moment) {
        self.refreshed = now;
        self.quiet = fitted(all.clone().map(|rates| rates.quiet), QUIET);
        self.trouble = fitted(all.map(|rates| rates.trouble), TROUBLE);
    }
}

/// Fits a Gamma distribution to observations by the method of moments. `first` is counted as one more observation of
/// the mean.
///
/// If a target with rate `λ` is observed all the time, and `k` changes in `t` seconds remain after the decay, `k` has
/// the mean `λt` and the variance `λt·(1 − t/2τ)`, where `τ` is the mean lifetime of an observation. So over targets
/// with the mean rate `m`, the mean of `(k − mt)² − mt·(1 − t/2τ)` is `t²` times the variance of the rates.
fn fitted(observed: impl Iterator<Item = Rate> + Clone, first: Rate) -> Rate {
    let parts = |rate: Rate| (f64::from(rate.changes), f64::from(rate.seconds));
    let (changes, seconds) = observed.clone().chain([first]).fold((0.0, 0.0), |(changes, seconds), rate| {
        let (more, time) = parts(rate);
        (changes + more, seconds + time)
    });
    let mean = changes / seconds;
    let lifetime = HALF_LIFE.as_secs_f64() / std::f64::consts::LN_2;
    let (excess, squares) = observed.fold((0.0, 0.0), |(excess, squares), rate| {
        let (changes, seconds) = parts(rate);
        let expected = mean * seconds;
        let by_chance = expected * (1.0 - seconds / (2.0 * lifetime)).max(0.5);
        (excess + (changes - expected).powi(2) - by_chance, squares + seconds * seconds)
    });
    // The variance of a Gamma distribution is its mean over its weight in seconds.
    let weight = if excess > 0.0 { mean * squares / excess } else { LONGEST_PRIOR };
    let weight = weight.clamp(1.0, LONGEST_PRIOR);
    Rate { changes: (mean * weight) as f32, seconds: weight as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learnt_rate_follows_the_observed_changes_and_decays() {
        let mut rates = Rates::default();
        let per_hour = |rates: &Rates, trouble| rates.expected(trouble, &PopulationPrior::new()) * 3600.0;
        assert!((per_hour(&rates, false) - 0.001).abs() < 1e-6 && (per_hour(&rates, true) - 6.0).abs() < 1e-3);
        // Two changes an hour, for ten hours.
        for poll in 0..600 {
            rates.observe(false, Duration::from_secs(60), poll % 30 == 0);
        }
        assert!((1.6..2.0).contains(&per_hour(&rates, false)), "{}", per_hour(&rates, false));
        assert!((per_hour(&rates, true) - 6.0).abs() < 1e-3, "the rate of the other state is unchanged");
        for _ in 0..(14 * 24) {
            rates.observe(false, Duration::from_secs(3600), false);
        }
        assert!(per_hour(&rates, false) < 0.001, "two quiet weeks: {}", per_hour(&rates, false));
        let before = rates;
        rates.observe(false, Duration::from_secs(1 << 40), false);
        assert!(rates.quiet.seconds < before.quiet.seconds + 3601.0, "a span in which the host was down is capped");
    }

    fn target(changes: f32, hours: f32) -> Rates {
        let quiet = Rate { changes, seconds: hours * 3600.0 };
        Rates { quiet, ..Rates::default() }
    }

    fn fitted_to(all: &[Rates]) -> PopulationPrior {
        let mut prior = PopulationPrior::new();
        prior.refresh(all.iter(), Moment::START);
        prior
    }

    #[test]
    fn a_new_target_starts_with_the_rate_of_all() {
        let (all, new) = ([target(2.0, 20.0), target(1.0, 20.0), target(3.0, 20.0)], Rates::default());
        let expected = new.expected(false, &fitted_to(&all)) * 3600.0;
        assert!((0.09..0.11).contains(&expected), "{expected}");
    }

    #[test]
    fn targets_that_are_alike_have_the_same_rate_and_others_their_own() {
        let hourly = |rates: &Rates, prior: &PopulationPrior| rates.expected(false, prior) * 3600.0;
        // Counts as they are by chance at one change in ten hours: the mean and the variance are 2.
        let alike: Vec<Rates> = [0, 1, 1, 2, 2, 2, 2, 3, 3, 4].map(|count| target(count as f32, 20.0)).to_vec();
        let prior = fitted_to(&alike);
        for rates in &alike {
            assert!((0.09..0.11).contains(&hourly(rates, &prior)), "{prior:?}");
        }
        // One of ten flaps.
        let mixed: Vec<Rates> = (0..10).map(|number| target(if number == 0 { 40.0 } else { 0.0 }, 20.0)).collect();
        let prior = fitted_to(&mixed);
        assert!(hourly(&mixed[0], &prior) > 1.9 && hourly(&mixed[1], &prior) < 0.02, "{prior:?}");
        let first_change = target(1.0, 0.1);
        assert!(hourly(&first_change, &prior) > 0.4, "a new target that changes is soon taken for one that flaps");
    }

    #[test]
    fn the_prior_of_no_or_one_target_is_valid() {
        for all in [vec![], vec![target(0.0, 0.0)], vec![target(3.0, 1.0)]] {
            let prior = fitted_to(&all);
            let rate = Rates::default().expected(false, &prior);
            assert!(rate > 0.0 && rate.is_finite(), "{all:?}: {prior:?}");
        }
    }
}
