//! Sends ten thousand requests at once.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, http};

guests::guest!("makes-all-requests-at-once", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let results = http::send_all((0..10_000).map(|_| http::Request::get("/")).collect());
    let count = |wanted: bool| results.iter().filter(|result| result.is_ok() == wanted).count();
    let code = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let named = [("answered", count(true)), ("refused", count(false))];
    Ok(named.map(|(name, count)| Dependency::ok(name).with_code(code(count))).into_iter().collect())
}
