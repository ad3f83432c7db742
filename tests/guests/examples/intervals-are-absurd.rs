//! Wants to be polled every 0 ms, and to have 49 days for it.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        Descriptor {
            default_interval_ms: 0,
            default_timeout_ms: u32::MAX,
            title: "\u{1b}[31m\u{202e}evil\n".repeat(1000),
            ..guests::descriptor("intervals-are-absurd")
        }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
