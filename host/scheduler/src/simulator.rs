//! The scheduler under simulated time.
//!
//! [`compare`] runs it on a made-up [`Estate`] and says how late each cadence sees changes at an equal number of polls;
//! [`chaos`] runs it through random faults, changes, restarts and jumps of time, and holds every step against invariants
//! and against a naive model of what follows what. Both drive the one scheduler that polls for real, through the same
//! inputs; nothing here knows how it decides.
//!
//! Everything follows from a seed: the same seed gives the same run.

pub mod chaos;
mod compare;
mod estate;
mod truth;

pub use compare::{Comparison, Row, compare};
pub use estate::{Class, Estate, Outage};
