//! How often a target changes, learnt from what its polls saw.
//!
//! A target is *quiet* or *in trouble* (a dependency that is not skipped is critical), and in either state its next change
//! is taken to come at a constant rate, which is estimated as the mean of a Gamma posterior: changes seen over time
//! watched, both starting from a prior and both forgotten by half in a day. (Cho and Garcia-Molina, "Estimating frequency
//! of change", 2003, estimate one rate for each page; two states tell the end of an incident, which is near, from the
//! start of the next one.)

use std::time::Duration;

/// What was seen counts half after this.
const HALF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A span without polls longer than this says little about the time in it.
const LONGEST_SPAN: Duration = Duration::from_secs(3600);
/// A quiet target that nobody has seen change is taken to change once in a thousand hours, as if watched for one.
const QUIET: Rate = Rate { changes: 0.001, seconds: 3600.0 };
/// An incident is taken to last ten minutes, until some have been seen.
const TROUBLE: Rate = Rate { changes: 1.0, seconds: 600.0 };

/// Changes seen over time watched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Changes, the older ones counting less.
    pub changes: f32,
    /// Seconds watched, the older ones counting less.
    pub seconds: f32,
}

/// What was seen of a target in either state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// While nothing was critical.
    pub quiet: Rate,
    /// While something was.
    pub trouble: Rate,
}

impl Rates {
    /// A poll ended `span` after the last one; the target was in trouble or quiet all the while, and changed or not.
    pub(crate) fn observe(&mut self, was_in_trouble: bool, span: Duration, changed: bool) {
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

    /// Changes to expect in a second.
    pub(crate) fn expected(&self, in_trouble: bool) -> f64 {
        let (seen, prior) = if in_trouble { (self.trouble, TROUBLE) } else { (self.quiet, QUIET) };
        f64::from(seen.changes + prior.changes) / f64::from(seen.seconds + prior.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_learnt_and_forgotten() {
        let mut rates = Rates::default();
        let per_hour = |rates: &Rates, trouble| rates.expected(trouble) * 3600.0;
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
}
