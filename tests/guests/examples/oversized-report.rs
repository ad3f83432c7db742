//! Reports more bytes than a report may have, as many as fit into its memory.

use polliwog_sdk::{Dependency, PollError, Report, Target};

guests::guest!("oversized-report", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let text = "x".repeat(40 << 20);
    Ok([Dependency { description: Some(text), ..Dependency::ok("a") }].into_iter().collect())
}
