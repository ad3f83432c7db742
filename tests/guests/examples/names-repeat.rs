//! Reports the same dependency a thousand times.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("names-repeat", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let mut report: Report = (0..1000).map(|_| Dependency::ok("a")).collect();
    report.dependencies.push(Dependency::critical("a", "the last one"));
    Ok(report)
}
