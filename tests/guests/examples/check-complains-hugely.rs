//! Finds one thing wrong with any settings, and says it in 5 MB.

use polliwog_sdk::{Descriptor, PollError, Report, Target};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        guests::descriptor("check-complains-hugely")
    }

    fn check_settings(_: String) -> Vec<String> {
        vec!["\u{1b}[31mwrong ".repeat(500_000)]
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
