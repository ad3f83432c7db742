//! The tables, a file each: definition, writing, reading, pruning.
//!
//! Functions take a connection, which may be a transaction. Times are milliseconds since the epoch, statuses are the words
//! of the surfaces.

pub(crate) mod dependency;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod latency;
pub(crate) mod poll_error;
pub(crate) mod session;
pub(crate) mod setting;
pub(crate) mod target;
pub(crate) mod token;
pub(crate) mod transition;

use history::History;

/// Every table of history.
pub(crate) const HISTORY: [History; 4] = [event::HISTORY, transition::HISTORY, error::HISTORY, poll_error::HISTORY];
