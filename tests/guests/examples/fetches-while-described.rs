//! Sends a request when it is asked who it is.

use polliwog_sdk::{Descriptor, PollError, Report, Target, http};

guests::raw_guest!(Guest);

/// The guest.
pub struct Guest;

impl guests::Guest for Guest {
    fn describe() -> Descriptor {
        let answered = http::get("/described").is_ok();
        Descriptor { title: format!("answered: {answered}"), ..guests::descriptor("fetches-while-described") }
    }

    fn check_settings(_: String) -> Vec<String> {
        Vec::new()
    }

    fn poll(_: Target) -> Result<Report, PollError> {
        Ok(Report::empty())
    }
}
