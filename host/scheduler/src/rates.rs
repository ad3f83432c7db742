//! How often a target changes, learnt from what its polls saw.
//!
//! A target is *quiet* or *in trouble* (a dependency that is not skipped is critical), and in either state its next change
//! is taken to come at a constant rate, which is estimated as the mean of a Gamma posterior: changes seen over time
//! watched, both starting from a prior and both forgotten by half in a day. (Cho and Garcia-Molina, "Estimating frequency
//! of change", 2003, estimate one rate for each page; two states tell the end of an incident, which is near, from the
//! start of the next one.)
//!
//! The prior is what is usual among all targets, counting for two hours of watching at most, so that a target's own ways
//! soon outweigh it.

use model::{Moment, Rate, Rates};
use std::time::Duration;

/// What was seen counts half after this.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A span without polls longer than this says little about the time in it.
const LONGEST_SPAN: Duration = Duration::from_secs(3600);
/// Where nobody has been seen to change, a quiet target is taken to change once in a thousand hours.
const QUIET: Rate = Rate { changes: 0.001, seconds: 3600.0 };
/// Where no incident has been seen, one is taken to last ten minutes.
const TROUBLE: Rate = Rate { changes: 1.0, seconds: 600.0 };
/// What is usual counts for no more seconds of watching than this.
const LONGEST_PRIOR: f64 = 7200.0;
/// What is usual is worked out this often.
const REFRESH: Duration = Duration::from_secs(60);

/// Learning and predicting how often a target changes.
pub(crate) trait Learn {
    /// Records a poll that ended `span` after the one before. The target was in trouble or quiet all that time, and changed or
    /// did not.
    fn observe(&mut self, was_in_trouble: bool, span: Duration, changed: bool);

    /// Returns the changes to expect in a second.
    fn expected(&self, in_trouble: bool, usual: &Usual) -> f64;
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

    fn expected(&self, in_trouble: bool, usual: &Usual) -> f64 {
        let (seen, prior) = if in_trouble { (self.trouble, usual.trouble) } else { (self.quiet, usual.quiet) };
        f64::from(seen.changes + prior.changes) / f64::from(seen.seconds + prior.seconds)
    }
}

/// What is usual among all targets, as a prior for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usual {
    quiet: Rate,
    trouble: Rate,
    /// Changes and seconds of all targets, in either state; in double precision, because there are many.
    seen: [[f64; 2]; 2],
    refreshed: Moment,
}

impl Usual {
    pub(crate) fn new() -> Self {
        Self { quiet: QUIET, trouble: TROUBLE, seen: [[0.0; 2]; 2], refreshed: Moment::from_nanos(i64::MIN) }
    }

    /// Takes in what was known of a target before a restart.
    pub(crate) fn add(&mut self, rates: &Rates) {
        for (seen, rate) in self.seen.iter_mut().zip([rates.quiet, rates.trouble]) {
            seen[0] += f64::from(rate.changes);
            seen[1] += f64::from(rate.seconds);
        }
    }

    /// A poll of some target ended; as [`Learn::observe`].
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
            // One change's worth of watching, where that is not too long.
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
    fn a_rate_is_learnt_and_forgotten() {
        let mut rates = Rates::default();
        let per_hour = |rates: &Rates, trouble| rates.expected(trouble, &Usual::new()) * 3600.0;
        assert!((per_hour(&rates, false) - 0.001).abs() < 1e-6 && (per_hour(&rates, true) - 6.0).abs() < 1e-3);
        // Twice an hour, for ten hours.
        for poll in 0..600 {
            rates.observe(false, Duration::from_secs(60), poll % 30 == 0);
        }
        assert!((1.6..2.0).contains(&per_hour(&rates, false)), "{}", per_hour(&rates, false));
        assert!((per_hour(&rates, true) - 6.0).abs() < 1e-3, "the other state is another matter");
        for _ in 0..(14 * 24) {
            rates.observe(false, Duration::from_secs(3600), false);
        }
        assert!(per_hour(&rates, false) < 0.001, "two quiet weeks: {}", per_hour(&rates, false));
        let before = rates;
        rates.observe(false, Duration::from_secs(1 << 40), false);
        assert!(rates.quiet.seconds < before.quiet.seconds + 3601.0, "a host that was down saw nothing");
    }

    #[test]
    fn what_is_usual_is_expected_of_a_newcomer_and_soon_outweighed() {
        let hour = Duration::from_secs(3600);
        let (mut usual, mut now) = (Usual::new(), Moment::START);
        for hours in 0..400 {
            now = now.after(hour / 20);
            // Twenty targets change every tenth hour.
            usual.observe(false, hour, hours % 10 == 0, now);
        }
        let newcomer = Rates::default();
        let expected = newcomer.expected(false, &usual) * 3600.0;
        assert!((0.08..0.12).contains(&expected), "{expected}");
        let mut quiet = newcomer;
        (0..24).for_each(|_| quiet.observe(false, hour, false));
        assert!(quiet.expected(false, &usual) * 3600.0 < 0.012, "a quiet day says more");
        let mut again = Usual::new();
        (0..10).for_each(|_| again.add(&quiet));
        again.observe(false, hour, false, now);
        assert!(newcomer.expected(false, &again) * 3600.0 < 0.001, "all of them were quiet");
    }
}
