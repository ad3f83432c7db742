//! Ends its process, as it thinks.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("exits", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    std::process::exit(0);
}
