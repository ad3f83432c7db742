//! Reports one dependency more than a report may have.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("too-many-dependencies", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    Ok((0..25_001).map(|number| Dependency::ok(number.to_string())).collect())
}
