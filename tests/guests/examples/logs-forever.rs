//! Writes log lines in an endless loop. Calls of the host must not extend its CPU limit.

use polliwog_sdk::{CallError, Endpoint, Report, log};

guests::guest!("logs-forever", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    loop {
        log::info!("again");
    }
}
