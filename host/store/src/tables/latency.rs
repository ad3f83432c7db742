//! Table `latency_block`: latency points, one row per target and hour.

use crate::columns::PointColumns;
use crate::wire::{PointWire, pack, unpack};
use model::{TargetId, Timestamp};
use rusqlite::{Connection, params};

pub(crate) const V1: &str = "
CREATE TABLE latency_block (
    hour INTEGER NOT NULL,
    target INTEGER NOT NULL,
    points BLOB NOT NULL,
    PRIMARY KEY (hour, target)
) STRICT, WITHOUT ROWID;
";

/// Milliseconds of an hour, the width of a block.
const HOUR: i64 = 3_600_000;

/// Appends points, each with its dependency's slot, to the block of a target and hour.
pub(crate) fn append(
    connection: &Connection,
    target: i64,
    hour: i64,
    mut points: Vec<(u32, PointWire)>,
) -> rusqlite::Result<()> {
    let held: Option<Vec<u8>> = connection
        .prepare_cached("SELECT points FROM latency_block WHERE hour = ?1 AND target = ?2")?
        .query_map([hour, target], |row| row.get(0))?
        .next()
        .transpose()?;
    let mut all: Vec<(u32, PointWire)> = held.and_then(|bytes| block(&bytes)).unwrap_or_default();
    all.append(&mut points);
    connection
        .prepare_cached("INSERT OR REPLACE INTO latency_block (hour, target, points) VALUES (?1, ?2, ?3)")?
        .execute(params![hour, target, pack(&PointColumns::from_iter(all))?])
        .map(drop)
}

/// Returns the points of a target since a time, each with its dependency's slot, oldest first.
pub(crate) fn since(
    connection: &Connection,
    target: &TargetId,
    since: Timestamp,
) -> rusqlite::Result<Vec<(u32, PointWire)>> {
    let sql = "SELECT points FROM latency_block
               WHERE target = (SELECT num FROM target WHERE id = ?1) AND hour >= ?2 ORDER BY hour";
    let mut statement = connection.prepare_cached(sql)?;
    let first = since.as_millis().div_euclid(HOUR);
    let blocks = statement.query_map(params![target.as_str(), first], |row| row.get::<_, Vec<u8>>(0))?;
    let mut points = Vec::new();
    for bytes in blocks {
        points.extend(block(&bytes?).unwrap_or_default());
    }
    Ok(points)
}

/// Decodes a block; `None` if it is damaged.
fn block(bytes: &[u8]) -> Option<Vec<(u32, PointWire)>> {
    unpack(bytes, |block: PointColumns| block.points().collect())
}

/// Removes blocks older than `oldest`, and the oldest beyond `most`.
pub(crate) fn prune(connection: &Connection, oldest: Option<Timestamp>, most: i64) -> rusqlite::Result<()> {
    if let Some(oldest) = oldest {
        connection.execute("DELETE FROM latency_block WHERE hour < ?1", [oldest.as_millis() / HOUR])?;
    }
    let blocks: i64 = connection.query_row("SELECT count(*) FROM latency_block", [], |row| row.get(0))?;
    if blocks > most {
        let sql = "DELETE FROM latency_block WHERE (hour, target) IN
                   (SELECT hour, target FROM latency_block ORDER BY hour LIMIT ?1)";
        connection.execute(sql, [blocks - most])?;
    }
    Ok(())
}
