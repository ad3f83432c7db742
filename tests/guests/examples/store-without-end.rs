//! Stores without end.

use polliwog_sdk::{CallError, Endpoint, Report, store};

guests::guest!("store-without-end", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    for number in 0_u64.. {
        let _ = store::set("key", &number.to_le_bytes());
    }
    Ok(Report::empty())
}
