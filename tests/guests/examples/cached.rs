//! Counts its polls in the cache and its calls in a static. The first count survives a poll, the second does not.

use polliwog_sdk::bindings::polliwog::plugin::{cache, log};
use polliwog_sdk::{CallError, Dependency, Endpoint, Report};
use std::sync::atomic::{AtomicI32, Ordering};

guests::guest!("cached", poll);

static CALLS: AtomicI32 = AtomicI32::new(0);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    for line in 0..200 {
        log::write(log::Level::Info, &format!("line {line}\u{1b}[31m"));
    }
    let before = cache::get("polls").and_then(|bytes| bytes.first().copied()).unwrap_or(0);
    cache::set("polls", &[before + 1], 60_000).map_err(|why| CallError::permanent("cache", why.name()))?;
    let count = |name: &str, code: i32| Dependency { code: Some(code), ..Dependency::ok(name) };
    let calls = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    Ok([count("polls", i32::from(before) + 1), count("calls", calls)].into_iter().collect())
}
