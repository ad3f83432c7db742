//! Sleeps for an hour.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("sleeps", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    std::thread::sleep(std::time::Duration::from_secs(3600));
    Ok(Report::empty())
}
