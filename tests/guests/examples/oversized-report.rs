//! Reports more bytes than a report may have, as many as fit into its memory.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("oversized-report", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let text = "x".repeat(40 << 20);
    Ok([Dependency { description: Some(text), ..Dependency::ok("a") }].into_iter().collect())
}
