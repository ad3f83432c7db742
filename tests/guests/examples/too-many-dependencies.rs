//! Reports one dependency more than a report may have.

use polliwog_sdk::{Dependency, PollError, Report, Target};

guests::guest!("too-many-dependencies", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    Ok((0..25_001).map(|number| Dependency::ok(number.to_string())).collect())
}
