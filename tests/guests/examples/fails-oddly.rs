//! Fails with an invalid code and an endless message.

use polliwog_sdk::{Failure, PollError, Report, Target};

guests::guest!("fails-oddly", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let message = format!("\u{1b}[31m{}", "m".repeat(5 << 20));
    let failure = Failure { code: "../../etc\n".to_owned(), message, retry_after_ms: Some(u32::MAX) };
    Err(PollError::Permanent(failure))
}
