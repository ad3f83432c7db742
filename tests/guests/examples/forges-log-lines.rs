//! Writes log lines that imitate the host's, and one line of 10 MB.

use polliwog_sdk::{CallError, Endpoint, Report, log};

guests::guest!("forges-log-lines", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    log::info!("done\n2026-01-01T00:00:00Z ERROR the host was taken over\r\u{1b}[2K\u{1b}[1A");
    log::warn!("{}", "l".repeat(10 << 20));
    Ok(Report::empty())
}
