//! Decides when to poll each target.
//!
//! [`Scheduler`] is sans-I/O: call `apply(input, now)`, then drain the actions. [`Scheduler::next_wakeup`] returns the
//! time at which the next action follows from time alone. The scheduler has no clock and no tokio; its random numbers
//! come from the seed that it is created with.
//!
//! It decides when each target is polled next (cadence after a success, profile after a failure), which targets wait
//! for a host or a cap, and which targets are dead letters. It does not run polls, store schedules or notify anyone.
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
