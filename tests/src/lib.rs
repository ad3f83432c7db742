//! What crosses rooms: end to end, misbehaving guests, repository rules. The tests are in `tests/`, the benchmarks in
//! `benches/`; this library holds what they share.

#![forbid(unsafe_code)]

pub mod hostile;
pub mod proxmox;
pub mod wat;

/// The guests of `tests/guests`, compiled.
pub mod guests {
    include!(concat!(env!("OUT_DIR"), "/guests.rs"));
}
