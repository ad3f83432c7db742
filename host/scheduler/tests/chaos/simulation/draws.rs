//! Random draws.

use model::Cadence;
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use scheduler::{Profile, Settings};
use std::time::Duration;

/// Draws the scheduler's settings.
pub(super) fn settings(rng: &mut Pcg64Mcg) -> Settings {
    let min = Duration::from_millis(rng.random_range(500..20_000));
    let max = min + Duration::from_secs(rng.random_range(0..400));
    Settings {
        profile: Profile::ALL[rng.random_range(0..3)],
        cadence: Cadence::ALL[rng.random_range(0..3)],
        base: rng.random_bool(0.5).then(|| min + (max - min).mul_f64(rng.random())),
        min,
        max: rng.random_bool(0.5).then_some(max),
        dead_letter_interval: Duration::from_secs(300),
        max_in_flight: rng.random_range(1..12),
        max_per_host: rng.random_range(1..5),
        rate_per_second: if rng.random_bool(0.3) { rng.random_range(1..20) } else { 0 },
    }
}

/// Draws an exponentially distributed time.
pub(super) fn exponential(rng: &mut Pcg64Mcg, mean: Duration) -> Duration {
    let unit: f64 = rng.random();
    Duration::try_from_secs_f64(-(1.0 - unit).ln() * mean.as_secs_f64()).unwrap_or(Duration::MAX)
}
