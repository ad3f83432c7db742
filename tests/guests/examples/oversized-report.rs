//! Reports more than a report may hold: as many bytes as its memory has room for.

use polliwog_sdk::{Dependency, PollError, Report, Target};

guests::guest!("oversized-report", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let text = "x".repeat(40 << 20);
    Ok([Dependency { description: Some(text), ..Dependency::ok("a") }].into_iter().collect())
}
