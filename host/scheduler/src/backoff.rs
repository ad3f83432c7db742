//! The delay before a failing target is polled again.

use std::time::Duration;

/// Upper bound on every backoff.
const LONGEST: Duration = Duration::from_secs(300);
/// The backoff after the first fault of a plugin.
const PLUGIN_FIRST: Duration = Duration::from_secs(5);

/// Doubling delays, capped at five minutes after the jitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The delay after the first failure.
    pub first: Duration,
    /// The delay varies by this fraction in either direction.
    pub jitter: f64,
}

impl Backoff {
    /// Returns the delay after the `failures`-th consecutive failure, counted from 1. `unit` is uniform in [0, 1).
    pub(crate) fn delay(&self, failures: u32, unit: f64) -> Duration {
        let doubled = self.first.as_secs_f64() * 2_f64.powi(failures.saturating_sub(1).min(32) as i32);
        let spread = 1.0 + (2.0 * unit - 1.0) * self.jitter;
        Duration::from_secs_f64((doubled * spread).min(LONGEST.as_secs_f64()))
    }
}

/// Returns the delay after the `faults`-th consecutive plugin fault on one target, counted from 1.
pub(crate) fn plugin_fault_delay(faults: u32) -> Duration {
    Backoff { first: PLUGIN_FIRST, jitter: 0.0 }.delay(faults, 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_with_jitter_up_to_five_minutes() {
        let pulse = Backoff { first: Duration::from_secs(5), jitter: 0.2 };
        let seconds = |failures, unit| (pulse.delay(failures, unit).as_secs_f64() * 1000.0).round() / 1000.0;
        for (failures, expected) in [(1, 5.0), (2, 10.0), (3, 20.0), (6, 160.0), (7, 300.0), (u32::MAX, 300.0)] {
            assert_eq!(seconds(failures, 0.5), expected, "failure {failures}");
        }
        assert_eq!(seconds(1, 0.0), 4.0);
        // The cap is applied after the jitter: 320 s less 20 % is still below it.
        assert_eq!(seconds(7, 0.0), 256.0);
        assert_eq!(plugin_fault_delay(3), Duration::from_secs(20));
    }
}
