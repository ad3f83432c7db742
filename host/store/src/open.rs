//! Opens a database: locks it, migrates it, and loads the known state.

use crate::load::Loaded;
use crate::lock::{Lock, NotLocked};
use crate::path::{beside, make_private};
use crate::reader::Reader;
use crate::record::Announce;
use crate::schema::{MigrationError, migrate, missing_table};
use crate::spill;
use crate::sqlite::{connect, plain};
use crate::writer::{Limits, Opening, SPILL, Writer, WriterState, check_pages};
use model::{TargetId, Timestamp};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// The settings of the store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The path of the database file.
    pub path: PathBuf,
    /// History is deleted after this many days.
    pub history_days: u32,
    /// The maximum number of rows per history table; the oldest rows are deleted first.
    pub history_rows: u64,
    /// The maximum size of all histories in bytes; the oldest rows of the largest owner are deleted first.
    pub history_bytes: u64,
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error text of each variant describes it")]
pub enum OpenError {
    #[error("{file} is in use by another polliwog: stop that one, or choose another --data-dir for this one")]
    InUse { file: PathBuf },
    #[error("{file} cannot be opened ({why}): check its permissions and the disk")]
    Open { file: PathBuf, why: String },
    #[error("{file} is damaged ({why}): restore a copy{}, or move it away and start with an empty one", copies(file))]
    Damaged { file: PathBuf, why: String },
    #[error("[store] path {file} has a name that belongs to another database's side files: the name must end in .db")]
    SideFile { file: PathBuf },
    #[error("{file}: {source}")]
    Migrate { file: PathBuf, source: MigrationError },
}

/// An open database and its content.
pub struct Opened {
    /// The database.
    pub store: Store,
    /// The stored state of each target.
    pub targets: HashMap<TargetId, Loaded>,
    /// Polls up to this time may be missing, because the last host was killed; `None` if it ended properly.
    pub forgotten_until: Option<Timestamp>,
}

/// The database of a running host.
pub struct Store {
    writer: Writer,
    reader: Arc<Reader>,
}

/// A database that belongs to this process, and is not read yet.
pub struct Locked {
    config: Config,
    lock: Lock,
}

impl Locked {
    /// Opens or creates the database, and loads the known state. `announce` receives events that are on disk.
    ///
    /// # Errors
    /// [`OpenError`], for users.
    pub fn open(self, now: Timestamp, announce: Announce) -> Result<Opened, OpenError> {
        let Self { config, lock } = self;
        let path = config.path;
        let failed = |why: String| OpenError::Open { file: path.clone(), why };
        prepare(&path).map_err(|error| failed(error.to_string()))?;
        let mut connection = connect(&path).map_err(|error| unusable(&path, &error))?;
        migrate(&mut connection, &path).map_err(|source| match source {
            MigrationError::Broken(error) => unusable(&path, &error),
            source => OpenError::Migrate { file: path.clone(), source },
        })?;
        if let Some(table) = missing_table(&connection).map_err(|error| unusable(&path, &error))? {
            return Err(OpenError::Damaged { file: path, why: format!("its table {table} is missing") });
        }
        let limits = Limits { days: config.history_days, rows: config.history_rows, bytes: config.history_bytes };
        let reader = Arc::new(Reader::new(path.clone()));
        let opening = Opening { connection, lock, path: path.clone(), reader: reader.clone(), limits };
        let mut state = WriterState::new(opening).map_err(|error| failed(error.to_string()))?;
        let (loaded, checked) = thread::scope(|scope| {
            let checking = scope.spawn(|| check_pages(&path));
            (state.load(), checking.join().unwrap_or_else(|_| Err("its pages cannot be checked".to_owned())))
        });
        let (mut targets, mut forgotten_until) = loaded.map_err(|error| unusable(&path, &error))?;
        checked.map_err(|why| OpenError::Damaged { file: path.clone(), why })?;
        if commit_spill(&mut state, &path)? {
            (targets, forgotten_until) = state.load().map_err(|error| unusable(&path, &error))?;
        }
        let writer = Writer::start(state, announce).map_err(|error| failed(error.to_string()))?;
        writer.begin(now);
        Ok(Opened { store: Store { writer, reader }, targets, forgotten_until })
    }
}

impl Store {
    /// Locks a database, so that no other process opens it.
    ///
    /// # Errors
    /// [`OpenError`], for users.
    pub fn lock(config: &Config) -> Result<Locked, OpenError> {
        let path = &config.path;
        let failed = |why: io::Error| OpenError::Open { file: path.clone(), why: why.to_string() };
        let is_side_file = |ending: &str| path.to_string_lossy().ends_with(ending);
        if ["-wal", "-shm", "-journal", "-lock", SPILL, ".bak", ".draft"].into_iter().any(is_side_file) {
            return Err(OpenError::SideFile { file: path.clone() });
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let lock = Lock::acquire(path).map_err(|error| match error {
            NotLocked::InUse => OpenError::InUse { file: path.clone() },
            NotLocked::Unusable { file, why } => OpenError::Open { file, why: why.to_string() },
        })?;
        Ok(Locked { config: config.clone(), lock })
    }

    /// Returns the writer.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Returns the reader of history.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Writes all queued jobs, folds the journal and the write-ahead log, and closes the database. Returns within
    /// seconds: results that cannot be written by then go to a file that the next start commits.
    pub fn close(&self, now: Timestamp) {
        // A kept read connection would prevent the fold of the log.
        self.reader.close();
        self.writer.finish(now);
    }
}

/// Commits the spill file of an earlier host. Returns true if there was one.
fn commit_spill(state: &mut WriterState, path: &Path) -> Result<bool, OpenError> {
    let file = beside(path, SPILL);
    let jobs = match spill::read(&file) {
        Ok(None) => return Ok(false),
        Ok(Some(jobs)) => jobs,
        Err(error) => {
            let aside = beside(path, "-spill.unreadable");
            let kept = fs::rename(&file, &aside).map_or(file, |()| aside);
            tracing::error!("results of an earlier run cannot be read ({error}); they remain in {}", kept.display());
            return Ok(false);
        }
    };
    state.commit_spilled(&jobs).map_err(|error| unusable(path, &error))?;
    tracing::warn!("wrote {} results of an earlier run to the database", jobs.len());
    fs::remove_file(&file).map_err(|error| OpenError::Open { file, why: error.to_string() })?;
    Ok(true)
}

/// Returns the newest backup next to a database, as a suffix for a message; empty if there is no backup.
fn copies(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let names = beside.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut copies: Vec<String> = names.filter(|copy| copy.starts_with(&name) && copy.ends_with(".bak")).collect();
    copies.sort_unstable();
    copies.last().map(|newest| format!(" ({newest} next to it is a copy from before an upgrade)")).unwrap_or_default()
}

/// Makes the database files readable by their owner only. SQLite gives its side files the permissions of the database.
fn prepare(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
        tracing::warn!(
            "{} was empty: if there were earlier runs, stop the host and restore a copy{}",
            path.display(),
            copies(path)
        );
    }
    fs::File::options().create(true).append(true).mode(0o600).open(path)?;
    ["", "-wal", "-shm"].iter().try_for_each(|ending| match make_private(&beside(path, ending)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    })
}

fn unusable(file: &Path, error: &rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, PermissionDenied, ReadOnly,
    };
    let (file, why) = (file.to_owned(), plain(error));
    let environment = [CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, PermissionDenied, ReadOnly];
    match error {
        // A short read means a truncated file; every other read error is a disk error.
        rusqlite::Error::SqliteFailure(code, _)
            if environment.contains(&code.code)
                || (code.code == rusqlite::ErrorCode::SystemIoFailure
                    && code.extended_code != rusqlite::ffi::SQLITE_IOERR_SHORT_READ) =>
        {
            OpenError::Open { file, why }
        }
        // A missing table or a value of another type counts as damage.
        _ => OpenError::Damaged { file, why },
    }
}
