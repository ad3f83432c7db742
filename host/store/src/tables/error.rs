//! Table `error_history`: errors and recoveries of dependencies.

use super::history::{History, Newest};
use crate::changes::ErrorEntry;
use model::{ErrorChange, Json, TargetId, Timestamp};
use rusqlite::{Connection, params};

pub(crate) const V1: &str = "
CREATE TABLE error_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target INTEGER NOT NULL,
    dependency TEXT NOT NULL,
    error TEXT,
    message TEXT,
    at INTEGER NOT NULL
) STRICT;
";

pub(crate) const V3: &str = "CREATE INDEX error_history_of_target ON error_history (target, id);";

pub(crate) const HISTORY: History = History {
    table: "error_history",
    id: "id",
    by_number: true,
    bytes: "octet_length(dependency) + coalesce(octet_length(error), 0) + coalesce(octet_length(message), 0)",
};

/// Inserts an entry for the target with this number. Returns the bytes of its row.
pub(crate) fn insert(connection: &Connection, target: i64, e: &ErrorEntry, at: Timestamp) -> rusqlite::Result<usize> {
    let error = e.error.as_ref().map(Json::as_str);
    connection
        .prepare_cached(
            "INSERT INTO error_history (target, dependency, error, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![target, e.dependency, error, e.message, at.as_millis()])?;
    let texts = [error.map(str::len), e.message.as_ref().map(String::len)];
    Ok(e.dependency.len() + texts.into_iter().flatten().sum::<usize>())
}

/// Returns the newest errors and recoveries of a target's dependencies, newest first.
pub(crate) fn newest(
    connection: &Connection,
    target: &TargetId,
    since: Timestamp,
) -> rusqlite::Result<Newest<ErrorChange>> {
    let sql = "SELECT dependency, error, message, at FROM error_history
               WHERE target = (SELECT num FROM target WHERE id = ?1) ORDER BY id DESC";
    Newest::read(connection, (sql, target, since), false, |row| {
        let at = Timestamp::from_millis(row.get(3)?);
        Ok(ErrorChange { dependency: row.get(0)?, error: row.get(1)?, message: row.get(2)?, at })
    })
}
