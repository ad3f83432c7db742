//! Sends requests for ever, whatever comes of them.

use polliwog_sdk::{PollError, Report, Target, http};

guests::guest!("fetches-for-ever", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        let _ = std::hint::black_box(http::get("/"));
    }
}
