//! History, read from connections of its own.
//!
//! Every read is one statement with a bound on its rows and on its steps, so that no reader holds the WAL back for long.

use crate::history::LatencyPoint;
use crate::record::StoredEvent;
use crate::wire::{EventWire, PointWire};
use model::{TargetId, Timestamp};
use rusqlite::{Connection, OpenFlags, Row, ToSql, params};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Connections kept for the next read.
const KEPT: usize = 4;
/// Steps of SQLite's machine that one read may take: about a second's worth.
const STEPS: i32 = 50_000_000;

/// A read that did not work.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's text says what it is")]
pub enum ReadError {
    #[error("the database could not be read: {}", crate::open::plain(.0))]
    Failed(#[from] rusqlite::Error),
    #[error("the database is closed: the host ends")]
    Closed,
}

/// One entry of a dependency's error history: error, message, when. Without an error it is a recovery.
pub type ErrorRow = (Option<String>, Option<String>, Timestamp);

/// One change of a dependency's status: previous, current, when.
pub type TransitionRow = (String, String, Timestamp);

/// Where history comes from. Reads block: call them where that is allowed.
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

    /// Events after a place in the sequence, at most `limit`, in order.
    pub fn events_after(&self, sequence: i64, limit: u32) -> Result<Vec<StoredEvent>, ReadError> {
        self.with(|connection| {
            let sql = "SELECT sequence, at, body FROM event WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![sequence, limit], |row| {
                let at = Timestamp::from_millis(row.get(1)?);
                let event =
                    serde_json::from_str::<EventWire>(&row.get::<_, String>(2)?).ok().and_then(|wire| wire.restore(at));
                Ok((row.get(0)?, event))
            })?;
            // A row of another version's that cannot be read is left out; its number is not given to another.
            let read = rows.collect::<rusqlite::Result<Vec<(i64, _)>>>()?;
            Ok(read.into_iter().filter_map(|(sequence, event)| Some(StoredEvent { sequence, event: event? })).collect())
        })
    }

    /// The place of the first event that is still kept, and of the last that was ever given.
    pub fn event_bounds(&self) -> Result<(i64, i64), ReadError> {
        self.with(|connection| {
            let first = connection.query_row("SELECT coalesce(min(sequence), 0) FROM event", [], |row| row.get(0))?;
            let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)";
            Ok((first, connection.query_row(sql, [], |row| row.get(0))?))
        })
    }

    /// The hash of an admin token, where one was made.
    pub fn admin_token(&self) -> Result<Option<[u8; 32]>, ReadError> {
        self.with(|connection| {
            let sql = "SELECT hash FROM token WHERE scope = 'admin' ORDER BY created_at LIMIT 1";
            connection.prepare_cached(sql)?.query_map([], |row| row.get(0))?.next().transpose()
        })
    }

    /// Settings that were changed while the host ran, by key.
    pub fn settings(&self) -> Result<BTreeMap<String, String>, ReadError> {
        self.with(|connection| {
            let mut statement = connection.prepare_cached("SELECT key, value FROM setting")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    /// How often a dependency changed its status, newest first.
    pub fn transitions(
        &self,
        target: &TargetId,
        dependency: &str,
        limit: u32,
    ) -> Result<Vec<TransitionRow>, ReadError> {
        let sql = "SELECT previous, current, at FROM transition
                   WHERE target = (SELECT num FROM target WHERE id = ?1) AND dependency = ?2
                   ORDER BY id DESC LIMIT ?3";
        self.history(sql, params![target.as_str(), dependency, limit], |row| {
            Ok((row.get(0)?, row.get(1)?, Timestamp::from_millis(row.get(2)?)))
        })
    }

    /// A dependency's error history, newest first.
    pub fn errors(&self, target: &TargetId, dependency: &str, limit: u32) -> Result<Vec<ErrorRow>, ReadError> {
        let sql = "SELECT error, message, at FROM error_history
                   WHERE target = (SELECT num FROM target WHERE id = ?1) AND dependency = ?2
                   ORDER BY id DESC LIMIT ?3";
        self.history(sql, params![target.as_str(), dependency, limit], |row| {
            Ok((row.get(0)?, row.get(1)?, Timestamp::from_millis(row.get(2)?)))
        })
    }

    fn history<T>(
        &self,
        sql: &str,
        of: &[&dyn ToSql],
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ReadError> {
        self.with(|connection| connection.prepare_cached(sql)?.query_map(of, |row| read(row))?.collect())
    }

    /// A dependency's latency points in a span of time, oldest first.
    pub fn latency(
        &self,
        target: &TargetId,
        slot: u32,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<Vec<LatencyPoint>, ReadError> {
        self.with(|connection| {
            let sql = "SELECT points FROM latency_block
                       WHERE target = (SELECT num FROM target WHERE id = ?1) AND hour BETWEEN ?2 AND ?3 ORDER BY hour";
            let hour = |at: Timestamp| at.as_millis().div_euclid(3_600_000);
            let mut statement = connection.prepare_cached(sql)?;
            let blocks =
                statement.query_map(params![target.as_str(), hour(from), hour(to)], |row| row.get::<_, Vec<u8>>(0))?;
            let mut points = Vec::new();
            for block in blocks {
                let block: Vec<(u32, PointWire)> = postcard::from_bytes(&block?).unwrap_or_default();
                let own = block.into_iter().filter(|(own, _)| *own == slot).map(|(_, point)| LatencyPoint::from(point));
                points.extend(own.filter(|point| (from..=to).contains(&point.start)));
            }
            Ok(points)
        })
    }

    /// Sessions of pages that have not expired: hash and end.
    pub fn sessions(&self, now: Timestamp) -> Result<Vec<([u8; 32], Timestamp)>, ReadError> {
        self.with(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT hash, expires_at FROM session WHERE expires_at > ?1")?;
            let session = |row: &Row<'_>| Ok((row.get(0)?, Timestamp::from_millis(row.get(1)?)));
            statement.query_map([now.as_millis()], session)?.collect()
        })
    }

    /// Closes every connection; later reads open new ones. The last connection to close folds the write-ahead log, and a
    /// kept reader must not be it, nor hold it up.
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
