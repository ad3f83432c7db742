//! Table `session`: web sessions, which survive a restart.

use model::{Session, Timestamp};
use rusqlite::{Connection, Row, params};

pub(crate) const V3: &str = "
CREATE TABLE session (
    hash BLOB PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// The token that a session was begun with; NULL for that of the first start.
pub(crate) const V7: &str = "ALTER TABLE session ADD COLUMN token BLOB;\n";

/// Keeps a session.
pub(crate) fn keep(connection: &Connection, session: &Session) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO session (hash, expires_at, token) VALUES (?1, ?2, ?3)";
    connection.execute(sql, params![session.hash, session.until.as_millis(), session.token]).map(drop)
}

/// Ends a session.
pub(crate) fn end(connection: &Connection, hash: &[u8; 32]) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM session WHERE hash = ?1", [hash]).map(drop)
}

/// Returns the sessions that have not expired.
pub(crate) fn valid(connection: &Connection, now: Timestamp) -> rusqlite::Result<Vec<Session>> {
    let sql = "SELECT hash, expires_at, token FROM session WHERE expires_at > ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let session = |row: &Row<'_>| {
        let until = Timestamp::from_millis(row.get(1)?);
        Ok(Session { hash: row.get(0)?, until, token: row.get(2)? })
    };
    statement.query_map([now.as_millis()], session)?.collect()
}
