//! Table `target`: targets with their warnings, failure, staleness, and the snapshot of their schedule and volatile
//! fields.

use crate::changes::TargetRecord;
use crate::tables::{latency, tier};
use crate::wire::{Snapshot, encode};
use model::{FailureCategory, Kind, PollFailure, TargetId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

pub(crate) const V1: &str = "
CREATE TABLE target (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    warnings TEXT NOT NULL DEFAULT '[]',
    failure_category TEXT,
    failure_code TEXT,
    failure_message TEXT,
    failure_at INTEGER,
    stale_since INTEGER,
    snapshot BLOB
) STRICT;
";

/// The first slot that no dependency ever had, as far as dependencies were deleted: their history keeps their slots.
pub(crate) const V6: &str = "ALTER TABLE target ADD COLUMN next_slot INTEGER NOT NULL DEFAULT 0;\n";

/// Tables whose column `target` holds a target's number, and whose rows are deleted with the target.
const DEPENDENT: [&str; 5] = ["dependency", "transition", "error_history", "poll_error_history", "plugin_value"];

/// A row of the table.
pub(crate) struct TargetRow {
    pub num: i64,
    pub id: TargetId,
    pub kind: Kind,
    pub record: TargetRecord,
    /// `None` if it is missing or cannot be read.
    pub snapshot: Option<Snapshot>,
    /// The slots of deleted dependencies are below it; 0 if none was deleted.
    pub next_slot: u32,
}

/// Returns the number of a target. Inserts the target with the number `new` if it is missing, and updates its kind.
pub(crate) fn number(connection: &Connection, new: i64, target: &TargetId, kind: &Kind) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO target (num, id, kind) VALUES (?1, ?2, ?3)
             ON CONFLICT (id) DO UPDATE SET kind = excluded.kind",
        )?
        .execute(params![new, target.as_str(), kind.as_str()])?;
    connection.prepare_cached("SELECT num FROM target WHERE id = ?1")?.query_row([target.as_str()], |row| row.get(0))
}

/// Returns the largest number of a target; 0 without targets.
pub(crate) fn last_number(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(num), 0) FROM target", [], |row| row.get(0))
}

/// Returns the number of a target; `None` if it is not stored.
pub(crate) fn find(connection: &Connection, target: &TargetId) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached("SELECT num FROM target WHERE id = ?1")?;
    statement.query_row([target.as_str()], |row| row.get(0)).optional()
}

/// Writes warnings, failure and staleness.
pub(crate) fn write(connection: &Connection, num: i64, record: &TargetRecord) -> rusqlite::Result<()> {
    let warnings = serde_json::Value::from(record.warnings.clone()).to_string();
    let failure = record.failure.as_ref();
    connection
        .prepare_cached(
            "UPDATE target SET warnings = ?2, failure_category = ?3, failure_code = ?4, failure_message = ?5,
             failure_at = ?6, stale_since = ?7 WHERE num = ?1",
        )?
        .execute(params![
            num,
            warnings,
            failure.map(|f| f.category.as_str()),
            failure.map(|f| &f.code),
            failure.map(|f| &f.message),
            failure.map(|f| f.at.as_millis()),
            record.stale_since.map(Timestamp::as_millis),
        ])
        .map(drop)
}

/// Returns the number and the snapshot of each target; `None` if that is missing or cannot be read.
pub(crate) fn snapshots(connection: &Connection) -> rusqlite::Result<Vec<(i64, Option<Snapshot>)>> {
    let mut statement = connection.prepare_cached("SELECT num, snapshot FROM target ORDER BY num")?;
    let row = |row: &Row<'_>| {
        let held = row.get::<_, Option<Vec<u8>>>(1)?;
        Ok((row.get(0)?, held.and_then(|bytes| postcard::from_bytes(&bytes).ok())))
    };
    statement.query_map([], row)?.collect()
}

/// Writes the snapshot of a target.
pub(crate) fn write_snapshot(connection: &Connection, num: i64, snapshot: &Snapshot) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE target SET snapshot = ?2 WHERE num = ?1")?
        .execute(params![num, encode(snapshot)?])
        .map(drop)
}

/// Returns all targets. A row whose id or kind is not valid is skipped.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<TargetRow>> {
    let mut statement = connection.prepare(
        "SELECT num, id, kind, warnings, failure_category, failure_code, failure_message, failure_at, stale_since, snapshot,
         next_slot FROM target",
    )?;
    let rows = statement.query_map([], read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().flatten().collect())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Option<TargetRow>> {
    let (id, kind) = (row.get::<_, String>(1)?, row.get::<_, String>(2)?);
    let (Ok(id), Ok(kind)) = (TargetId::new(&id), Kind::new(&kind)) else { return Ok(None) };
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis));
    let failure = match row.get::<_, Option<String>>(4)?.and_then(|word| FailureCategory::from_word(&word)) {
        Some(category) => Some(PollFailure {
            category,
            code: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
            message: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            at: time(7)?.unwrap_or_default(),
        }),
        None => None,
    };
    let warnings = serde_json::from_str(&row.get::<_, String>(3)?).unwrap_or_default();
    let record = TargetRecord { warnings, failure, stale_since: time(8)? };
    let snapshot = row.get::<_, Option<Vec<u8>>>(9)?.and_then(|bytes| postcard::from_bytes(&bytes).ok());
    Ok(Some(TargetRow { num: row.get(0)?, id, kind, record, snapshot, next_slot: row.get(10)? }))
}

/// Reserves the slots up to that of a dependency, which is about to be deleted.
pub(crate) fn keep_slot(connection: &Connection, num: i64, dependency: &str) -> rusqlite::Result<()> {
    let sql = "UPDATE target SET next_slot = max(next_slot, 1 + dependency.slot) FROM dependency
               WHERE num = ?1 AND dependency.target = num AND dependency.name = ?2";
    connection.prepare_cached(sql)?.execute(params![num, dependency]).map(drop)
}

/// Deletes a target with all its rows, except its events.
pub(crate) fn delete(connection: &Connection, target: &TargetId) -> rusqlite::Result<()> {
    if let Some(num) = find(connection, target)? {
        latency::delete(connection, num)?;
        tier::delete(connection, num)?;
    }
    for table in DEPENDENT {
        let sql = format!("DELETE FROM {table} WHERE target = (SELECT num FROM target WHERE id = ?1)");
        connection.execute(&sql, [target.as_str()])?;
    }
    connection.execute("DELETE FROM target WHERE id = ?1", [target.as_str()]).map(drop)
}
