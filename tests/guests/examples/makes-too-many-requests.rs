//! Sends one request more than a poll may.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("makes-too-many-requests", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let codes = (0..513).filter_map(|_| http::Request::get("/").send().err()).map(|error| Dependency::ok(error.code));
    Ok(codes.collect())
}
