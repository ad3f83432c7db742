//! Stores more values than a target may.

use polliwog_sdk::{Dependency, PollError, Report, Target, cache};

guests::guest!("fills-the-cache", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let mut report = Report::empty();
    for number in 0..30_u32 {
        let kept = cache::set(&format!("{number}"), &[7; 100_000], Duration::from_secs(60)).is_ok();
        report.dependencies.push(Dependency::ok(number.to_string()).with_code(i32::from(kept)));
    }
    let _ = cache::set(&"k".repeat(1 << 20), b"", Duration::from_secs(60)).map_err(|why| report.warn(why));
    let _ = cache::set("large", &vec![0; 2 << 20], Duration::MAX).map_err(|why| report.warn(why));
    Ok(report)
}

use std::time::Duration;
