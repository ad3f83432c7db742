//! Spreads first polls, so that a start does not cause a burst.

use std::time::Duration;

/// First polls are spread over at most this time.
const LONGEST: Duration = Duration::from_secs(60);
/// First polls are spread over at most this time per target, so that a few targets are polled at once.
const EACH: Duration = Duration::from_millis(50);

/// Returns the delay of the first poll of each of `targets` (hash of its URL, interval), in the order given.
///
/// The k-th of n URLs in the order of their hashes starts at k/n of min(interval, 60 s, n × 50 ms); equal URLs start
/// together.
pub(crate) fn delays(targets: &[(u64, Duration)]) -> Vec<Duration> {
    let mut order: Vec<u64> = targets.iter().map(|&(hash, _)| hash).collect();
    order.sort_unstable();
    order.dedup();
    let place = |hash: u64| order.binary_search(&hash).expect("every hash is in the order");
    let longest = LONGEST.min(EACH.saturating_mul(u32::try_from(order.len()).unwrap_or(u32::MAX)));
    (targets.iter())
        .map(|&(hash, interval)| interval.min(longest).mul_f64(place(hash) as f64 / order.len() as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_url_starts_at_once_and_equal_urls_start_together() {
        let (seconds, millis) = (Duration::from_secs, Duration::from_millis);
        let found = delays(&[(7, seconds(10)), (1, seconds(10)), (7, seconds(20)), (9, millis(100)), (8, seconds(40))]);
        assert_eq!(found, [50, 0, 50, 75, 100].map(millis), "four addresses, 50 ms for each");
        assert_eq!(delays(&[]), []);
    }

    #[test]
    fn many_targets_are_spread_over_their_interval_and_at_most_a_minute() {
        let delays_of = |interval| delays(&(0..2400).map(|hash| (hash, interval)).collect::<Vec<_>>());
        assert_eq!(delays_of(Duration::from_secs(3600))[1200], Duration::from_secs(30));
        assert_eq!(delays_of(Duration::from_secs(10))[1200], Duration::from_secs(5));
    }
}
