//! Recurses with large stack frames.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("recurses-deeply", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    Ok([Dependency::ok(deep(1).to_string())].into_iter().collect())
}

fn deep(depth: u64) -> u64 {
    let held = std::hint::black_box([depth; 512]);
    if depth == 0 { 0 } else { deep(depth + 1) + held[(depth % 512) as usize] }
}
