//! Uses secrets that its target does not have.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("uses-unknown-secrets", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let names = ["absent", "", "token ", "../token", "TOKEN"];
    let request = |name: &str| http::Request::get("/").header("x", http::secret(name));
    let code = |name: &str| request(name).send().map_or_else(|error| error.code, |found| found.status().to_string());
    Ok(names.map(|name| Dependency::ok(format!("{name:?}")).with_title(code(name))).into_iter().collect())
}
