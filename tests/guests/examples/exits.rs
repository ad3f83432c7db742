//! Calls the exit function of its process.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("exits", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    std::process::exit(0);
}
