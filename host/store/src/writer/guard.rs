//! Guards the open database against other programs: checks its files and its lock, and repairs what can be repaired.

use super::WriterState;
use crate::files::{Files, Found};
use crate::lock::NotLocked;
use crate::path::{beside, make_private};
use crate::sqlite::{connect, data_version, plain};
use rusqlite::Connection;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Upper bound on the duration of a page check.
const LONGEST_CHECK: Duration = Duration::from_secs(1);

impl WriterState {
    /// Checks that commits reach the files at the database's path. Writes deleted files again from the open connection.
    /// Fails with one sentence for users if commits do not reach the files.
    pub(super) fn check_files(&mut self) -> Result<(), String> {
        let path = self.path.display().to_string();
        match self.lock.renew() {
            Ok(()) => {}
            Err(NotLocked::InUse) => {
                return Err(format!(
                    "another polliwog opened {path} after its lock file was deleted: stop one of the two; results are kept"
                ));
            }
            Err(NotLocked::Unusable { file, why }) => {
                return Err(format!(
                    "{} cannot be created again ({why}): restore its folder; results are kept",
                    file.display()
                ));
            }
        }
        match self.files.check() {
            Found::Same => {}
            Found::WalGone => {
                tracing::warn!(
                    "the write-ahead log of {path} was deleted or replaced by another program; writing it again"
                );
                self.reopen(|connection, _| fold(connection))?;
            }
            Found::Deleted => {
                tracing::warn!("{path} was deleted while the host is running; writing it again from the open file");
                self.reopen(write_again)?;
            }
            Found::Replaced => {
                return Err(format!(
                    "{path} was replaced by another file while the host runs: put it back, or restart the host to use \
                     the new one; results are kept and written at the next start"
                ));
            }
            Found::Damaged => {
                return Err(format!(
                    "{path} was cut short or overwritten by another program: stop the host, replace the file with a copy and start \
                     again; results are kept and written then"
                ));
            }
        }
        let version = data_version(&self.connection).map_err(|error| plain(&error))?;
        if version != self.data_version {
            self.data_version = version;
            tracing::warn!(
                "another program has written to {path}: the host may show data that is no longer stored there"
            );
        }
        Ok(())
    }

    /// Saves the content of the old connection with `save`, then opens the files at the path.
    fn reopen(&mut self, save: impl FnOnce(&Connection, &Path) -> Result<(), String>) -> Result<(), String> {
        self.reader.renew();
        save(&self.connection, &self.path)?;
        let connection = connect(&self.path).map_err(|error| plain(&error))?;
        let files = Files::of(&self.path).map_err(|error| error.to_string())?;
        // The old connection is dropped first, because closing the old file drops its locks.
        self.connection = connection;
        self.files = files;
        self.data_version = data_version(&self.connection).map_err(|error| plain(&error))?;
        self.lock.follow(&self.path).map_err(|_| "another polliwog has opened the new database".to_owned())
    }

    /// Folds the write-ahead log at the end, so that the database is one file.
    pub(super) fn fold_log(&self) {
        if let Err(why) = fold(&self.connection) {
            tracing::info!("the write-ahead log could not be folded ({why}); it is folded at the next start");
        }
    }
}

/// Checks the pages of a database. Fails with a short description of the damage. Takes at most a second, so a large
/// database is not checked completely. It uses another connection than the writer, so that the state can be loaded
/// meanwhile.
pub(crate) fn check_pages(path: &Path) -> Result<(), String> {
    let connection = connect(path).map_err(|error| plain(&error))?;
    let interrupt = connection.get_interrupt_handle();
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if waiting.recv_timeout(LONGEST_CHECK) == Err(RecvTimeoutError::Timeout) {
            interrupt.interrupt();
        }
    });
    let found = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    drop(done);
    let _ = watch.join();
    match found {
        Ok(found) if found == "ok" => Ok(()),
        Ok(found) => Err(found.lines().last().unwrap_or_default().to_owned()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) => Ok(()),
        Err(error) => Err(plain(&error)),
    }
}

/// Moves the content of the write-ahead log into the database's file.
fn fold(connection: &Connection) -> Result<(), String> {
    let numbers = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
    match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], numbers) {
        Ok((0, ..)) => Ok(()),
        Ok(_) => Err("the database is being read".to_owned()),
        Err(error) => Err(plain(&error)),
    }
}

/// Writes the content of a connection to a new file.
fn write_again(connection: &Connection, path: &Path) -> Result<(), String> {
    let text = path.to_str().ok_or("the path is not UTF-8")?;
    let draft = beside(path, ".draft");
    let draft_text = draft.to_str().unwrap_or(text);
    let failed = |error: std::io::Error| error.to_string();
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    for leftover in ["-wal", "-shm"] {
        // These belong to the deleted file; SQLite would use them for the new one.
        let _ = std::fs::remove_file(beside(path, leftover));
    }
    connection.execute("VACUUM INTO ?1", [draft_text]).map_err(|error| plain(&error))?;
    make_private(&draft).and_then(|()| std::fs::File::open(&draft)?.sync_all()).map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}
