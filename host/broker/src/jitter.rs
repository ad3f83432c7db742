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

/// A delay before a further attempt that doubles with each failure.
#[derive(Debug)]
pub(crate) struct Retry {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Retry {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Returns the delay after a failure: half of it at least, by `jitter`.
    pub(crate) fn failed(&mut self, jitter: &Jitter) -> Duration {
        let delay = self.next.mul_f64(jitter.between(0.5, 1.0));
        self.next = (self.next * 2).min(self.longest);
        delay
    }

    /// An attempt succeeded.
    pub(crate) fn succeeded(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_an_attempt_succeeds() {
        let (jitter, second) = (Jitter::new(7), Duration::from_secs(1));
        let mut retry = Retry::new(second, 8 * second);
        for longest in [1, 2, 4, 8, 8] {
            let delay = retry.failed(&jitter);
            assert!(longest * second / 2 <= delay && delay <= longest * second, "{delay:?}");
        }
        retry.succeeded();
        assert!(retry.failed(&jitter) <= second);
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
