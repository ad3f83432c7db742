//! Table `journal`: volatile fields and schedules of all targets, until later rows have newer ones.
//!
//! Each flush writes one row with the targets that were polled. From time to time the rows are folded: their latency
//! points go to the latency blocks, and the newest state of every target goes to the row at place 0. The places after
//! it are then used again, from 1 on. A row is overwritten rather than deleted, and has the size of whole pages, so
//! that a flush changes the pages of one row and nothing else of the file. Rows that are older than the row at place 0
//! are leftovers.

use crate::columns::{MeasurementColumns, ScheduleColumns};
use crate::legacy;
use crate::single::Singles;
use crate::wire::{COMPRESSED, Measurements, Row, StoredPoint, deflated, encode, inflated};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

pub(crate) const V1: &str = "
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
";

/// The latency points of a row, in versions 6 to 12. In earlier versions they are in the body.
pub(crate) const V6: &str = "ALTER TABLE journal ADD COLUMN points BLOB;\n";

/// The bytes of `body` in a row that fills one page of 2 KB, with those of the row's header, and in each page more.
/// Source: "B-tree Cell Format" in the file format of SQLite, with a usable size of 2,048 bytes.
const FIRST_PAGE: usize = 2_007;
const FURTHER_PAGE: usize = 2_044;

/// The beginning of a row, which is not compressed.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    first: u64,
    at: i64,
    ended: bool,
    /// The number of bytes of each of the two parts that follow; the rest of the row fills its pages.
    schedules: usize,
    measured: usize,
}

/// Writes the row at a place.
pub(crate) fn write(connection: &Connection, place: u32, row: &Row) -> rusqlite::Result<()> {
    let schedules = deflated(&ScheduleColumns::new(row.schedules.iter().cloned(), row.at))?;
    let measured = deflated(&MeasurementColumns::from(&row.measured))?;
    let Row { first, at, ended, .. } = *row;
    let head = encode(&Head { first, at, ended, schedules: schedules.len(), measured: measured.len() })?;
    let mut bytes = [&COMPRESSED, head.as_slice(), &schedules, &measured].concat();
    let held: Option<u32> = connection
        .prepare_cached("SELECT length(body) FROM journal WHERE sequence = ?1")?
        .query_row([place], |row| row.get(0))
        .optional()?;
    let pages = bytes.len().saturating_sub(FIRST_PAGE).div_ceil(FURTHER_PAGE);
    // A row that shrinks would give pages back, and the next one would take them again.
    bytes.resize((FIRST_PAGE + pages * FURTHER_PAGE).max(held.unwrap_or_default() as usize), 0);
    let sql = "INSERT INTO journal (sequence, body) VALUES (?1, ?2)
               ON CONFLICT (sequence) DO UPDATE SET body = excluded.body";
    connection.prepare_cached(sql)?.execute(params![place, bytes]).map(drop)
}

/// Removes the rows of earlier versions, which are in the row at place 0 now.
pub(crate) fn clear_earlier(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM journal WHERE substr(body, 1, 2) <> ?1";
    connection.prepare_cached(sql)?.execute([COMPRESSED]).map(drop)
}

/// Calls `found` with each row in order and its place; with `None` for a row that cannot be read, which loses at most
/// 30 seconds of progress.
pub(crate) fn each(connection: &Connection, mut found: impl FnMut(u32, Option<Row>)) -> rusqlite::Result<()> {
    each_encoded(connection, |place, bytes, points| {
        let row = match bytes {
            Encoded::Current(head, parts) => Some(decoded(&head, parts)),
            Encoded::Earlier(bytes) => legacy::row(bytes, points),
            Encoded::Damaged => None,
        };
        found(place, row);
    })
}

/// Calls `found` with the latency points of the targets that are `wanted` that are not yet in blocks, each with the
/// number of its target.
pub(crate) fn each_point(
    connection: &Connection,
    wanted: impl Fn(i64) -> bool,
    mut found: impl FnMut(i64, StoredPoint),
) -> rusqlite::Result<()> {
    let mut singles = Singles::default();
    each_encoded(connection, |_, bytes, points| {
        let measured = match bytes {
            Encoded::Current(head, parts) => measured(&head, parts),
            Encoded::Earlier(bytes) => legacy::row(bytes, points).map(|row| row.measured),
            Encoded::Damaged => None,
        };
        if let Some(measured) = measured {
            singles.read(measured, &wanted, &mut found);
        }
    })
}

/// The body of a row.
enum Encoded<'a> {
    /// The head, and the bytes after it.
    Current(Head, &'a [u8]),
    Earlier(&'a [u8]),
    Damaged,
}

/// Calls `found` with each row that is not a leftover, in order: its place, its body and its column `points`.
fn each_encoded(
    connection: &Connection,
    mut found: impl FnMut(u32, Encoded<'_>, Option<&[u8]>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT sequence, body, points FROM journal ORDER BY sequence")?;
    let mut rows = statement.query([])?;
    let mut newest = 0;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(1)?.as_blob()?;
        let encoded = match bytes.strip_prefix(&COMPRESSED) {
            None => Encoded::Earlier(bytes),
            Some(rest) => match postcard::take_from_bytes::<Head>(rest) {
                Ok((head, _)) if head.first <= newest => continue,
                Ok((head, parts)) => {
                    newest = head.first;
                    Encoded::Current(head, parts)
                }
                Err(_) => Encoded::Damaged,
            },
        };
        found(row.get(0)?, encoded, row.get_ref(2)?.as_blob_or_null()?);
    }
    Ok(())
}

/// Decodes a row. One whose parts are damaged is empty, but counts: later rows have later versions.
fn decoded(head: &Head, parts: &[u8]) -> Row {
    let Head { first, at, ended, .. } = *head;
    let schedules = parts.get(..head.schedules).and_then(inflated::<ScheduleColumns>);
    let Some((schedules, measured)) = schedules.zip(measured(head, parts)) else {
        return Row { at, ended, first, ..Row::default() };
    };
    Row { at, ended, first, schedules: schedules.entries(at).collect(), measured }
}

fn measured(head: &Head, parts: &[u8]) -> Option<Measurements> {
    let bytes = parts.get(head.schedules..)?.get(..head.measured)?;
    inflated::<MeasurementColumns>(bytes).map(Measurements::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{LiveWire, WindowWire};

    fn row(first: u64, lives: u32) -> Row {
        let live = |slot: u32| LiveWire { slot, age: 0, latency_us: Some(slot * 7919), window: WindowWire::Empty };
        let measured = Measurements { lives: vec![(1, (0..lives).map(live).collect())], points: Vec::new() };
        Row { first, measured, ..Row::default() }
    }

    #[test]
    fn a_row_that_shrinks_keeps_its_pages_and_leftovers_are_not_read() {
        let connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "page_size", 2_048).unwrap();
        connection.execute_batch(&format!("{V1}{V6}")).unwrap();
        let pages = || -> (i64, i64) {
            let count = |name| connection.pragma_query_value(None, name, |row| row.get(0)).unwrap();
            (count("page_count"), count("freelist_count"))
        };
        let read = || {
            let mut firsts = Vec::new();
            each(&connection, |place, row| firsts.push((place, row.unwrap().first))).unwrap();
            firsts
        };
        write(&connection, 1, &row(1, 5_000)).unwrap();
        write(&connection, 2, &row(2, 10)).unwrap();
        let before = pages();
        assert!(before.0 > 4, "{before:?}");
        assert_eq!(read(), [(1, 1), (2, 2)]);
        write(&connection, 1, &row(3, 10)).unwrap();
        assert_eq!(pages(), before);
        assert_eq!(read(), [(1, 3)], "the row at place 2 is older");
        // A row that does not fill its pages leaves them as they are.
        write(&connection, 2, &row(4, 1)).unwrap();
        assert_eq!((read(), pages()), (vec![(1, 3), (2, 4)], before));
        // A damaged row is empty, and rows that follow it are read.
        connection.execute("UPDATE journal SET body = substr(body, 1, 12) WHERE sequence = 2", []).unwrap();
        write(&connection, 3, &row(5, 1)).unwrap();
        let mut lives = Vec::new();
        each(&connection, |place, row| lives.push((place, row.unwrap().measured.lives.len()))).unwrap();
        assert_eq!(lives, [(1, 1), (2, 0), (3, 1)]);
    }
}
