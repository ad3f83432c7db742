//! Sends requests in an endless loop and ignores the results.

use polliwog_sdk::{CallError, Endpoint, Report, http};

guests::guest!("fetches-forever", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    loop {
        let _ = std::hint::black_box(http::get("/"));
    }
}
