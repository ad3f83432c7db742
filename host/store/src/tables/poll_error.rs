//! Table `poll_error_history`: poll errors and recoveries of targets.

use super::history::History;
use crate::changes::PollErrorEntry;
use model::Timestamp;
use rusqlite::{Connection, params};

pub(crate) const V1: &str = "
CREATE TABLE poll_error_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target INTEGER NOT NULL,
    category TEXT,
    code TEXT,
    message TEXT,
    at INTEGER NOT NULL
) STRICT;
";

pub(crate) const V3: &str = "CREATE INDEX poll_error_history_of_target ON poll_error_history (target, id);";

pub(crate) const HISTORY: History =
    History { table: "poll_error_history", id: "id", by_number: true, bytes: "coalesce(octet_length(message), 0)" };

/// Inserts an entry for the target with this number. Returns the bytes of its row.
pub(crate) fn insert(
    connection: &Connection,
    target: i64,
    entry: &PollErrorEntry,
    at: Timestamp,
) -> rusqlite::Result<usize> {
    let (category, code, message) = match entry {
        PollErrorEntry::Failed { category, code, message } => (Some(category.as_str()), Some(code), Some(message)),
        PollErrorEntry::Recovered => (None, None, None),
    };
    connection
        .prepare_cached(
            "INSERT INTO poll_error_history (target, category, code, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![target, category, code, message, at.as_millis()])?;
    Ok(message.map_or(0, String::len))
}
