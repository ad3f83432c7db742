//! Panics with a message.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("panicking", poll);

fn poll(target: &Endpoint) -> Result<Report, CallError> {
    panic!("did not expect {}", target.id);
}
