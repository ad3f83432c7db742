//! Reports dependencies whose parents are in a cycle, themselves, or missing.

use polliwog_sdk::{CallError, Dependency, Endpoint, Report};

guests::guest!("parents-form-a-cycle", poll);

fn poll(_: &Endpoint) -> Result<Report, CallError> {
    let pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d"), ("e", "absent"), ("f", "a")];
    Ok(pairs.map(|(name, parent)| Dependency::ok(name).with_parent(parent)).into_iter().collect())
}
