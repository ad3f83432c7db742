//! Asks the host for the same thing for ever.

use polliwog_sdk::{PollError, Report, Target, http};

guests::guest!("asks-for-ever", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        std::hint::black_box(http::has_secret("token"));
    }
}
