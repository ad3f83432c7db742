//! What a poll found worth keeping for the next poll of the same target: an ETag, facts that change once a day.
//!
//! In memory only, for this target and this version of the plugin; gone when the host ends, when the target becomes
//! another one, or when others need the room (1 MiB for each target, 64 MiB in all). A plugin has to do without it at any
//! time.

use std::time::Duration;

#[cfg(target_family = "wasm")]
use crate::bindings::polliwog::poller::cache as transport;
#[cfg(not(target_family = "wasm"))]
use crate::testing::cache as transport;

/// What was kept under a key, if it is still there.
pub fn get(key: &str) -> Option<Vec<u8>> {
    transport::get(key)
}

/// Keeps a value for so long, at most 49 days. Fails, with a sentence why, when it is too large.
pub fn set(key: &str, value: &[u8], ttl: Duration) -> Result<(), String> {
    transport::set(key, value, u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX))
}

/// Drops what was kept under a key.
pub fn remove(key: &str) {
    transport::remove(key);
}
