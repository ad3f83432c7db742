//! Estimates how often a target changes from the results of its polls.
//!
//! A target is *quiet* or *in trouble* (a dependency that is not skipped is critical). In either state the next change
//! is assumed to come at a constant rate, estimated as the mean of a Gamma posterior: the number of observed changes
//! over the observed time. Both start from a prior and decay by half in a day. (Cho and Garcia-Molina, "Estimating
//! frequency of change", 2003, estimate one rate for each page. Two states distinguish the end of an incident, which is
//! near, from the start of the next one.)
//!
//! The prior is the rate over all targets (the population prior). It counts as at most two hours of observation, so
//! that a target's own history soon outweighs it.

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
/// The population prior counts as at most this many seconds of observation.
const LONGEST_PRIOR: f64 = 7200.0;
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

/// The population prior: the rates of change over all targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PopulationPrior {
    quiet: Rate,
    trouble: Rate,
    /// Changes and seconds of all targets, quiet and in trouble; in double precision, because the sums are large.
    seen: [[f64; 2]; 2],
    refreshed: Moment,
}

impl PopulationPrior {
    pub(crate) fn new() -> Self {
        Self { quiet: QUIET, trouble: TROUBLE, seen: [[0.0; 2]; 2], refreshed: Moment::from_nanos(i64::MIN) }
    }

    /// Adds the rates of a target that were saved before a restart.
    pub(crate) fn add(&mut self, rates: &Rates) {
        for (seen, rate) in self.seen.iter_mut().zip([rates.quiet, rates.trouble]) {
            seen[0] += f64::from(rate.changes);
            seen[1] += f64::from(rate.seconds);
        }
    }

    /// Records a poll of any target; see [`Learn::observe`].
    pub(crate) fn observe(&mut self, was_in_trouble: bool, span: Duration, changed: bool, now: Moment) {
        let seen = &mut self.seen[usize::from(was_in_trouble)];
        seen[0] += f64::from(u8::from(changed));
        seen[1] += span.min(LONGEST_SPAN).as_secs_f64();
        let since = now.since(self.refreshed);
        if since >= REFRESH {
            let kept = 0.5_f64.powf(since.min(HALF_LIFE).as_secs_f64() / HALF_LIFE.as_secs_f64());
            self.seen.iter_mut().flatten().for_each(|number| *number *= kept);
            self.refresh(now);
        }
    }

    fn refresh(&mut self, now: Moment) {
        self.refreshed = now;
        let prior = |seen: [f64; 2], first: Rate| {
            let rate = (seen[0] + f64::from(first.changes)) / (seen[1] + f64::from(first.seconds));
            // The time in which one change is expected, but at most the longest prior.
            let seconds = rate.recip().min(LONGEST_PRIOR);
            Rate { changes: (rate * seconds) as f32, seconds: seconds as f32 }
        };
        (self.quiet, self.trouble) = (prior(self.seen[0], QUIET), prior(self.seen[1], TROUBLE));
    }
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

    #[test]
    fn a_new_target_starts_with_the_population_prior() {
        let hour = Duration::from_secs(3600);
        let (mut population_prior, mut now) = (PopulationPrior::new(), Moment::START);
        for hours in 0..400 {
            now = now.after(hour / 20);
            // Twenty targets change every tenth hour.
            population_prior.observe(false, hour, hours % 10 == 0, now);
        }
        let new_target = Rates::default();
        let expected = new_target.expected(false, &population_prior) * 3600.0;
        assert!((0.08..0.12).contains(&expected), "{expected}");
        let mut quiet = new_target;
        (0..24).for_each(|_| quiet.observe(false, hour, false));
        assert!(quiet.expected(false, &population_prior) * 3600.0 < 0.012, "a quiet day outweighs the prior");
        let mut again = PopulationPrior::new();
        (0..10).for_each(|_| again.add(&quiet));
        again.observe(false, hour, false, now);
        assert!(new_target.expected(false, &again) * 3600.0 < 0.001, "all targets were quiet");
    }
}
