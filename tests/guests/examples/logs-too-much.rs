//! Writes ten thousand log lines.

use polliwog_sdk::{PollError, Report, Target, log};

guests::guest!("logs-too-much", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    for line in 0..10_000 {
        log::error!("line {line}");
    }
    Ok(Report::empty())
}
