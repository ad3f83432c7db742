//! Uses a secret in the path, which servers and proxies log.

use polliwog_sdk::{Dependency, PollError, Report, Target, http};

guests::guest!("puts-a-secret-in-the-path", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let answer = http::Request::get("/echo/${secret.token}?q=${secret.token}").send().map_err(PollError::from)?;
    Ok([Dependency::ok("answer").with_description(answer.text())].into_iter().collect())
}
