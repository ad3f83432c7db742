//! Tables `plugin_value` and `channel_value`: what plugins store for targets and channels.

use crate::wire::encode;
use model::PluginValues;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub(crate) const V16: &str = "
CREATE TABLE plugin_value (
    target INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    content BLOB NOT NULL
) STRICT;
CREATE TABLE channel_value (
    channel TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    content BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Stores the values of a target, in place of earlier ones.
pub(crate) fn write(connection: &Connection, target: i64, kind: &str, values: &PluginValues) -> rusqlite::Result<()> {
    if values.is_empty() {
        return connection.prepare_cached("DELETE FROM plugin_value WHERE target = ?1")?.execute([target]).map(drop);
    }
    let sql = "INSERT OR REPLACE INTO plugin_value (target, kind, content) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute(params![target, kind, encode(&**values)?]).map(drop)
}

/// Returns the values of all targets, with the kind that stored them, by target number.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<HashMap<i64, (String, PluginValues)>> {
    let mut statement = connection.prepare("SELECT target, kind, content FROM plugin_value")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, decoded(&row.get::<_, Vec<u8>>(2)?))));
    statement.query_map([], row)?.collect()
}

/// Stores the values of a channel, in place of earlier ones.
pub(crate) fn write_channel(
    connection: &Connection,
    channel: &str,
    kind: &str,
    values: &PluginValues,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO channel_value (channel, kind, content) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute(params![channel, kind, encode(&**values)?]).map(drop)
}

/// Deletes the values of a channel.
pub(crate) fn delete_channel(connection: &Connection, channel: &str) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM channel_value WHERE channel = ?1")?.execute([channel]).map(drop)
}

/// Returns the values of all channels, with the kind that stored them.
pub(crate) fn channels(connection: &Connection) -> rusqlite::Result<BTreeMap<String, (String, PluginValues)>> {
    let mut statement = connection.prepare("SELECT channel, kind, content FROM channel_value")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, decoded(&row.get::<_, Vec<u8>>(2)?))));
    statement.query_map([], row)?.collect()
}

/// Damaged values are as good as none: plugins must work without them.
fn decoded(bytes: &[u8]) -> PluginValues {
    Arc::new(postcard::from_bytes(bytes).unwrap_or_default())
}
