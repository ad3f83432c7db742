//! The true state of a target, independent of polls.

use crate::simulator::Class;
use model::Moment;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Duration;

/// Draws an exponentially distributed time with this mean.
pub(crate) fn exponential(rng: &mut Pcg64Mcg, mean: Duration) -> Duration {
    let unit: f64 = rng.random();
    Duration::try_from_secs_f64(-(1.0 - unit).ln() * mean.as_secs_f64()).unwrap_or(Duration::MAX)
}

/// The incidents of one target.
#[derive(Debug)]
pub(crate) struct Truth {
    rng: Pcg64Mcg,
    calm: Option<Duration>,
    incident: Duration,
    /// Whether the target is in trouble now.
    pub(crate) trouble: bool,
    /// The time of the next change; `None` if the target has no incidents.
    next: Option<Moment>,
    /// Changes since the last poll.
    unseen: Vec<Moment>,
}

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Whether the target is in trouble.
    pub trouble: bool,
    /// The times of the changes since the last poll.
    pub changes: Vec<Moment>,
}

impl Truth {
    /// Creates the incidents of a target from the seed and the target's number alone, so that every cadence meets the
    /// same incidents.
    pub(crate) fn new(class: &Class, seed: u64, target: usize) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ (target as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let calm = (class.incidents_per_day > 0.0)
            .then(|| Duration::try_from_secs_f64(86_400.0 / class.incidents_per_day).unwrap_or(Duration::MAX));
        let next = calm.map(|calm| Moment::START.after(exponential(&mut rng, calm)));
        Self { rng, calm, incident: class.incident, trouble: false, next, unseen: Vec::new() }
    }

    /// Advances the state to `now`.
    pub(crate) fn advance(&mut self, now: Moment) {
        while let (Some(next), Some(calm)) = (self.next.filter(|next| *next <= now), self.calm) {
            self.trouble = !self.trouble;
            self.unseen.push(next);
            let lasts = if self.trouble { self.incident } else { calm };
            // Every phase lasts at least a second, so that the number of changes stays bounded.
            self.next = Some(next.after(exponential(&mut self.rng, lasts).max(Duration::from_secs(1))));
        }
    }

    /// Polls the target: returns its state and the changes since the last poll.
    pub(crate) fn observe(&mut self, now: Moment) -> Observation {
        self.advance(now);
        Observation { trouble: self.trouble, changes: std::mem::take(&mut self.unseen) }
    }
}
