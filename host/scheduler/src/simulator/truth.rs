//! What really happens to a target, whoever looks.

use crate::simulator::Class;
use model::Moment;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Duration;

/// An exponential time with this mean.
pub(crate) fn exponential(rng: &mut Pcg64Mcg, mean: Duration) -> Duration {
    let unit: f64 = rng.random();
    Duration::try_from_secs_f64(-(1.0 - unit).ln() * mean.as_secs_f64()).unwrap_or(Duration::MAX)
}

/// One target's incidents.
#[derive(Debug)]
pub(crate) struct Truth {
    rng: Pcg64Mcg,
    calm: Option<Duration>,
    incident: Duration,
    /// Whether it is in trouble now.
    pub(crate) trouble: bool,
    /// When that changes; never when there is nothing to befall it.
    next: Option<Moment>,
    /// Changes since the last look.
    unseen: Vec<Moment>,
}

/// What a look brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether it is in trouble.
    pub trouble: bool,
    /// When it changed since the last look.
    pub changes: Vec<Moment>,
}

impl Truth {
    /// The same for every cadence: it follows from the seed and the target's number alone.
    pub(crate) fn new(class: &Class, seed: u64, target: usize) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ (target as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let calm = (class.incidents_per_day > 0.0)
            .then(|| Duration::try_from_secs_f64(86_400.0 / class.incidents_per_day).unwrap_or(Duration::MAX));
        let next = calm.map(|calm| Moment::START.after(exponential(&mut rng, calm)));
        Self { rng, calm, incident: class.incident, trouble: false, next, unseen: Vec::new() }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now: Moment) {
        while let (Some(next), Some(calm)) = (self.next.filter(|next| *next <= now), self.calm) {
            self.trouble = !self.trouble;
            self.unseen.push(next);
            let lasts = if self.trouble { self.incident } else { calm };
            // Nothing is shorter than a second, so that a made-up estate cannot change without end.
            self.next = Some(next.after(exponential(&mut self.rng, lasts).max(Duration::from_secs(1))));
        }
    }

    /// Somebody looks.
    pub(crate) fn look(&mut self, now: Moment) -> Look {
        self.advance(now);
        Look { trouble: self.trouble, changes: std::mem::take(&mut self.unseen) }
    }
}
