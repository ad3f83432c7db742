//! Reads history over separate connections.
//!
//! Every read is one statement with a bound on its rows and on its steps, so that no read delays a checkpoint for long.

use crate::tables::error::ErrorRow;
use crate::tables::transition::TransitionRow;
use crate::tables::{error, event, latency, session, setting, token, transition};
use model::{LatencyPoint, SequencedEvent, TargetId, Timestamp};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The number of connections kept for the next reads.
const KEPT: usize = 4;
/// The limit on virtual machine steps of one read (about a second).
const STEPS: i32 = 50_000_000;

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error text of each variant describes it")]
pub enum ReadError {
    #[error("the database could not be read: {}", crate::sqlite::plain(.0))]
    Failed(#[from] rusqlite::Error),
    #[error("the database is closed because the host is shutting down")]
    Closed,
}

/// Reads history. Reads block; call them only where blocking is allowed.
pub struct Reader {
    path: PathBuf,
    idle: Mutex<Idle>,
}

/// Connections kept for the next read.
#[derive(Default)]
struct Idle {
    connections: Vec<Connection>,
    /// Connections of an earlier generation are closed when their read is over.
    generation: u64,
    closed: bool,
}

impl Reader {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default() }
    }

    /// Returns at most `limit` events after a position in the sequence, in order.
    pub fn events_after(&self, sequence: i64, limit: u32) -> Result<Vec<SequencedEvent>, ReadError> {
        self.with(|connection| event::after(connection, sequence, limit))
    }

    /// Returns the position of the first stored event and the last position ever assigned.
    pub fn event_bounds(&self) -> Result<(i64, i64), ReadError> {
        self.with(event::bounds)
    }

    /// Returns the hash of the admin token; `None` if no token exists yet.
    pub fn admin_token(&self) -> Result<Option<[u8; 32]>, ReadError> {
        self.with(token::admin)
    }

    /// Returns the settings that were changed at run time, by key.
    pub fn settings(&self) -> Result<BTreeMap<String, String>, ReadError> {
        self.with(setting::all)
    }

    /// Returns at most `limit` transitions of a dependency, newest first.
    pub fn transitions(
        &self,
        target: &TargetId,
        dependency: &str,
        limit: u32,
    ) -> Result<Vec<TransitionRow>, ReadError> {
        self.with(|connection| transition::of_dependency(connection, target, dependency, limit))
    }

    /// Returns at most `limit` entries of a dependency's error history, newest first.
    pub fn errors(&self, target: &TargetId, dependency: &str, limit: u32) -> Result<Vec<ErrorRow>, ReadError> {
        self.with(|connection| error::of_dependency(connection, target, dependency, limit))
    }

    /// Returns the latency points of the dependency with this slot between two times, oldest first.
    pub fn latency(
        &self,
        target: &TargetId,
        slot: u32,
        span: (Timestamp, Timestamp),
    ) -> Result<Vec<LatencyPoint>, ReadError> {
        self.with(|connection| latency::between(connection, target, slot, span))
    }

    /// Returns the web sessions that have not expired: hash and expiry.
    pub fn sessions(&self, now: Timestamp) -> Result<Vec<([u8; 32], Timestamp)>, ReadError> {
        self.with(|connection| session::valid(connection, now))
    }

    /// Closes every connection; later reads open new ones. The last connection to close folds the write-ahead log; this
    /// must not be a kept read connection, and such a connection must not prevent the fold.
    pub(crate) fn renew(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.connections.clear();
        idle.generation += 1;
    }

    /// Closes every connection for good.
    pub(crate) fn close(&self) {
        self.renew();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }

    fn with<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, ReadError> {
        let (kept, generation) = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.closed {
                return Err(ReadError::Closed);
            }
            (idle.connections.pop(), idle.generation)
        };
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                connection.busy_timeout(std::time::Duration::from_secs(5))?;
                connection
            }
        };
        connection.progress_handler(STEPS, Some(|| true))?;
        let result = read(&connection)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.generation == generation && idle.connections.len() < KEPT {
            idle.connections.push(connection);
        }
        Ok(result)
    }
}
