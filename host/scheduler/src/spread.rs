//! Spreading first polls, so that a start is no burst.

use std::time::Duration;

/// First polls are spread over at most this long.
const LONGEST: Duration = Duration::from_secs(60);

/// When each of `targets` (hash of its URL, interval) starts, counted from now, in the order given.
///
/// The k-th of n URLs in the order of their hashes starts at k/n of min(interval, 60 s); equal URLs start together.
pub(crate) fn delays(targets: &[(u64, Duration)]) -> Vec<Duration> {
    let mut order: Vec<u64> = targets.iter().map(|&(hash, _)| hash).collect();
    order.sort_unstable();
    order.dedup();
    let place = |hash: u64| order.binary_search(&hash).expect("every hash is in the order");
    (targets.iter())
        .map(|&(hash, interval)| interval.min(LONGEST).mul_f64(place(hash) as f64 / order.len() as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_starts_at_once_and_equal_urls_together() {
        let seconds = Duration::from_secs;
        let found =
            delays(&[(7, seconds(10)), (1, seconds(10)), (7, seconds(20)), (9, seconds(3600)), (8, seconds(40))]);
        assert_eq!(found, [Duration::from_millis(2500), seconds(0), seconds(5), seconds(45), seconds(20)]);
        assert_eq!(delays(&[]), []);
    }
}
