//! The circuit breaker: an *open* breaker refuses polls.
//!
//! It does not count failures itself: the schedule counts consecutive failures and passes the number in.

use crate::settings::Rules;
use model::{Breaker, BreakerState, Moment};
use std::time::Duration;

/// Upper bound on the time that a breaker stays open.
const LONGEST: Duration = Duration::from_secs(300);

/// The transitions of a breaker.
pub(crate) trait Transitions {
    /// Records the start of a poll. If the breaker is open, the poll is its probe and the breaker becomes half-open.
    fn start(&mut self, now: Moment);

    /// Closes the breaker after a success. Returns true if it was open or half-open.
    fn succeed(&mut self, now: Moment) -> bool;

    /// Records the `failures`-th consecutive failure. Returns how long the breaker stays open if this failure opens it.
    fn fail(&mut self, rules: &Rules, failures: u32, now: Moment) -> Option<Duration>;

    /// Records that the probe ended without an outcome for the target: the breaker opens again for the same time.
    /// Returns that time; `None` if no probe was in flight.
    fn lose_probe(&mut self, now: Moment) -> Option<Duration>;
}

impl Transitions for Breaker<Moment> {
    fn start(&mut self, now: Moment) {
        if self.state == BreakerState::Open {
            enter(self, BreakerState::HalfOpen, now);
        }
    }

    fn succeed(&mut self, now: Moment) -> bool {
        let opened = self.state != BreakerState::Closed;
        if opened {
            enter(self, BreakerState::Closed, now);
        }
        self.open_for = None;
        opened
    }

    fn fail(&mut self, rules: &Rules, failures: u32, now: Moment) -> Option<Duration> {
        if self.state == BreakerState::Closed && failures < rules.threshold {
            return None;
        }
        let last = self.open_for.unwrap_or(rules.open_for);
        let open_for = if rules.open_grows {
            last.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(LONGEST)
        } else {
            rules.open_for
        };
        self.open_for = Some(open_for);
        enter(self, BreakerState::Open, now);
        Some(open_for)
    }

    fn lose_probe(&mut self, now: Moment) -> Option<Duration> {
        if self.state != BreakerState::HalfOpen {
            return None;
        }
        enter(self, BreakerState::Open, now);
        self.open_for
    }
}

fn enter(breaker: &mut Breaker<Moment>, state: BreakerState, now: Moment) {
    breaker.state = state;
    breaker.since = Some(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use proptest::prelude::*;

    /// A naive model of the breaker.
    #[derive(Debug, Default)]
    struct Plain {
        failures: u32,
        open_for: Option<u64>,
        probing: bool,
    }

    impl Plain {
        /// Returns the seconds until the probe if the failure opens the breaker.
        fn fail(&mut self, profile: Profile) -> Option<u64> {
            self.failures += 1;
            self.probing = false;
            let threshold = if profile == Profile::Depsera { 10 } else { 3 };
            if self.open_for.is_none() && self.failures < threshold {
                return None;
            }
            let mut seconds = if profile == Profile::Standard { 90 } else { 300 };
            if profile == Profile::Pulse {
                seconds = self.open_for.unwrap_or(5);
                (0..self.failures).for_each(|_| seconds = (seconds * 2).min(300));
            }
            self.open_for = Some(seconds);
            self.open_for
        }

        fn state(&self) -> BreakerState {
            match (self.open_for, self.probing) {
                (None, _) => BreakerState::Closed,
                (Some(_), false) => BreakerState::Open,
                (Some(_), true) => BreakerState::HalfOpen,
            }
        }
    }

    proptest! {
        #[test]
        fn behaves_like_the_naive_model(which in 0usize..3, ops in proptest::collection::vec(0u8..5, 0..60)) {
            let profile = Profile::ALL[which];
            let (mut breaker, mut plain) = (Breaker::CLOSED, Plain::default());
            for (at, op) in ops.into_iter().enumerate() {
                let now = Moment::from_nanos(at as i64);
                match op {
                    0 => {
                        breaker.start(now);
                        plain.probing = plain.open_for.is_some();
                    }
                    1 => {
                        prop_assert_eq!(breaker.succeed(now), plain.open_for.is_some());
                        plain = Plain::default();
                    }
                    2 => {
                        let again = plain.open_for.filter(|_| plain.probing);
                        prop_assert_eq!(breaker.lose_probe(now).map(|again| again.as_secs()), again);
                        plain.probing = false;
                    }
                    _ => {
                        let expected = plain.fail(profile);
                        let found = breaker.fail(&profile.rules(Duration::from_secs(90)), plain.failures, now);
                        prop_assert_eq!(found.map(|open_for| open_for.as_secs()), expected);
                    }
                }
                prop_assert_eq!(breaker.state, plain.state());
            }
        }
    }

    #[test]
    fn pulse_opens_at_the_third_failure_for_40_then_300_seconds() {
        let rules = Profile::Pulse.rules(Duration::from_secs(10));
        let mut breaker = Breaker::CLOSED;
        let mut opened = Vec::new();
        for failures in 1..=7 {
            breaker.start(Moment::START);
            opened.push(breaker.fail(&rules, failures, Moment::START).map(|open_for| open_for.as_secs()));
        }
        assert_eq!(opened, [None, None, Some(40), Some(300), Some(300), Some(300), Some(300)]);
        breaker.start(Moment::START);
        assert_eq!(breaker.state, BreakerState::HalfOpen);
        assert!(breaker.succeed(Moment::START));
        assert!(!breaker.succeed(Moment::START));
        assert_eq!(breaker.fail(&rules, 3, Moment::START), Some(Duration::from_secs(40)), "a success resets the time");
    }

    #[test]
    fn depsera_opens_at_the_tenth_failure_for_five_minutes() {
        let rules = Profile::Depsera.rules(Duration::from_secs(10));
        let mut breaker = Breaker::CLOSED;
        for failures in 1..=9 {
            assert_eq!(breaker.fail(&rules, failures, Moment::START), None);
        }
        for failures in 10..=12 {
            assert_eq!(breaker.fail(&rules, failures, Moment::START), Some(Duration::from_secs(300)));
        }
    }

    #[test]
    fn a_probe_without_an_outcome_reopens_the_breaker_for_the_same_time() {
        let rules = Profile::Pulse.rules(Duration::from_secs(10));
        let mut breaker = Breaker::CLOSED;
        breaker.fail(&rules, 3, Moment::START);
        assert_eq!(breaker.lose_probe(Moment::START), None, "no probe is in flight");
        breaker.start(Moment::START);
        assert_eq!(breaker.lose_probe(Moment::START), Some(Duration::from_secs(40)));
        assert_eq!(breaker.state, BreakerState::Open);
    }
}
