//! Counts its polls in the store. The dependency `count` has the number as its code; every second poll is a warning.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, Status, store};

guests::guest!("stores-a-count", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let before = store::get("count").and_then(|bytes| Some(i32::from_le_bytes(bytes.try_into().ok()?)));
    let count = before.unwrap_or(0) + 1;
    store::set("count", &count.to_le_bytes()).expect("a number fits");
    let status = if count % 2 == 0 { Status::Warning } else { Status::Ok };
    Ok([Dependency::new("count", status).with_code(count)].into_iter().collect())
}
