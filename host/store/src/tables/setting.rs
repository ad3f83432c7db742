//! Table `setting`: settings that were changed at run time.

use model::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

pub(crate) const V2: &str = "
CREATE TABLE setting (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Sets a setting, or unsets it if `value` is `None`.
pub(crate) fn set(connection: &Connection, key: &str, value: Option<&String>, at: Timestamp) -> rusqlite::Result<()> {
    match value {
        Some(value) => {
            let sql = "INSERT INTO setting (key, value, changed_at) VALUES (?1, ?2, ?3)
                       ON CONFLICT (key) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at";
            connection.prepare_cached(sql)?.execute(params![key, value, at.as_millis()])?;
        }
        None => {
            connection.prepare_cached("DELETE FROM setting WHERE key = ?1")?.execute([key])?;
        }
    }
    Ok(())
}

/// Returns all settings by key.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut statement = connection.prepare_cached("SELECT key, value FROM setting")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
