//! Finds thousands of things wrong with any settings.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        guests::descriptor("check-complains-without-end")
    }

    fn check_settings(_: String) -> Vec<String> {
        (0..5_000).map(|number| format!("problem {number}")).collect()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
