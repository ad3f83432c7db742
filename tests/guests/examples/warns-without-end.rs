//! Reports ten thousand warnings of 10 kB, each twice.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("warns-without-end", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let warning = |number: u32| format!("{number} {}", "w".repeat(if number < 1000 { 10_000 } else { 10 }));
    Ok(Report { warnings: (0..10_000).chain(0..10_000).map(warning).collect(), ..Report::empty() })
}
