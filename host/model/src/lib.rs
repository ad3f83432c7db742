//! The words of Polliwog as plain types.
//!
//! Every host room may name this crate and this crate names nobody: no serde, no I/O, no clock. A boundary (API,
//! database, WIT, file) has wire types of its own and converts.

#![forbid(unsafe_code)]

mod event;
mod ids;
mod outcome;
mod pulse;
mod report;
mod text;
mod time;

pub use event::{Event, EventKind};
pub use ids::{InvalidId, Kind, TargetId};
pub use outcome::{Cause, Failure, FailureCategory, Outcome};
pub use pulse::{Alive, Pulse};
pub use report::{Dependency, Json, Report, Sample, SampleKind, Status};
pub use text::is_invisible;
pub use time::{Moment, Timestamp};
