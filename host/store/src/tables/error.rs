//! Table `error_history`: errors and recoveries of dependencies.

use super::history::History;
use crate::changes::ErrorEntry;
use model::{Json, TargetId, Timestamp};
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

/// An entry of a dependency's error history; a recovery if `error` is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// The error as JSON.
    pub error: Option<String>,
    /// The error message for users.
    pub message: Option<String>,
    /// The time of the entry.
    pub at: Timestamp,
}

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

/// Returns at most `limit` entries of a dependency, newest first.
pub(crate) fn of_dependency(
    connection: &Connection,
    target: &TargetId,
    dependency: &str,
    limit: u32,
) -> rusqlite::Result<Vec<ErrorRow>> {
    let sql = "SELECT error, message, at FROM error_history
               WHERE target = (SELECT num FROM target WHERE id = ?1) AND dependency = ?2 ORDER BY id DESC LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![target.as_str(), dependency, limit], |row| {
        Ok(ErrorRow { error: row.get(0)?, message: row.get(1)?, at: Timestamp::from_millis(row.get(2)?) })
    })?;
    rows.collect()
}
