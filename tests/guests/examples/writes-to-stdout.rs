//! Writes a large number of lines to stdout and stderr.

use polliwog_sdk::{CallError, Endpoint, Report};

guests::guest!("writes-to-stdout", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    for line in 0..1_000 {
        println!("{line} {}", "o".repeat(50));
        eprintln!("{line} {}", "e".repeat(50));
    }
    Ok(Report::empty())
}
