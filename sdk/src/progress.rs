//! Records which alerts of a notification were sent, for plugins that send them in several requests. What is recorded
//! lasts, also if the call fails or the host ends: later attempts contain only the other alerts.
//!
//! ```no_run
//! # use polliwog_sdk::notifier_prelude::*;
//! # use polliwog_sdk::progress;
//! # fn send_one(alert: &Alert) -> Result<(), CallError> { todo!() }
//! fn send(notification: &Notification) -> Result<(), CallError> {
//!     for alert in &notification.alerts {
//!         match send_one(alert) {
//!             Ok(()) => progress::sent(alert),
//!             Err(CallError::Permanent(reason)) => progress::refused(alert, reason),
//!             Err(error) => return Err(error),
//!         }
//!     }
//!     Ok(())
//! }
//! ```

use crate::{Alert, Failure};

#[cfg(target_family = "wasm")]
use crate::bindings::polliwog::plugin::progress as transport;
#[cfg(not(target_family = "wasm"))]
use crate::testing::progress as transport;

/// Records that the receiver took an alert.
pub fn sent(alert: &Alert) {
    transport::sent(&alert.fingerprint);
}

/// Records that the receiver refuses an alert, so that it is not tried again.
pub fn refused(alert: &Alert, reason: Failure) {
    #[cfg(target_family = "wasm")]
    let reason = &reason;
    transport::refused(&alert.fingerprint, reason);
}
