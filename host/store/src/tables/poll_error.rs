//! Table `poll_error_history`: poll errors and recoveries of targets.

use super::history::{History, Newest};
use crate::changes::PollErrorEntry;
use model::{FailureCategory, PollChange, TargetId, Timestamp};
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

/// Returns the newest changes of a target's polls, newest first, and the last one before that time.
pub(crate) fn newest(
    connection: &Connection,
    target: &TargetId,
    since: Timestamp,
) -> rusqlite::Result<Newest<PollChange>> {
    let sql = "SELECT category, code, message, at FROM poll_error_history
               WHERE target = (SELECT num FROM target WHERE id = ?1) ORDER BY id DESC";
    Newest::read(connection, (sql, target, since), true, |row| {
        let category = row.get_ref(0)?.as_str_or_null()?.and_then(FailureCategory::from_word);
        let text = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<String>>(column)?.unwrap_or_default());
        let failure = match category {
            Some(category) => Some((category, text(1)?, text(2)?)),
            None => None,
        };
        Ok(PollChange { failure, at: Timestamp::from_millis(row.get(3)?) })
    })
}
