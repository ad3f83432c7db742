//! Aborts without a message.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("aborts", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    std::process::abort();
}
