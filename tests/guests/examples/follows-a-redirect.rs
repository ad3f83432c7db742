//! Follows a redirect to a forbidden address.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("follows-a-redirect", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let answer = http::Request::get("/redirect").send().map_err(CallError::from)?;
    let location = answer.header("location").unwrap_or_default().to_owned();
    let code = http::Request::get(&location).send().map_or_else(|error| error.code, |found| found.status().to_string());
    Ok([Dependency::ok(location).with_title(code)].into_iter().collect())
}
