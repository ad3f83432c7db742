//! Writes log lines for ever: calls of the host must not give it new time.

use polliwog_sdk::{PollError, Report, Target, log};

guests::guest!("logs-for-ever", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        log::info!("once more");
    }
}
