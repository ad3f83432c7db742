//! Runs an endless loop.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("endless-loop", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    loop {
        std::hint::black_box(0);
    }
}
