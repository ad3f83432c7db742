//! Sends a request to a server that never answers.

use polliwog_sdk::{CallError, Endpoint, Report, http};

guests::guest!("stuck-in-fetch", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    http::get("/never")?;
    Ok(Report::empty())
}
