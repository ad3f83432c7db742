//! Connections to SQLite, and messages for its errors.

use rusqlite::Connection;
use std::path::Path;

/// Opens the database at a path for writing.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(2))?;
    // For a new file. A flush changes a few short rows, and the log has whole pages: with pages of 4 KB, an idle day
    // writes a third more (`cargo bench -p store --bench day`).
    connection.pragma_update(None, "page_size", 2_048)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 8_000)?;
    // The next checkpoint truncates a WAL that grew during a slow read to this size.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    Ok(connection)
}

/// Returns the message of SQLite without the SQL statement.
pub(crate) fn plain(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => message.clone().unwrap_or_else(|| code.to_string()),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Returns a number that changes when another connection writes.
pub(crate) fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}
