//! Table `event`: announced events in their sequence, which never restarts.

use super::history::History;
use crate::stored_event::EventWire;
use model::{Event, SequencedEvent, TargetId, Timestamp};
use rusqlite::{CachedStatement, Connection, ToSql, params};

pub(crate) const V1: &str = "
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    target TEXT,
    body TEXT NOT NULL
) STRICT;
";

pub(crate) const V3: &str = "CREATE INDEX event_of_target ON event (target, sequence);";

pub(crate) const HISTORY: History =
    History { table: "event", id: "sequence", by_number: false, bytes: "octet_length(body)" };

/// Inserts an event. Returns the event with its position and the bytes of its row; `None` for an event that is never
/// stored.
pub(crate) fn insert(connection: &Connection, event: &Event) -> rusqlite::Result<Option<(SequencedEvent, usize)>> {
    let Some(wire) = EventWire::of(&event.kind) else { return Ok(None) };
    let body = serde_json::to_string(&wire).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let target = event.kind.target().map(TargetId::as_str);
    connection
        .prepare_cached("INSERT INTO event (at, name, target, body) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![event.at.as_millis(), event.kind.name(), target, body])?;
    let sequence = Some(connection.last_insert_rowid());
    Ok(Some((SequencedEvent { sequence, event: event.clone() }, body.len())))
}

/// Returns at most `limit` events after a position in the sequence, in order.
pub(crate) fn after(connection: &Connection, sequence: i64, limit: u32) -> rusqlite::Result<Vec<SequencedEvent>> {
    let sql = "SELECT sequence, at, body FROM event WHERE sequence > ?1 ORDER BY sequence LIMIT ?2";
    read(connection.prepare_cached(sql)?, params![sequence, limit])
}

/// Returns at most `limit` events before a position in the sequence, newest first: of a target and of a name, or of
/// all.
pub(crate) fn before(
    connection: &Connection,
    sequence: i64,
    (target, name): (Option<&str>, Option<&str>),
    limit: u32,
) -> rusqlite::Result<Vec<SequencedEvent>> {
    let of_target = if target.is_some() { "target = ?2" } else { "?2 IS NULL" };
    let of_name = if name.is_some() { "name = ?3" } else { "?3 IS NULL" };
    let sql = format!(
        "SELECT sequence, at, body FROM event WHERE sequence < ?1 AND {of_target} AND {of_name}
         ORDER BY sequence DESC LIMIT ?4"
    );
    read(connection.prepare_cached(&sql)?, params![sequence, target, name, limit])
}

/// Reads events. A row of another version that cannot be read is skipped; its number is not assigned again.
fn read(mut statement: CachedStatement<'_>, parameters: &[&dyn ToSql]) -> rusqlite::Result<Vec<SequencedEvent>> {
    let rows = statement.query_map(parameters, |row| {
        let at = Timestamp::from_millis(row.get(1)?);
        let wire = serde_json::from_str::<EventWire>(&row.get::<_, String>(2)?).ok();
        Ok((row.get(0)?, wire.and_then(|wire| wire.restore(at))))
    })?;
    let read = rows.collect::<rusqlite::Result<Vec<(i64, Option<Event>)>>>()?;
    let found =
        |(sequence, event): (i64, Option<Event>)| Some(SequencedEvent { sequence: Some(sequence), event: event? });
    Ok(read.into_iter().filter_map(found).collect())
}

/// Returns the position of the first stored event and the last position ever assigned.
pub(crate) fn bounds(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let first = connection.query_row("SELECT coalesce(min(sequence), 0) FROM event", [], |row| row.get(0))?;
    let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)";
    Ok((first, connection.query_row(sql, [], |row| row.get(0))?))
}
