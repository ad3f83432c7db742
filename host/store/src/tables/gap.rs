//! Table `gap`: the times in which no host ran, so that history does not take the last known status for the true one.

use model::Timestamp;
use rusqlite::{Connection, Row, params};

pub(crate) const V5: &str = "
CREATE TABLE gap (
    began INTEGER PRIMARY KEY,
    ended INTEGER NOT NULL
) STRICT;
";

/// Inserts a gap.
pub(crate) fn insert(connection: &Connection, began: Timestamp, ended: Timestamp) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO gap (began, ended) VALUES (?1, ?2)";
    connection.execute(sql, params![began.as_millis(), ended.as_millis()]).map(drop)
}

/// Returns the gaps that ended after a time, oldest first.
pub(crate) fn after(connection: &Connection, since: Timestamp) -> rusqlite::Result<Vec<(Timestamp, Timestamp)>> {
    let mut statement = connection.prepare_cached("SELECT began, ended FROM gap WHERE ended > ?1 ORDER BY began")?;
    let gap = |row: &Row<'_>| Ok((Timestamp::from_millis(row.get(0)?), Timestamp::from_millis(row.get(1)?)));
    statement.query_map([since.as_millis()], gap)?.collect()
}

/// Removes gaps that ended before a time.
pub(crate) fn prune(connection: &Connection, oldest: Timestamp) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM gap WHERE ended < ?1", [oldest.as_millis()]).map(drop)
}
