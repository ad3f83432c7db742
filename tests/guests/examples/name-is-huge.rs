//! Reports a dependency with a name of 10 MB.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("name-is-huge", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let names = ["x".repeat(10 << 20), "short".to_owned()];
    Ok(names.map(Dependency::ok).into_iter().collect())
}
