//! The token bucket that limits how many polls start per second in the whole process.

use model::Moment;
use std::time::Duration;

/// Holds the tokens of at most one second and starts full.
#[derive(Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    filled: Moment,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        Self { tokens: f64::INFINITY, filled: Moment::START }
    }

    /// Takes a token and returns true if one is available. A rate of 0 means no limit.
    pub(crate) fn take(&mut self, rate: u32, now: Moment) -> bool {
        if rate == 0 {
            return true;
        }
        self.fill(rate, now);
        let taken = self.tokens >= 1.0;
        if taken {
            self.tokens -= 1.0;
        }
        taken
    }

    /// Returns the time at which the next token is available.
    pub(crate) fn next(&self, rate: u32) -> Moment {
        if rate == 0 || self.tokens >= 1.0 {
            return self.filled;
        }
        // One nanosecond more, so that rounding does not cause an endless series of wake-ups that are too early.
        let missing = Duration::from_secs_f64((1.0 - self.tokens) / f64::from(rate));
        self.filled.after(missing).after(Duration::from_nanos(1))
    }

    fn fill(&mut self, rate: u32, now: Moment) {
        let rate = f64::from(rate);
        self.tokens = (self.tokens + now.since(self.filled).as_secs_f64() * rate).min(rate.max(1.0));
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a list of all tokens taken: in any span of time at most a full bucket plus the tokens added in
        /// that span are taken, and no request is refused while a token is available.
        #[test]
        fn behaves_like_a_list_of_taken_tokens(rate in 1u32..50, gaps in proptest::collection::vec(0u64..200, 1..200)) {
            let mut bucket = Bucket::new();
            let (mut now, mut tokens, mut given) = (Moment::START, f64::from(rate), Vec::new());
            for gap in gaps {
                let gap = Duration::from_millis(gap);
                now = now.after(gap);
                tokens = (tokens + gap.as_secs_f64() * f64::from(rate)).min(f64::from(rate));
                let taken = bucket.take(rate, now);
                // At the boundary either result is right, because both are sums of fractions.
                if (tokens - 1.0).abs() > 1e-6 {
                    prop_assert_eq!(taken, tokens > 1.0);
                }
                if taken {
                    tokens -= 1.0;
                    given.push(now);
                } else {
                    prop_assert!(bucket.next(rate) > now);
                    prop_assert!(bucket.next(rate).since(now) <= Duration::from_micros(1_000_001));
                }
            }
            for (first, from) in given.iter().enumerate() {
                for (count, until) in given[first..].iter().enumerate() {
                    let most = f64::from(rate) * (1.0 + until.since(*from).as_secs_f64());
                    prop_assert!((count + 1) as f64 <= most + 1e-6);
                }
            }
        }
    }

    #[test]
    fn a_full_bucket_allows_a_burst_of_one_second_and_then_the_rate() {
        let mut bucket = Bucket::new();
        let mut taken = 0;
        let mut now = Moment::START;
        while now <= Moment::START.after(Duration::from_secs(10)) {
            if bucket.take(20, now) {
                taken += 1;
            } else {
                assert!(bucket.next(20) > now);
                now = bucket.next(20);
            }
        }
        assert!((219..=221).contains(&taken), "{taken}");
    }
}
