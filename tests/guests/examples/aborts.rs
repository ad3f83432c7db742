//! Aborts without a message.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("aborts", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    std::process::abort();
}
