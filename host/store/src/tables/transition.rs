//! Table `transition`: changes of dependency statuses.

use super::history::{History, Newest};
use crate::changes::Transition;
use model::{Status, StatusChange, TargetId, Timestamp};
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

/// Inserts a transition of the target with this number. Returns the bytes of its row.
pub(crate) fn insert(connection: &Connection, target: i64, t: &Transition, at: Timestamp) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO transition (target, dependency, previous, current, at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![target, t.dependency, t.previous.as_str(), t.current.as_str(), at.as_millis()])?;
    Ok(t.dependency.len())
}

/// Returns the newest transitions of a target, newest first.
pub(crate) fn newest(
    connection: &Connection,
    target: &TargetId,
    since: Timestamp,
) -> rusqlite::Result<Newest<StatusChange>> {
    let sql = "SELECT dependency, previous, current, at FROM transition
               WHERE target = (SELECT num FROM target WHERE id = ?1) ORDER BY id DESC";
    let status = |word: &str| Status::from_word(word).unwrap_or(Status::Unknown);
    Newest::read(connection, (sql, target, since), false, |row| {
        Ok(StatusChange {
            dependency: row.get(0)?,
            previous: status(row.get_ref(1)?.as_str()?),
            current: status(row.get_ref(2)?.as_str()?),
            at: Timestamp::from_millis(row.get(3)?),
        })
    })
}
