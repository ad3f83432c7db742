//! Table `token`: hashes of tokens.

use model::Timestamp;
use rusqlite::{Connection, params};

pub(crate) const V1: &str = "
CREATE TABLE token (
    hash BLOB PRIMARY KEY,
    scope TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Replaces the hash of the admin token.
pub(crate) fn set_admin(connection: &Connection, hash: &[u8; 32], at: Timestamp) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM token WHERE scope = 'admin'", [])?;
    let sql = "INSERT INTO token (hash, scope, created_at) VALUES (?1, 'admin', ?2)";
    connection.execute(sql, params![hash, at.as_millis()]).map(drop)
}

/// Returns the hash of the admin token; `None` if no token exists yet.
pub(crate) fn admin(connection: &Connection) -> rusqlite::Result<Option<[u8; 32]>> {
    let sql = "SELECT hash FROM token WHERE scope = 'admin' ORDER BY created_at LIMIT 1";
    connection.prepare_cached(sql)?.query_map([], |row| row.get(0))?.next().transpose()
}
