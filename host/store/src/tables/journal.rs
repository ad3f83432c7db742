//! Table `journal`: volatile fields and schedules of all targets, one row per flush, until they are folded into the
//! targets' own rows and the latency blocks.

use crate::columns::{JournalColumns, OwnedColumns};
use crate::wire::{Journal, StoredPoint, pack, unpack, unpacked};
use model::Timestamp;
use rusqlite::{Connection, Row, params};

pub(crate) const V1: &str = "
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
";

/// Latency points in a separate column, so that the chart of a target need not decode all schedules. Rows of earlier
/// versions have NULL, and their points in the body.
pub(crate) const V6: &str = "ALTER TABLE journal ADD COLUMN points BLOB;\n";

/// A row with its points, each with the number of its target.
pub(crate) type JournalRow = (Journal, Vec<(i64, StoredPoint)>);

/// Appends a row with points, each with the number of its target.
pub(crate) fn append(
    connection: &Connection,
    journal: &Journal,
    points: &[(i64, StoredPoint)],
) -> rusqlite::Result<()> {
    let packed = if points.is_empty() { Vec::new() } else { pack(&OwnedColumns::new(points))? };
    connection
        .prepare_cached("INSERT INTO journal (body, points) VALUES (?1, ?2)")?
        .execute(params![pack(&JournalColumns::from(journal))?, packed])
        .map(drop)
}

/// Appends a row that only records the time: polls may have happened after it, unless the host `ended` with it.
pub(crate) fn mark(connection: &Connection, now: Timestamp, ended: bool) -> rusqlite::Result<()> {
    append(connection, &Journal { at: now.as_millis(), ended, ..Journal::default() }, &[])
}

/// Returns all rows in order; `None` for a row that cannot be read, which loses at most 30 seconds of progress.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Option<JournalRow>>> {
    let mut statement = connection.prepare("SELECT points, body FROM journal ORDER BY sequence")?;
    let rows = statement.query_map([], |row| {
        let body = row.get::<_, Vec<u8>>(1)?;
        let journal = unpack(&body, |columns: JournalColumns| Journal::from(columns));
        let points = points_of(row)?;
        Ok(journal.map(|journal| (journal, points)))
    })?;
    rows.collect()
}

/// Calls `found` with the latency points that are not yet in blocks, each with the number of its target.
pub(crate) fn each_point(connection: &Connection, mut found: impl FnMut(i64, StoredPoint)) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT points, body FROM journal ORDER BY sequence")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        points_of(row)?.into_iter().for_each(|(num, point)| found(num, point));
    }
    Ok(())
}

/// Decodes the points of a row: columns `points` and `body`. Points that cannot be read are left out.
fn points_of(row: &Row<'_>) -> rusqlite::Result<Vec<(i64, StoredPoint)>> {
    let points = match row.get_ref(0)?.as_blob_or_null()? {
        Some(packed) => {
            let columns = unpacked(packed).and_then(|plain| postcard::from_bytes::<OwnedColumns>(&plain).ok());
            columns.map(|columns| columns.points().collect())
        }
        None => {
            let body = unpacked(row.get_ref(1)?.as_blob()?);
            let columns = body.and_then(|plain| postcard::from_bytes::<JournalColumns>(&plain).ok());
            columns.map(|mut columns| columns.take_points())
        }
    };
    Ok(points.unwrap_or_default())
}

/// Removes every row.
pub(crate) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM journal", []).map(drop)
}
