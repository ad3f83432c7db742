//! Running a plugin: wasmtime, limits, capabilities.
//!
//! Every poll gets a fresh instance from `InstancePre` on the pooling allocator; nothing of one target reaches another's
//! poll. What this room decides: what may be loaded, how much a poll may use, and what of its output is taken. What it
//! leaves out: when to poll, and what is done with a report.
//!
//! A poll runs where its I/O runs: on a *lane*, a current-thread runtime, one for each core. One that has used more than
//! 2 ms of CPU is moved, in flight, to the slow lane, so that an endless loop delays nobody.
//!
//! Invariant: a guest has no capability but `http`, `cache` and `log`; WASI is linked with nothing behind it.
//! Invariant: whatever a guest does, its poll ends, and says which limit ended it.

#![deny(unsafe_code)]

mod artifacts;
mod cache;
mod compile;
mod convert;
mod engine;
mod fault;
mod host;
mod lanes;
mod limits;
mod load;
mod meter;
mod run;
mod schema;

pub use compile::{Compiler, compile_child};
#[cfg(fuzzing)]
pub use convert::fuzzing;
pub use engine::{Backtrace, Pool};
pub use lanes::Lanes;
pub use limits::Limits;
pub use load::{Descriptor, Plugin, Refusal, SecretSpec};
pub use meter::measured;
pub use run::{Config, Done, Job, Sandbox, SetupError, Target, Usage};
pub use schema::{SettingsProblem, resolved};

/// The versions of the contract that this host speaks, newest first.
pub const CONTRACT_VERSIONS: [&str; 1] = ["0.1"];
