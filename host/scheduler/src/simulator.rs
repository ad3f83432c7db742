//! The scheduler under simulated time.
//!
//! [`compare`] runs it on a generated [`Estate`] and reports how late each cadence sees changes at an equal number of
//! polls. [`replay`] runs it on the recorded changes of a host. It drives the same scheduler that polls real targets,
//! through the same inputs, and does not depend on how the scheduler decides. `tests/chaos` does the same with random
//! faults.
//!
//! A run is determined by its seed: the same seed yields the same run.

mod compare;
mod drive;
mod estate;
mod optimum;
mod replay;
mod truth;
mod world;

pub use compare::{Comparison, compare};
pub use estate::{Class, Estate, Outage};
pub use replay::{Change, Recorded, Replayed, replay};
pub use world::Row;
