//! What one poll of a target remembers for the next, in the target's cache.

use polliwog_sdk::cache;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longer than anything is out of order.
pub const LONG: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// What was remembered under a key; the default where nothing is, or it is no longer of this shape.
pub fn remembered<T: DeserializeOwned + Default>(key: &str) -> T {
    cache::get(key).and_then(|kept| serde_json::from_slice(&kept).ok()).unwrap_or_default()
}

/// Remembers something for so long, and says whether there was room for it. A plugin has to do without its cache at any time:
/// what cannot be kept is forgotten.
pub fn remember<T: Serialize>(key: &str, value: &T, ttl: Duration) -> bool {
    serde_json::to_vec(value).is_ok_and(|kept| cache::set(key, &kept, ttl).is_ok())
}
