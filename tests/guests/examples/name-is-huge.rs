//! Reports a dependency with a name of 10 MB.

use polliwog_sdk::{Dependency, PollError, Report, Target};

guests::guest!("name-is-huge", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let names = ["x".repeat(10 << 20), "short".to_owned()];
    Ok(names.map(Dependency::ok).into_iter().collect())
}
