//! The tables, and how an older database becomes a current one.
//!
//! Migrations are numbered and forward only; a copy of the database is made before each. Times are milliseconds since the
//! epoch, statuses are the words of the surfaces.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations, SchemaVersion};
use std::path::{Path, PathBuf};

const V1: &str = "
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

CREATE TABLE dependency (
    target INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    name TEXT NOT NULL,
    canonical_name TEXT,
    title TEXT,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    skipped INTEGER NOT NULL,
    code INTEGER,
    description TEXT,
    impact TEXT,
    error TEXT,
    error_message TEXT,
    error_state TEXT,
    contact TEXT,
    check_details TEXT,
    parent TEXT,
    first_seen INTEGER NOT NULL,
    last_status_change INTEGER,
    missing_since INTEGER,
    PRIMARY KEY (target, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    target TEXT,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE transition (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target INTEGER NOT NULL,
    dependency TEXT NOT NULL,
    previous TEXT NOT NULL,
    current TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

CREATE TABLE error_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target INTEGER NOT NULL,
    dependency TEXT NOT NULL,
    error TEXT,
    message TEXT,
    at INTEGER NOT NULL
) STRICT;

CREATE TABLE poll_error_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    target INTEGER NOT NULL,
    category TEXT,
    code TEXT,
    message TEXT,
    at INTEGER NOT NULL
) STRICT;

-- An hour of latency points of all of a target's dependencies.
CREATE TABLE latency_block (
    hour INTEGER NOT NULL,
    target INTEGER NOT NULL,
    points BLOB NOT NULL,
    PRIMARY KEY (hour, target)
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    hash BLOB PRIMARY KEY,
    scope TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What merely continued, a row for each 30 seconds, until it is folded into target.snapshot and latency_block.
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
";

/// Settings that were changed while the host ran. Schedules of the version before lack the rates of changes and cannot be
/// read any more; targets are polled anew, and what is known of them stays.
const V2: &str = "
CREATE TABLE setting (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
UPDATE target SET snapshot = NULL;
DELETE FROM journal;
";

/// Tables whose rows are bounded by age and count, with the column that numbers them.
pub(crate) const HISTORY: [(&str, &str); 4] =
    [("event", "sequence"), ("transition", "id"), ("error_history", "id"), ("poll_error_history", "id")];

fn steps() -> Vec<M<'static>> {
    vec![M::up(V1), M::up(V2)]
}

/// Why a database cannot be brought up to date.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's text says what it is")]
pub enum MigrationError {
    #[error("the database was written by a newer version of polliwog: run that version, or restore the copy beside it")]
    Newer,
    #[error("no copy of the database could be made at {file}: {why}")]
    Copy { file: PathBuf, why: String },
    #[error("the migration to version {version} failed: {why}")]
    Step { version: usize, why: String },
}

/// Brings a database up to date; `path` is where it lies.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), MigrationError> {
    let steps = steps();
    let newest = steps.len();
    let migrations = Migrations::new(steps);
    let failed =
        |version: usize, error: &dyn std::fmt::Display| MigrationError::Step { version, why: error.to_string() };
    let current = match migrations.current_version(connection) {
        Ok(SchemaVersion::NoneSet) => 0,
        Ok(SchemaVersion::Inside(version)) => version.get(),
        Ok(SchemaVersion::Outside(_)) => return Err(MigrationError::Newer),
        Err(error) => return Err(failed(0, &error)),
    };
    for version in current + 1..=newest {
        if version > 1 {
            copy(connection, path, version - 1)?;
        }
        migrations.to_version(connection, version).map_err(|error| failed(version, &error))?;
    }
    Ok(())
}

fn copy(connection: &Connection, path: &Path, version: usize) -> Result<(), MigrationError> {
    let file = path.with_extension(format!("v{version}.bak"));
    let failed = |error: &dyn std::fmt::Display| MigrationError::Copy { file: file.clone(), why: error.to_string() };
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&error)),
        _ => {}
    }
    let text = file.to_str().ok_or_else(|| failed(&"its path is no UTF-8"))?;
    connection.execute("VACUUM INTO ?1", [text]).map(drop).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_database_is_refused_and_a_copy_holds_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polliwog.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &path).unwrap();
        connection.execute("INSERT INTO target (id, kind) VALUES ('a', 'http')", []).unwrap();
        copy(&connection, &path, 1).unwrap();
        copy(&connection, &path, 1).unwrap();
        let copied = Connection::open(path.with_extension("v1.bak")).unwrap();
        assert_eq!(copied.query_row("SELECT id FROM target", [], |row| row.get::<_, String>(0)).unwrap(), "a");
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(migrate(&mut connection, &path), Err(MigrationError::Newer)));
    }
}
