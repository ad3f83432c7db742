//! Stores values for the next poll of the same target, for example an ETag or facts that change once a day.
//!
//! Values are kept in memory only, for one target and one version of the plugin. They are lost when the host ends, when
//! the target's identity changes, or when the limits are exceeded (1 MiB per target, 64 MiB in total). A plugin must
//! work without them at any time.
//!
//! ```
//! use polliwog_sdk::cache;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), cache::CacheError> {
//! cache::set("version", b"9.1", Duration::from_secs(3600))?;
//! assert_eq!(cache::get("version").as_deref(), Some(&b"9.1"[..]));
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

pub use crate::bindings::polliwog::plugin::cache::CacheError;

#[cfg(target_family = "wasm")]
use crate::bindings::polliwog::plugin::cache as transport;
#[cfg(not(target_family = "wasm"))]
use crate::testing::cache as transport;

/// The longest time for which a value is kept: a week.
pub const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Returns the value of a key. `None` if there is no value, or if it has expired or was removed.
pub fn get(key: &str) -> Option<Vec<u8>> {
    transport::get(key)
}

/// Stores a value for `ttl`, from a millisecond to [`LONGEST`].
///
/// # Errors
/// If the key is empty or has more than 256 bytes, if `ttl` is out of bounds, or if the value does not fit.
pub fn set(key: &str, value: &[u8], ttl: Duration) -> Result<(), CacheError> {
    transport::set(key, value, crate::report::millis(ttl))
}

/// Removes the value of a key.
pub fn remove(key: &str) {
    transport::remove(key);
}
