//! Writes ten thousand log lines.

use polliwog_sdk::{CallError, Endpoint, Report, log};

guests::guest!("logs-too-much", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    for line in 0..10_000 {
        log::error!("line {line}");
    }
    Ok(Report::empty())
}
