//! Table `latency_recent`: latency points that are not yet in a tier, one row per hour and target.

use crate::columns::{BlockColumns, block};
use crate::wire::{StoredPoint, pack};
use model::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeSet;
use std::ops::Range;

pub(crate) const V1: &str = "
CREATE TABLE latency_block (
    hour INTEGER NOT NULL,
    target INTEGER NOT NULL,
    points BLOB NOT NULL,
    PRIMARY KEY (hour, target)
) STRICT, WITHOUT ROWID;
";

/// The id of a row is the hour since the epoch and the target's number (see [`id`]), because a table with a primary key
/// of several columns would move rows of more than 1 KB to pages of their own.
pub(crate) const V6: &str = "
CREATE TABLE latency_recent (id INTEGER PRIMARY KEY, points BLOB NOT NULL) STRICT;
INSERT INTO latency_recent SELECT (hour << 32) | target, points FROM latency_block;
DROP TABLE latency_block;
";

/// Milliseconds of an hour, the width of a block.
const HOUR: i64 = 3_600_000;
/// The bits of a target's number in a row id.
const TARGET_BITS: u32 = 32;

/// Returns the id of the row of an hour and a target.
fn id(hour: i64, target: i64) -> i64 {
    (hour << TARGET_BITS) | target
}

/// Appends points to the block of a target and hour.
pub(crate) fn append(
    connection: &Connection,
    target: i64,
    hour: i64,
    points: Vec<StoredPoint>,
) -> rusqlite::Result<()> {
    let mut all = get(connection, hour, target)?;
    all.extend(points);
    connection
        .prepare_cached("INSERT OR REPLACE INTO latency_recent (id, points) VALUES (?1, ?2)")?
        .execute(params![id(hour, target), pack(&all.iter().collect::<BlockColumns>())?])
        .map(drop)
}

/// Returns the points of a block; a missing or damaged block has none.
fn get(connection: &Connection, hour: i64, target: i64) -> rusqlite::Result<Vec<StoredPoint>> {
    let held: Option<Vec<u8>> = connection
        .prepare_cached("SELECT points FROM latency_recent WHERE id = ?1")?
        .query_row([id(hour, target)], |row| row.get(0))
        .optional()?;
    Ok(held.and_then(|bytes| block(&bytes)).unwrap_or_default())
}

/// Removes the block of a target and hour, and returns its points.
pub(crate) fn take(connection: &Connection, hour: i64, target: i64) -> rusqlite::Result<Vec<StoredPoint>> {
    let points = get(connection, hour, target)?;
    connection.prepare_cached("DELETE FROM latency_recent WHERE id = ?1")?.execute([id(hour, target)])?;
    Ok(points)
}

/// Returns the first hour with a block.
pub(crate) fn oldest(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    let first: Option<i64> =
        connection.prepare_cached("SELECT min(id) FROM latency_recent")?.query_row([], |row| row.get(0))?;
    Ok(first.map(|id| id >> TARGET_BITS))
}

/// Returns the first targets with blocks in a range of hours, of at most `limit` blocks.
pub(crate) fn targets(connection: &Connection, hours: Range<i64>, limit: usize) -> rusqlite::Result<BTreeSet<i64>> {
    let sql = "SELECT id FROM latency_recent WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![id(hours.start, 0), id(hours.end, 0), limit as i64], |row| {
        Ok(row.get::<_, i64>(0)? & ((1 << TARGET_BITS) - 1))
    })?;
    rows.collect()
}

/// Returns the points of a target since a time, oldest first.
pub(crate) fn since(connection: &Connection, target: i64, since: Timestamp) -> rusqlite::Result<Vec<StoredPoint>> {
    let Some(last) = connection
        .prepare_cached("SELECT max(id) FROM latency_recent")?
        .query_row([], |row| row.get::<_, Option<i64>>(0))?
    else {
        return Ok(Vec::new());
    };
    let first = oldest(connection)?.unwrap_or_default().max(since.as_millis().div_euclid(HOUR));
    let mut points = Vec::new();
    for hour in first..=last >> TARGET_BITS {
        points.extend(get(connection, hour, target)?);
    }
    Ok(points)
}

/// Removes the oldest blocks beyond `most`.
pub(crate) fn prune(connection: &Connection, most: i64) -> rusqlite::Result<()> {
    let blocks: i64 = connection.query_row("SELECT count(*) FROM latency_recent", [], |row| row.get(0))?;
    if blocks > most {
        let sql = "DELETE FROM latency_recent WHERE id IN (SELECT id FROM latency_recent ORDER BY id LIMIT ?1)";
        connection.execute(sql, [blocks - most])?;
    }
    Ok(())
}

/// Deletes the blocks of the target with a number.
pub(crate) fn delete(connection: &Connection, target: i64) -> rusqlite::Result<()> {
    let sql = format!("DELETE FROM latency_recent WHERE id & {} = ?1", (1_i64 << TARGET_BITS) - 1);
    connection.execute(&sql, [target]).map(drop)
}
