//! Table `journal`: volatile fields and schedules of all targets, one row per flush, until they are folded into the
//! targets' own rows and the latency blocks.

use crate::columns::JournalColumns;
use crate::wire::{Journal, PointWire, pack, unpack};
use model::{TargetId, Timestamp};
use rusqlite::Connection;

pub(crate) const V1: &str = "
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
";

/// Appends a row.
pub(crate) fn append(connection: &Connection, journal: &Journal) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO journal (body) VALUES (?1)")?
        .execute([pack(&JournalColumns::from(journal))?])
        .map(drop)
}

/// Appends a row that only records the time: polls may have happened after it, unless the host `ended` with it.
pub(crate) fn mark(connection: &Connection, now: Timestamp, ended: bool) -> rusqlite::Result<()> {
    append(connection, &Journal { at: now.as_millis(), ended, ..Journal::default() })
}

/// Returns all rows in order; `None` for a row that cannot be read, which loses at most 30 seconds of progress.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Option<Journal>>> {
    let mut statement = connection.prepare("SELECT body FROM journal ORDER BY sequence")?;
    let rows = statement
        .query_map([], |row| Ok(unpack(&row.get::<_, Vec<u8>>(0)?, |row: JournalColumns| Journal::from(row))))?;
    rows.collect()
}

/// Returns the latency points of a target that are not yet in its blocks, each with its dependency's slot.
pub(crate) fn points(connection: &Connection, target: &TargetId) -> rusqlite::Result<Vec<(u32, PointWire)>> {
    let mut statement = connection.prepare_cached("SELECT num FROM target WHERE id = ?1")?;
    let Some(num) = statement.query_map([target.as_str()], |row| row.get::<_, i64>(0))?.next().transpose()? else {
        return Ok(Vec::new());
    };
    let rows = all(connection)?.into_iter().flatten();
    Ok(rows.flat_map(|row| row.points).filter(|(of, ..)| *of == num).map(|(_, slot, point)| (slot, point)).collect())
}

/// Removes every row.
pub(crate) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM journal", []).map(drop)
}
