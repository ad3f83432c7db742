//! The tables of the database, one file each: definition, writing, reading, pruning.
//!
//! Functions take a connection, which may be a transaction. Times are milliseconds since the epoch. Statuses are stored
//! by the names that the API uses.

pub(crate) mod alert;
pub(crate) mod delivery;
pub(crate) mod dependency;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fleet;
pub(crate) mod fleet_kept;
pub(crate) mod gap;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod latency;
pub(crate) mod plugin_value;
pub(crate) mod poll_error;
pub(crate) mod session;
pub(crate) mod setting;
pub(crate) mod target;
pub(crate) mod tier;
pub(crate) mod token;
pub(crate) mod transition;

use history::History;

/// The history tables.
pub(crate) const HISTORY: [History; 4] = [event::HISTORY, transition::HISTORY, error::HISTORY, poll_error::HISTORY];
