//! What is known, and what was known.
//!
//! [`Known`] is what is known of one target, in memory; [`Known::learn`] compares an outcome with it, which is pure.
//! [`Store`] is the SQLite database behind it: one writer thread with group commit, and readers for history.
//!
//! A poll that changes nothing costs no row. What changed is committed at once, in one transaction; what merely continued
//! (last seen, latency, next due time) is gathered and written at least every 30 s, in one compact row of the journal,
//! which is folded into the targets' own rows now and then. A `kill -9` may cost those 30 s and nothing else.
//!
//! Invariant: a transition is on disk before [`Acknowledge`] hears of it.
//! Invariant: events have a sequence that never starts again.

#![forbid(unsafe_code)]

mod changes;
mod files;
mod history;
mod known;
mod lock;
mod open;
mod reader;
mod record;
mod schema;
mod spill;
mod wire;
mod writer;

pub use changes::{Changes, ErrorEntry, PollErrorEntry, Transition};
pub use history::{LatencyPoint, WINDOW};
pub use known::{Aliases, Dependency, Facts, Known, Live, Missing, PollFailure};
pub use open::{Config, FORGOTTEN, Loaded, OpenError, Opened, Store};
pub use reader::{ErrorRow, ReadError, Reader, TransitionRow};
pub use record::{Acknowledge, Commit, Committed, DeadRecord, Progress, Schedule, StoredEvent};
pub use writer::Gauges;
