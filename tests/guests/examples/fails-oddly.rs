//! Fails with an invalid code and an endless message.

use polliwog_sdk::{CallError, Endpoint, Failure, Report};

guests::guest!("fails-oddly", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let message = format!("\u{1b}[31m{}", "m".repeat(5 << 20));
    let failure = Failure { retry_after_ms: Some(u32::MAX), ..Failure::new("../../etc\n", message) };
    Err(CallError::Permanent(failure))
}
