//! The versions of the schema, and the migration of an older database to the current one.
//!
//! Migrations are numbered and forward only; a copy of the database is made before each.

use crate::tables::{
    alert, delivery, dependency, error, event, fleet, fleet_kept, gap, journal, latency, plugin_value, poll_error,
    session, setting, target, tier, token, transition,
};
use rusqlite::Connection;
use rusqlite_migration::{M, Migrations, SchemaVersion};
use std::path::{Path, PathBuf};

/// The tables of version 1.
const V1: [&str; 9] = [
    target::V1,
    dependency::V1,
    event::V1,
    transition::V1,
    error::V1,
    poll_error::V1,
    latency::V1,
    token::V1,
    journal::V1,
];

/// Adds settings that are changed at run time. Schedules of version 1 lack the rates of changes and cannot be read:
/// targets are polled like new ones, and their known state is kept.
const V2: [&str; 2] = [setting::V2, "UPDATE target SET snapshot = NULL; DELETE FROM journal;"];

/// Bounds history per target, keeps web sessions across restarts, and marks the file as a database of this program.
const V3: [&str; 6] =
    [event::V3, transition::V3, error::V3, poll_error::V3, session::V3, "PRAGMA application_id = 1349282924;"];

/// Rows of the journal and latency blocks are compressed from this version on. Earlier ones are read as they are.
const V4: [&str; 1] = ["-- No table changes.\n"];

/// Records the times in which no host ran.
const V5: [&str; 1] = [gap::V5];

/// Keeps latencies in tiers, with their distribution.
const V6: [&str; 4] = [latency::V6, tier::V6, journal::V6, target::V6];

/// Adds tokens with names and scopes.
const V7: [&str; 2] = [token::V7, session::V7];

/// Adds the records for the operator of a fleet.
const V8: [&str; 1] = [fleet::V8];
const V9: [&str; 1] = [fleet::V9];

/// Adds the records that an operator has read from its broker.
const V10: [&str; 1] = [fleet_kept::V10];

/// Adds alerts.
const V11: [&str; 1] = [alert::V11];

/// Adds deliveries of notifications.
const V12: [&str; 1] = [delivery::V12];

/// Rows of the journal and latency blocks have other columns from this version on. Earlier ones are read as they are.
const V13: [&str; 1] = ["-- No table changes.\n"];

/// Adds the properties of dependencies that the contract with plugins gained.
const V14: [&str; 1] = [dependency::V14];

/// Adds the progress of deliveries.
const V15: [&str; 1] = [delivery::V15];

/// Adds the values that plugins store.
const V16: [&str; 1] = [plugin_value::V16];

/// The statements of every version.
const VERSIONS: [&[&str]; 16] = [&V1, &V2, &V3, &V4, &V5, &V6, &V7, &V8, &V9, &V10, &V11, &V12, &V13, &V14, &V15, &V16];

/// The application id in the header of our databases, from version 3 on: "Pllw" in ASCII.
const APPLICATION: i32 = 1_349_282_924;

/// Returns the statements of each version.
fn statements() -> Vec<String> {
    VERSIONS.iter().map(|version| version.concat()).collect()
}

fn steps(statements: &[String]) -> Vec<M<'_>> {
    statements.iter().map(|statements| M::up(statements)).collect()
}

/// Why a database cannot be migrated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error text of each variant describes it")]
pub enum MigrationError {
    #[error(
        "the database was written by a newer version of polliwog: run that version, or restore the copy next to it"
    )]
    Newer,
    #[error(
        "it is the database of another program and was not changed: choose another path with --data-dir or \
         [store] path"
    )]
    Foreign,
    #[error(
        "it has tables but no schema version: it is damaged or belongs to another program; move it away, or restore a copy"
    )]
    Unversioned,
    #[error("its schema version {0} is invalid: it is damaged; move it away, or restore a copy")]
    Nonsense(i32),
    #[error("the database could not be copied to {file}: {why}")]
    Copy { file: PathBuf, why: String },
    #[error("the migration to version {version} failed: {why}")]
    Step { version: usize, why: String },
    #[error("it cannot be read: {0}")]
    Broken(rusqlite::Error),
}

/// Migrates the database at `path` to the current version.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), MigrationError> {
    let statements = statements();
    let newest = statements.len();
    let migrations = Migrations::new(steps(&statements));
    let failed =
        |version: usize, error: &rusqlite_migration::Error| MigrationError::Step { version, why: reason(error) };
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0));
    if let Some(version) = version.ok().filter(|version| *version < 0) {
        return Err(MigrationError::Nonsense(version));
    }
    let current = match migrations.current_version(connection) {
        Ok(SchemaVersion::NoneSet) => 0,
        Ok(SchemaVersion::Inside(version)) => version.get(),
        Ok(SchemaVersion::Outside(_)) => return Err(MigrationError::Newer),
        Err(rusqlite_migration::Error::RusqliteError { err, .. }) => return Err(MigrationError::Broken(err)),
        Err(error) => return Err(failed(0, &error)),
    };
    check_owner(connection, current).map_err(MigrationError::Broken)??;
    for version in current + 1..=newest {
        // A new database needs no copy.
        if current > 0 {
            copy(connection, path, version - 1)?;
        }
        migrations.to_version(connection, version).map_err(|error| failed(version, &error))?;
    }
    Ok(())
}

/// Returns a table of the newest version that this database lacks; `None` if it has all of them.
pub(crate) fn missing_table(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    let names = |verb: &'static str| {
        let after = VERSIONS.into_iter().flatten().flat_map(move |step| step.split(verb).skip(1));
        after.filter_map(|rest| rest.split([' ', ';']).next())
    };
    for table in names("CREATE TABLE ").filter(|table| names("DROP TABLE ").all(|dropped| dropped != *table)) {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if connection.query_row(sql, [table], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// Checks that the database belongs to this program: by its header, or by its tables for versions before 3.
fn check_owner(connection: &Connection, version: usize) -> rusqlite::Result<Result<(), MigrationError>> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('target', 'dependency', 'journal', 'token')";
    let ours: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(match (application, version) {
        (0, 0) if tables == 0 => Ok(()),
        (0 | APPLICATION, 0) if ours == 4 => Err(MigrationError::Unversioned),
        (0, 1..=2) | (APPLICATION, 3..) if ours == 4 => Ok(()),
        _ => Err(MigrationError::Foreign),
    })
}

/// Returns the reason of a failed migration without the SQL statement.
fn reason(error: &rusqlite_migration::Error) -> String {
    match error {
        rusqlite_migration::Error::RusqliteError { err, .. } => crate::sqlite::plain(err),
        other => other.to_string(),
    }
}

fn copy(connection: &Connection, path: &Path, version: usize) -> Result<(), MigrationError> {
    let file = crate::path::beside(path, &format!(".v{version}.bak"));
    let failed = |error: &dyn std::fmt::Display| MigrationError::Copy { file: file.clone(), why: error.to_string() };
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(&error)),
        _ => {}
    }
    let text = file.to_str().ok_or_else(|| failed(&"its path is not UTF-8"))?;
    connection.execute("VACUUM INTO ?1", [text]).map(drop).map_err(|error| failed(&error))
}

/// Creates a database as a version of the schema left it.
#[cfg(test)]
pub(crate) fn create(path: &Path, version: usize) -> Connection {
    let (mut connection, statements) = (Connection::open(path).unwrap(), statements());
    Migrations::new(steps(&statements)).to_version(&mut connection, version).unwrap();
    connection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_or_foreign_database_is_refused_and_a_copy_has_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polliwog.db");
        let mut connection = Connection::open(&path).unwrap();
        migrate(&mut connection, &path).unwrap();
        connection.execute("INSERT INTO target (id, kind) VALUES ('a', 'http')", []).unwrap();
        copy(&connection, &path, 1).unwrap();
        copy(&connection, &path, 1).unwrap();
        let copied = Connection::open(folder.path().join("polliwog.db.v1.bak")).unwrap();
        assert_eq!(copied.query_row("SELECT id FROM target", [], |row| row.get::<_, String>(0)).unwrap(), "a");
        let mut refused = |change: &str| {
            connection.execute_batch(change).unwrap();
            let why = migrate(&mut connection, &path).unwrap_err();
            assert!(!why.to_string().contains("CREATE"), "{why}");
            why
        };
        assert!(matches!(refused("PRAGMA user_version = 99"), MigrationError::Newer));
        assert!(matches!(refused("PRAGMA user_version = 0"), MigrationError::Unversioned));
        assert!(matches!(refused("PRAGMA user_version = -1"), MigrationError::Nonsense(-1)));
        assert!(matches!(refused("PRAGMA user_version = 3; PRAGMA application_id = 5"), MigrationError::Foreign));
        assert!(matches!(refused("PRAGMA application_id = 0"), MigrationError::Foreign));
        for statement in ["CREATE TABLE notes (text)", "CREATE TABLE target (text); PRAGMA user_version = 1"] {
            let mut other = Connection::open_in_memory().unwrap();
            other.execute_batch(statement).unwrap();
            assert!(matches!(migrate(&mut other, &path), Err(MigrationError::Foreign)), "{statement}");
        }
    }

    #[test]
    fn a_parent_becomes_what_a_dependency_runs_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.db");
        let mut connection = create(&path, 13);
        let insert = "INSERT INTO dependency (target, slot, name, type, status, skipped, parent, first_seen)
                      VALUES (1, ?1, ?2, 'other', 'ok', 0, ?3, 0)";
        connection.execute(insert, rusqlite::params![0, "vm", "node"]).unwrap();
        connection.execute(insert, rusqlite::params![1, "node", rusqlite::types::Null]).unwrap();
        migrate(&mut connection, &path).unwrap();
        let mut records = dependency::all(&connection).unwrap().remove(&1).unwrap();
        records.sort_by_key(|record| record.slot);
        let runs_on: Vec<&[String]> = records.iter().map(|record| &record.reported.runs_on[..]).collect();
        assert_eq!(runs_on, [&["node".to_owned()][..], &[]]);
    }

    #[test]
    fn a_database_of_each_earlier_version_is_migrated() {
        let folder = tempfile::tempdir().unwrap();
        for version in 1..VERSIONS.len() {
            let path = folder.path().join(format!("{version}.db"));
            let mut connection = create(&path, version);
            migrate(&mut connection, &path).unwrap();
            let found: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).unwrap();
            assert_eq!(found, APPLICATION);
        }
    }
}
