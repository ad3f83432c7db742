//! Writes log lines in an endless loop. Calls of the host must not extend its CPU limit.

use polliwog_sdk::{PollError, Report, Target, log};

guests::guest!("logs-forever", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        log::info!("again");
    }
}
