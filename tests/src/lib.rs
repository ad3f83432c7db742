//! Shared code of the tests that span several crates: end-to-end tests, misbehaving guests, repository rules. The tests
//! are in `tests/`, the benchmarks in `benches/`.

#![forbid(unsafe_code)]

pub mod hostile;
pub mod proxmox;
pub mod wat;

/// The compiled guests of `tests/guests`.
pub mod guests {
    include!(concat!(env!("OUT_DIR"), "/guests.rs"));
}
