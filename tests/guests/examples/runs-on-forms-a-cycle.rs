//! Reports dependencies that run on each other in a cycle, on themselves, on missing ones, and on very many.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("runs-on-forms-a-cycle", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d"), ("e", "absent"), ("f", "a")];
    let mut report: Report = pairs.map(|(name, other)| Dependency::ok(name).with_runs_on(other)).into_iter().collect();
    let names = (0..100_000).map(|number| format!("absent{number}"));
    report.dependencies.push(Dependency { runs_on: names.collect(), ..Dependency::ok("g") });
    Ok(report)
}
