//! The known state of targets, and its history.
//!
//! [`KnownState`] is the state of one target in memory. [`KnownState::merge`] merges an outcome into it and is pure.
//! [`Store`] is the SQLite database behind it, with one writer thread that groups commits, and readers for history.
//!
//! A poll without changes writes no row. Changes are committed at once, in one transaction. Progress (last seen,
//! latency, next due time) is collected and written at least every 30 s, in one compact row of the journal, which is
//! folded from time to time. A `kill -9` loses at most the progress of those 30 s.
//!
//! Invariant: a transition is on disk before [`Publish`] or [`Announce`] receives it.
//! Invariant: the sequence of events never restarts.

#![forbid(unsafe_code)]

mod changes;
mod columns;
mod digits;
mod files;
mod job;
mod known;
mod legacy;
mod load;
mod lock;
mod open;
mod path;
mod reader;
mod record;
mod schema;
mod single;
mod spill;
mod sqlite;
mod stored_event;
mod tables;
mod wire;
mod writer;

pub use changes::{Changes, ErrorEntry, PollErrorEntry, Transition};
pub use known::{Aliases, KnownState};
pub use load::{FORGOTTEN, Loaded};
pub use open::{Config, Locked, OpenError, Opened, Store};
pub use reader::{ReadError, Reader};
pub use record::{Announce, Commit, Progress, Publish, StoredSchedule};
pub use writer::Gauges;
