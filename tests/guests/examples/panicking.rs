//! Panics with a message.

use polliwog_sdk::{PollError, Report, Target};

guests::guest!("panicking", poll);

fn poll(target: &Target) -> Result<Report, PollError> {
    panic!("did not expect {}", target.id);
}
