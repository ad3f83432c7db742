//! Shared code of the tests that span several crates: end-to-end tests, misbehaving guests, repository rules. The tests
//! are in `tests/`, the benchmarks in `benches/`.

#![forbid(unsafe_code)]

use sandbox::{Plugin, Sandbox};
use std::sync::Arc;

pub mod hostile;
pub mod proxmox;
pub mod wat;

/// The compiled guests of `tests/guests`.
pub mod guests {
    include!(concat!(env!("OUT_DIR"), "/guests.rs"));
}

/// Loads a built-in plugin as a host does: with the machine code that the build generated.
///
/// # Panics
/// Panics if there is no such plugin or if it cannot be loaded, because this is for tests.
pub async fn built_in(sandbox: &Sandbox, kind: &str) -> Plugin {
    let code = builtin_code::ALL.iter().find(|code| code.kind == kind).expect("it is built in");
    let loaded = sandbox.load_built_in(*code, &Arc::default()).await;
    loaded.unwrap_or_else(|refusal| panic!("{kind}: {}", refusal.message))
}
