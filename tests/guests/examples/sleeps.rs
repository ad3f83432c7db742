//! Sleeps for an hour.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("sleeps", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    std::thread::sleep(std::time::Duration::from_secs(3600));
    Ok(Report::empty())
}
