//! The time of the call, and the operator's time zone.
//!
//! Times are milliseconds since the Unix epoch, as in reports; lengths of time are a [`Duration`].
//!
//! ```
//! # use polliwog_sdk::{Dependency, clock};
//! // The last backup was written at 02:00 of the operator's day.
//! let today = clock::now() + i64::from(clock::utc_offset_minutes(clock::now())) * 60_000;
//! let midnight = clock::now() - today % 86_400_000;
//! let backup = Dependency::ok("backup").with_checked_at(midnight + 2 * 3_600_000);
//! ```

use std::time::Duration;

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

/// Returns the offset from UTC of the operator's time zone at a time (milliseconds since the Unix epoch), in minutes,
/// east positive.
#[must_use]
pub fn utc_offset_minutes(at: i64) -> i32 {
    transport::utc_offset_minutes(at)
}

/// Returns the IANA name of the operator's time zone, for example `Europe/Zurich`. `UTC` where it is not known.
#[must_use]
pub fn time_zone() -> String {
    transport::time_zone()
}

/// Returns the rest of the time of this call. Unlike [`now`] it decreases during a call.
#[must_use]
pub fn remaining() -> Duration {
    Duration::from_millis(transport::remaining_ms().into())
}
