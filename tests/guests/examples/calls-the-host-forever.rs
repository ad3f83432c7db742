//! Calls the same host function in an endless loop.

use polliwog_sdk::{CallError, Endpoint, Report, http};

guests::guest!("calls-the-host-forever", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    loop {
        std::hint::black_box(http::has_secret("token"));
    }
}
