//! Random delays, so that many agents do not act at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of delays. It needs no quality, only that agents differ.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    /// Different seeds give different delays.
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns the delay after a number of failed attempts: from half to all of a time that doubles with each, from the
    /// first to the longest.
    pub(crate) fn delay(&self, (first, longest): (Duration, Duration), attempts: usize) -> Duration {
        let doubled = first.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(longest);
        doubled.mul_f64(self.between(0.5, 1.0))
    }

    /// Returns a number between two, by SplitMix64 (Steele, Lea and Flood 2014).
    pub(crate) fn between(&self, low: f64, high: f64) -> f64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The highest 53 bits are as many as the number can hold.
        low + (high - low) * ((state ^ (state >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_with_each_failed_attempt() {
        let (jitter, second) = (Jitter::new(7), Duration::from_secs(1));
        for (attempts, longest) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (1_000, 8)] {
            let delay = jitter.delay((second, 8 * second), attempts);
            assert!(longest * second / 2 <= delay && delay <= longest * second, "{delay:?}");
        }
    }

    #[test]
    fn delays_are_in_range_and_differ() {
        let jitter = Jitter::new(7);
        let all: Vec<f64> = (0..1000).map(|_| jitter.between(0.5, 1.0)).collect();
        assert!(all.iter().all(|delay| (0.5..1.0).contains(delay)));
        assert!(all.windows(2).all(|two| two[0] != two[1]));
        assert!(all.iter().any(|delay| *delay < 0.55) && all.iter().any(|delay| *delay > 0.95));
    }
}
