//! Calls the exit function of its process.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("exits", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    std::process::exit(0);
}
