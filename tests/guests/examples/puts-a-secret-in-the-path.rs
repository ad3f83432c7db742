//! Uses a secret in the path, which servers and proxies log.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("puts-a-secret-in-the-path", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let token = http::secret("token");
    let answer = http::Request::get(format!("/echo/{token}?q={token}")).send().map_err(CallError::from)?;
    Ok([Dependency::ok("answer").with_description(answer.text())].into_iter().collect())
}
