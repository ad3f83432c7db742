//! Stores values for the next calls of the same target or channel, over restarts of the host and versions of the
//! plugin: the previous value of a counter, a cursor.
//!
//! At most 64 KiB and 64 keys, in the host's database in clear text. Changes take effect if the call returns, also with
//! an error, and are lost if the plugin panics. For values that may be lost at any time, use [`cache`](crate::cache).
//!
//! ```
//! use polliwog_sdk::store;
//!
//! # fn main() -> Result<(), store::StoreError> {
//! let before = store::get("bytes").and_then(|value| String::from_utf8(value).ok()?.parse::<u64>().ok());
//! store::set("bytes", 42.to_string().as_bytes())?;
//! # assert_eq!((before, store::keys()), (None, vec!["bytes".to_owned()]));
//! # Ok(())
//! # }
//! ```

pub use crate::bindings::polliwog::plugin::store::StoreError;

#[cfg(target_family = "wasm")]
use crate::bindings::polliwog::plugin::store as transport;
#[cfg(not(target_family = "wasm"))]
use crate::testing::store as transport;

/// Returns the value of a key; `None` if it is not set.
pub fn get(key: &str) -> Option<Vec<u8>> {
    transport::get(key)
}

/// Sets the value of a key.
///
/// # Errors
/// If the key is empty or has more than 256 bytes, or if the value does not fit.
pub fn set(key: &str, value: &[u8]) -> Result<(), StoreError> {
    transport::set(key, value)
}

/// Removes the value of a key.
pub fn remove(key: &str) {
    transport::remove(key);
}

/// Returns the keys in ascending order.
pub fn keys() -> Vec<String> {
    transport::keys()
}
