//! Reports the same dependency a thousand times.

use polliwog_sdk::{Dependency, PollError, Report, Target};

guests::guest!("names-repeat", poll);

fn poll(_: &Target) -> Result<Report, PollError> {
    let mut report: Report = (0..1000).map(|_| Dependency::ok("a")).collect();
    report.dependencies.push(Dependency::critical("a", "the last one"));
    Ok(report)
}
