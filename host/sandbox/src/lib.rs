//! Runs plugins: wasmtime, limits and capabilities.
//!
//! Every poll gets a fresh instance from `InstancePre` on the pooling allocator, so nothing of one target can reach the
//! poll of another. The crate decides which files may be loaded, which resources a poll may use, and which parts of its
//! output are accepted. It does not decide when to poll or what happens with a report.
//!
//! A poll runs on a *lane*, a current-thread runtime that also handles its I/O. There is one lane per core. A poll that
//! has used more than 2 ms of CPU moves to the slow lane while it runs, so that an endless loop delays no other poll.
//!
//! Invariant: a guest has no capabilities except the imports of the contract. WASI is linked without access to
//! the system.
//! Invariant: every poll ends, whatever the guest does, and its result says which limit ended it.

#![deny(unsafe_code)]

mod artifacts;
mod cache;
mod call;
mod close;
mod compile;
mod convert;
mod descriptor;
mod engine;
mod fault;
mod host;
mod imports;
mod lanes;
mod limits;
mod load;
mod meter;
mod plugin;
mod progress;
mod recording;
mod refusal;
mod rest;
mod run;
mod secret_spec;
mod send;
mod settings;
mod setup;
mod stored;
mod ticker;
mod vaults;
mod wasi;
mod zone;

pub use call::Usage;
pub use close::Closing;
pub use compile::{Compiler, compile_child};
#[cfg(fuzzing)]
pub use convert::fuzzing;
pub use engine::Pool;
pub use lanes::Lanes;
pub use limits::Limits;
pub use machine_code::{Backtrace, BuiltIn, Unpacked};
pub use meter::measured;
pub use plugin::{Descriptor, Plugin, Role};
pub use progress::{Collected, Progress};
pub use recording::{Recording, Timing};
pub use refusal::Refusal;
pub use run::{Config, Done, Job, Sandbox, SetupError, Target};
pub use schema::{SettingsProblem, resolved};
pub use secret_spec::{SecretSpec, with_account};
pub use send::{Attempt, Sent};
pub use settings::{AcceptedSettings, SettingsVersion};
pub use setup::{Member, Setup, is_account};
pub use vaults::DurableFolder;
pub use zone::Zone;

/// The versions of the contract that this host supports, newest first.
pub const CONTRACT_VERSIONS: [&str; 1] = ["0.1"];
