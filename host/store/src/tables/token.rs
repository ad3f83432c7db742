//! Table `token`: tokens with the hashes of their secrets.

use model::{Scope, Timestamp, Token};
use rusqlite::{Connection, params};

pub(crate) const V1: &str = "
CREATE TABLE token (
    hash BLOB PRIMARY KEY,
    scope TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Tokens with names. The token of the first start has an empty one.
pub(crate) const V7: &str = "
ALTER TABLE token ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN expires_at INTEGER;
ALTER TABLE token ADD COLUMN last_used_at INTEGER;
";

/// Replaces the hash of the token of the first start.
pub(crate) fn set_admin(connection: &Connection, hash: &[u8; 32], at: Timestamp) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM token WHERE name = ''", [])?;
    let sql = "INSERT INTO token (hash, scope, created_at) VALUES (?1, 'admin', ?2)";
    connection.execute(sql, params![hash, at.as_millis()]).map(drop)
}

/// Returns the hash of the token of the first start; `None` if it does not exist yet.
pub(crate) fn admin(connection: &Connection) -> rusqlite::Result<Option<[u8; 32]>> {
    let sql = "SELECT hash FROM token WHERE name = '' ORDER BY created_at LIMIT 1";
    connection.prepare_cached(sql)?.query_map([], |row| row.get(0))?.next().transpose()
}

/// Inserts or replaces a token with a name.
pub(crate) fn keep(connection: &Connection, token: &Token) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO token (hash, scope, created_at, name, expires_at, last_used_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
    let Token { hash, name, scope, created, expires, last_used } = token;
    let values = params![hash, scope.as_str(), created.as_millis(), name, ms(*expires), ms(*last_used)];
    connection.execute(sql, values).map(drop)
}

/// Deletes a token and its sessions.
pub(crate) fn delete(connection: &Connection, hash: &[u8; 32]) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM token WHERE hash = ?1", [hash])?;
    connection.execute("DELETE FROM session WHERE token = ?1", [hash]).map(drop)
}

/// Returns the tokens with names. A token whose scope is not known is skipped.
pub(crate) fn named(connection: &Connection) -> rusqlite::Result<Vec<Token>> {
    let sql = "SELECT hash, name, scope, created_at, expires_at, last_used_at FROM token WHERE name <> ''";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis));
        let Some(scope) = Scope::from_word(&row.get::<_, String>(2)?) else { return Ok(None) };
        let created = Timestamp::from_millis(row.get(3)?);
        let (expires, last_used) = (time(4)?, time(5)?);
        Ok(Some(Token { hash: row.get(0)?, name: row.get(1)?, scope, created, expires, last_used }))
    })?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}
