//! Table `session`: web sessions, which survive a restart.

use model::Timestamp;
use rusqlite::{Connection, Row, params};

pub(crate) const V3: &str = "
CREATE TABLE session (
    hash BLOB PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Keeps a session until `until`, or ends it if that is `None`.
pub(crate) fn set(connection: &Connection, hash: &[u8; 32], until: Option<Timestamp>) -> rusqlite::Result<()> {
    match until {
        Some(until) => {
            let sql = "INSERT OR REPLACE INTO session (hash, expires_at) VALUES (?1, ?2)";
            connection.execute(sql, params![hash, until.as_millis()]).map(drop)
        }
        None => connection.execute("DELETE FROM session WHERE hash = ?1", [hash]).map(drop),
    }
}

/// Returns the sessions that have not expired, each with its expiry.
pub(crate) fn valid(connection: &Connection, now: Timestamp) -> rusqlite::Result<Vec<([u8; 32], Timestamp)>> {
    let mut statement = connection.prepare_cached("SELECT hash, expires_at FROM session WHERE expires_at > ?1")?;
    let session = |row: &Row<'_>| Ok((row.get(0)?, Timestamp::from_millis(row.get(1)?)));
    statement.query_map([now.as_millis()], session)?.collect()
}
