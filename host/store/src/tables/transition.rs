//! Table `transition`: changes of dependency statuses.

use super::history::History;
use crate::changes::Transition;
use model::{Status, TargetId, Timestamp};
use rusqlite::{Connection, params};

pub(crate) const V1: &str = "
CREATE TABLE transition (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target INTEGER NOT NULL,
    dependency TEXT NOT NULL,
    previous TEXT NOT NULL,
    current TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;
";

pub(crate) const V3: &str = "CREATE INDEX transition_of_target ON transition (target, id);";

pub(crate) const HISTORY: History =
    History { table: "transition", id: "id", by_number: true, bytes: "octet_length(dependency)" };

/// A change of a dependency's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransitionRow {
    /// The status before.
    pub previous: Status,
    /// The status after.
    pub current: Status,
    /// The time of the change.
    pub at: Timestamp,
}

/// Inserts a transition of the target with this number. Returns the bytes of its row.
pub(crate) fn insert(connection: &Connection, target: i64, t: &Transition, at: Timestamp) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO transition (target, dependency, previous, current, at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![target, t.dependency, t.previous.as_str(), t.current.as_str(), at.as_millis()])?;
    Ok(t.dependency.len())
}

/// Returns at most `limit` transitions of a dependency, newest first.
pub(crate) fn of_dependency(
    connection: &Connection,
    target: &TargetId,
    dependency: &str,
    limit: u32,
) -> rusqlite::Result<Vec<TransitionRow>> {
    let sql = "SELECT previous, current, at FROM transition
               WHERE target = (SELECT num FROM target WHERE id = ?1) AND dependency = ?2 ORDER BY id DESC LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let status = |word: String| Status::from_word(&word).unwrap_or(Status::Unknown);
    let rows = statement.query_map(params![target.as_str(), dependency, limit], |row| {
        Ok(TransitionRow {
            previous: status(row.get(0)?),
            current: status(row.get(1)?),
            at: Timestamp::from_millis(row.get(2)?),
        })
    })?;
    rows.collect()
}
