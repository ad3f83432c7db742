//! Runs an endless loop.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("endless-loop", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    loop {
        std::hint::black_box(0);
    }
}
