//! When to poll.
//!
//! [`Scheduler`] is sans-I/O: `apply(input, now)`, then drain the actions; [`Scheduler::next_wakeup`] says when time
//! alone will cause one. It has no clock, no tokio and no randomness of its own (it is made with a generator's seed).
//!
//! It decides when each target is polled next (cadence after a success, profile after a failure), who waits for a host
//! or for a cap, and which targets are dead letters. It leaves out what a poll does, what is stored, and who is told.
//!
//! Invariant: the same inputs with the same times and the same seed give the same actions.
//! Invariant: a target is in exactly one place: queued, ready, waiting for its host, in flight, or parked.

#![forbid(unsafe_code)]

mod backoff;
mod breaker;
mod bucket;
mod cadence;
mod explain;
mod hosts;
mod queue;
mod rates;
mod record;
mod scheduler;
mod settings;
pub mod simulator;
mod spread;
mod target;
mod why;

pub use queue::{Entry, Queue, Slot};
pub use scheduler::{Action, Change, Finish, Input, MAX_UNWRITTEN, SLOW, Scheduler};
pub use settings::{Profile, Settings};
pub use target::{LONGEST_RETRY_AFTER, TargetSpec, TargetStatus};
