//! Stores more values than a target may.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report, cache};

guests::guest!("fills-the-cache", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let mut report = Report::empty();
    for number in 0..30_u32 {
        let kept = cache::set(&format!("{number}"), &[7; 100_000], Duration::from_secs(60)).is_ok();
        report.dependencies.push(Dependency::ok(number.to_string()).with_code(i32::from(kept)));
    }
    let minute = Duration::from_secs(60);
    for (what, key, size, ttl) in [
        ("key", "k".repeat(1 << 20), 0, minute),
        ("value", "large".to_owned(), 2 << 20, minute),
        ("time", "forever".to_owned(), 0, Duration::MAX),
    ] {
        let _ = cache::set(&key, &vec![0; size], ttl).map_err(|why| report.warn(format!("{what}: {}", why.name())));
    }
    Ok(report)
}

use std::time::Duration;
