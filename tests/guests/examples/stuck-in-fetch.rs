//! Sends a request to a server that never answers.

use polliwog_sdk::{PollError, Report, Target, http};

guests::guest!("stuck-in-fetch", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    http::get("/never")?;
    Ok(Report::empty())
}
