//! What is known, and what was known.
//!
//! [`KnownState`] is what is known of one target, in memory; [`KnownState::learn`] compares an outcome with it, which is pure.
//! [`Store`] is the SQLite database behind it: one writer thread with group commit, and readers for history.
//!
//! A poll that changes nothing costs no row. What changed is committed at once, in one transaction; what merely continued
//! (last seen, latency, next due time) is gathered and written at least every 30 s, in one compact row of the journal,
//! which is folded into the targets' own rows now and then. A `kill -9` may cost those 30 s and nothing else.
//!
//! Invariant: a transition is on disk before [`Publish`] or [`Announce`] receives it.
//! Invariant: events have a sequence that never starts again.

#![forbid(unsafe_code)]

mod changes;
mod files;
mod job;
mod known;
mod load;
mod lock;
mod open;
mod path;
mod reader;
mod record;
mod schema;
mod spill;
mod sqlite;
mod stored_event;
mod tables;
mod wire;
mod writer;

pub use changes::{Changes, ErrorEntry, PollErrorEntry, Transition};
pub use known::{Aliases, KnownState};
pub use load::{FORGOTTEN, Loaded};
pub use open::{Config, OpenError, Opened, Store};
pub use reader::{ReadError, Reader};
pub use record::{Announce, Commit, Progress, Publish, StoredSchedule};
pub use tables::error::ErrorRow;
pub use tables::transition::TransitionRow;
pub use writer::Gauges;
