//! Sends requests in an endless loop and ignores the results.

use polliwog_sdk::{PollError, Report, Target, http};

guests::guest!("fetches-forever", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        let _ = std::hint::black_box(http::get("/"));
    }
}
