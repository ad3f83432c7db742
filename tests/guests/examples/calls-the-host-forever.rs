//! Calls the same host function in an endless loop.

use polliwog_sdk::{PollError, Report, Target, http};

guests::guest!("calls-the-host-forever", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        std::hint::black_box(http::has_secret("token"));
    }
}
