//! Table `journal`: volatile fields and schedules of all targets, until later rows have newer ones.
//!
//! Each flush writes one row with the targets that were polled. From time to time the rows are folded: their latency
//! points go to the latency blocks, and the newest states of all targets go to rows from place 0 on. The places after
//! them are then used again. A row is overwritten rather than deleted, and has the size of whole pages, so that a flush
//! changes the pages of one row and nothing else of the file. Rows that are older than the one before are leftovers.

use crate::columns::{LatencyColumns, StateColumns};
use crate::legacy;
use crate::single::Singles;
use crate::wire::{COMPRESSED, Latencies, Row, StoredPoint, deflated, encode, inflated};
use flate2::Crc;
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
/// A row keeps at most this number of times the bytes that it needs.
const MOST_HELD: usize = 8;

/// The beginning of a row, which is not compressed.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    first: u64,
    at: i64,
    ended: bool,
    /// The number of bytes of each of the two parts that follow; the rest of the row fills its pages.
    states: usize,
    latencies: usize,
}

/// Writes the row at a place.
pub(crate) fn write(connection: &Connection, place: u32, row: &Row) -> rusqlite::Result<()> {
    let states = deflated(&StateColumns::from(row))?;
    let latencies = deflated(&LatencyColumns::from(&row.latencies))?;
    let Row { first, at, ended, .. } = *row;
    let head = encode(&Head { first, at, ended, states: states.len(), latencies: latencies.len() })?;
    let content = [head, states, latencies].concat();
    let mut bytes = [&COMPRESSED[..], &checksum(&content), &content].concat();
    let held: Option<u32> = connection
        .prepare_cached("SELECT length(body) FROM journal WHERE sequence = ?1")?
        .query_row([place], |row| row.get(0))
        .optional()?;
    let pages = bytes.len().saturating_sub(FIRST_PAGE).div_ceil(FURTHER_PAGE);
    let needed = FIRST_PAGE + pages * FURTHER_PAGE;
    // A row that shrinks would give pages back, and the next one would take them again. One that had the latencies of a
    // long outage shrinks.
    let held = held.map_or(0, |held| held as usize).min(needed.saturating_mul(MOST_HELD));
    bytes.resize(needed.max(held), 0);
    let sql = "INSERT INTO journal (sequence, body) VALUES (?1, ?2)
               ON CONFLICT (sequence) DO UPDATE SET body = excluded.body";
    connection.prepare_cached(sql)?.execute(params![place, bytes]).map(drop)
}

/// Returns the checksum of a row's head and parts. SQLite has none, and damaged parts may yield other values.
fn checksum(content: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(content);
    crc.sum().to_le_bytes()
}

/// Removes the rows of earlier versions, whose states are in rows of this version now.
pub(crate) fn clear_earlier(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM journal WHERE substr(body, 1, 2) <> ?1";
    connection.prepare_cached(sql)?.execute([COMPRESSED]).map(drop)
}

/// Calls `found` with each row in order and its place, and with `None` for a row that cannot be read. A damaged row of
/// one flush loses at most 30 seconds of progress; one with the newest states of targets loses these.
pub(crate) fn each(connection: &Connection, mut found: impl FnMut(u32, Option<Row>)) -> rusqlite::Result<()> {
    each_encoded(connection, |place, encoded, points| {
        let row = match encoded {
            Encoded::Current(head, parts) => decoded(&head, parts),
            Encoded::Earlier(bytes) => legacy::row(bytes, points),
            Encoded::Damaged => None,
        };
        found(place, row);
    })
}

/// Returns whether the journal has a row of this version. Until then, its states are also in the targets' own rows.
pub(crate) fn is_current(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM journal WHERE substr(body, 1, 2) = ?1)";
    connection.query_row(sql, [COMPRESSED], |row| row.get(0))
}

/// Calls `found` with the latency points of the targets that are `wanted` that are not yet in blocks, each with the
/// number of its target.
pub(crate) fn each_point(
    connection: &Connection,
    wanted: impl Fn(i64) -> bool,
    mut found: impl FnMut(i64, StoredPoint),
) -> rusqlite::Result<()> {
    let mut singles = Singles::default();
    each_encoded(connection, |_, encoded, points| {
        let latencies = match encoded {
            Encoded::Current(head, parts) => columns(&head, parts).map(|columns| columns.latencies(&wanted)),
            Encoded::Earlier(bytes) => legacy::row(bytes, points).map(|row| {
                let points = row.latencies.points.into_iter().filter(|(num, _)| wanted(*num)).collect();
                Latencies { points, singles: Vec::new() }
            }),
            Encoded::Damaged => None,
        };
        if let Some(latencies) = latencies {
            singles.read(latencies, &mut found);
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
            Some(rest) => match checked(rest) {
                // All rows after a leftover are leftovers.
                Some((head, _)) if head.first <= newest => break,
                Some((head, parts)) => {
                    newest = head.first;
                    Encoded::Current(head, parts)
                }
                None => Encoded::Damaged,
            },
        };
        found(row.get(0)?, encoded, row.get_ref(2)?.as_blob_or_null()?);
    }
    Ok(())
}

/// Returns the head and the bytes after it; `None` if the checksum is not theirs.
fn checked(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (sum, content) = bytes.split_first_chunk::<4>()?;
    let (head, parts) = postcard::take_from_bytes::<Head>(content).ok()?;
    let length = (content.len() - parts.len()).checked_add(head.states)?.checked_add(head.latencies)?;
    (checksum(content.get(..length)?) == *sum).then_some((head, parts))
}

fn decoded(head: &Head, parts: &[u8]) -> Option<Row> {
    let latencies = columns(head, parts)?.latencies(|_| true);
    let Head { first, at, ended, states, .. } = *head;
    let targets = inflated::<StateColumns>(parts.get(..states)?)?.states((at, first), &latencies.singles);
    Some(Row { at, ended, first, targets, latencies })
}

fn columns(head: &Head, parts: &[u8]) -> Option<LatencyColumns> {
    inflated(parts.get(head.states..)?.get(..head.latencies)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{LiveWire, Moving, Rest, TargetState, WindowWire};

    fn row(first: u64, lives: u32) -> Row {
        let live = |slot: u32| LiveWire { slot, age: 0, latency_us: Some(slot * 7919), window: WindowWire::Empty };
        let moving = Moving { due: 0, interval_ms: None, last_success: None, last_polled: None, rates: [0.0; 4] };
        let lives = (0..lives).map(live).collect();
        let mut row = Row { first, ..Row::default() };
        row.push(TargetState { num: 1, moving, last_report: None, rest: Rest::Of(0), lives }, |_| false);
        row
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
        // One with the latencies of a long outage gives its pages back.
        write(&connection, 9, &row(5, 100_000)).unwrap();
        write(&connection, 9, &row(6, 10)).unwrap();
        assert!(pages().1 > 20, "{:?}", pages());
        connection.execute("DELETE FROM journal WHERE sequence = 9", []).unwrap();
        // Rows that follow a damaged one are read, whatever byte is damaged.
        write(&connection, 3, &row(5, 1)).unwrap();
        let body: Vec<u8> =
            connection.query_row("SELECT body FROM journal WHERE sequence = 2", [], |row| row.get(0)).unwrap();
        let length = body.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for at in 2..length {
            let mut damaged = body.clone();
            damaged[at] ^= 0x10;
            connection.execute("UPDATE journal SET body = ?1 WHERE sequence = 2", [damaged]).unwrap();
            let mut read = Vec::new();
            each(&connection, |place, row| read.push((place, row.map(|row| row.first)))).unwrap();
            assert_eq!(read, [(1, Some(3)), (2, None), (3, Some(5))], "byte {at}");
        }
    }
}
