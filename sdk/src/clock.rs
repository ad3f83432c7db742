//! The time of the call.

#[cfg(target_family = "wasm")]
use crate::bindings::polliwog::plugin::clock as transport;
#[cfg(not(target_family = "wasm"))]
use crate::testing::clock as transport;

/// Returns the time of this call in milliseconds since the Unix epoch. It does not advance during a call, so that a
/// call can be replayed.
#[must_use]
pub fn now() -> i64 {
    transport::now()
}
