//! The waits between attempts of a delivery.

use std::time::Duration;

/// The wait after the first failed attempt. Each further one doubles it.
const FIRST: Duration = Duration::from_secs(5);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// The longest wait that a receiver can request with Retry-After.
const LONGEST_REQUESTED: Duration = Duration::from_secs(3600);
/// A delivery is given up after this time.
pub(super) const EXPIRES: Duration = Duration::from_secs(24 * 3600);

/// The wait after a failed attempt: `attempts` is their number so far. A longer wait that the receiver requests counts.
pub(super) fn after_failure(attempts: u32, requested: Option<Duration>) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    let own = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    requested.map_or(own, |requested| own.max(requested.min(LONGEST_REQUESTED)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_an_hour_unless_the_receiver_requests_more() {
        let check = |attempts, requested: Option<u64>, expected| {
            let wait = after_failure(attempts, requested.map(Duration::from_secs));
            assert_eq!(wait, Duration::from_secs(expected), "{attempts} {requested:?}");
        };
        check(1, None, 5);
        check(2, None, 10);
        check(5, None, 80);
        check(9, None, 1280);
        check(10, None, 1800);
        check(u32::MAX, None, 1800);
        check(1, Some(60), 60);
        check(5, Some(60), 80);
        check(1, Some(86_400), 3600);
    }
}
