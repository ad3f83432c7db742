//! What is looked at less often than at every poll.
//!
//! The last look is remembered in the target's cache. Where that is gone, it is looked again.

use polliwog_sdk::cache;
use std::time::Duration;

/// Whether it is time to look at this again.
pub fn is_due(part: &str) -> bool {
    cache::get(&key(part)).is_none()
}

/// It was looked at: the next time is after so long.
pub fn looked(part: &str, period: Duration) {
    // A cache that is full means one look too many.
    let _ = cache::set(&key(part), b"looked", period);
}

fn key(part: &str) -> String {
    format!("rhythm/{part}")
}
