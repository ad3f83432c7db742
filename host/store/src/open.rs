//! Opening a database: one process at a time, brought up to date, and what is known read back.

use crate::known::{Dependency, Facts, Known, Live, PollFailure};
use crate::lock::{Lock, NotLocked};
use crate::reader::Reader;
use crate::record::{Acknowledge, Schedule};
use crate::schema::{MigrationError, migrate, missing_table};
use crate::spill;
use crate::wire::{Journal, PointWire, Snapshot};
use crate::writer::{Desk, Limits, Opening, SPILL, Writer};
use model::{FailureCategory, Json, Kind, Status, TargetId, Timestamp};
use rusqlite::{Connection, Row};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The room's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The database's file.
    pub path: PathBuf,
    /// History older than this many days goes.
    pub history_days: u32,
    /// Rows of each history beyond this many go, oldest first.
    pub history_rows: u64,
    /// Bytes of all histories beyond this many go, oldest first of whoever has most.
    pub history_bytes: u64,
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's text says what it is")]
pub enum OpenError {
    #[error("{file} is in use by another polliwog: end that one, or give this one another --data-dir")]
    InUse { file: PathBuf },
    #[error("{file} cannot be opened ({why}): check its permissions and the disk")]
    Open { file: PathBuf, why: String },
    #[error("{file} is damaged ({why}): restore a copy{}, or move it away and start with an empty one", copies(file))]
    Damaged { file: PathBuf, why: String },
    #[error("[store] path {file} has a name that belongs to another database's side files: end it with .db")]
    SideFile { file: PathBuf },
    #[error("{file}: {source}")]
    Migrate { file: PathBuf, source: MigrationError },
}

/// What was known of a target when the database was last written.
#[derive(Debug)]
pub struct Loaded {
    /// Its kind then.
    pub kind: Kind,
    /// What is known.
    pub known: Known,
    /// Its schedule.
    pub schedule: Option<Schedule>,
}

/// What merely continued may be lost for this long when a host is killed.
pub const FORGOTTEN: Duration = Duration::from_secs(30);

/// An open database, and what was in it.
pub struct Opened {
    /// The database.
    pub store: Store,
    /// What was known of each target.
    pub targets: HashMap<TargetId, Loaded>,
    /// When the host before was killed: polls up to this time may have happened that nothing tells of.
    pub forgotten_until: Option<Timestamp>,
}

/// The database of a running host.
pub struct Store {
    writer: Writer,
    reader: Arc<Reader>,
}

impl Store {
    /// Opens or makes a database. `acknowledge` hears of everything that is on disk.
    pub fn open(config: &Config, now: Timestamp, acknowledge: Acknowledge) -> Result<Opened, OpenError> {
        let path = config.path.clone();
        let failed = |why: String| OpenError::Open { file: path.clone(), why };
        let is_side_file = |ending: &str| path.to_string_lossy().ends_with(ending);
        if ["-wal", "-shm", "-journal", "-lock", SPILL, ".bak", ".draft"].into_iter().any(is_side_file) {
            return Err(OpenError::SideFile { file: path });
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
        }
        let lock = Lock::acquire(&path).map_err(|error| match error {
            NotLocked::InUse => OpenError::InUse { file: path.clone() },
            NotLocked::Unusable { file, why } => OpenError::Open { file, why: why.to_string() },
        })?;
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
        let mut desk = Desk::new(opening).map_err(|error| failed(error.to_string()))?;
        let (mut targets, mut forgotten_until) = desk.load().map_err(|error| unusable(&path, &error))?;
        desk.check_pages().map_err(|why| OpenError::Damaged { file: path.clone(), why })?;
        if take_in(&mut desk, &path)? {
            (targets, forgotten_until) = desk.load().map_err(|error| unusable(&path, &error))?;
        }
        let writer = Writer::start(desk, acknowledge).map_err(|error| failed(error.to_string()))?;
        writer.begin(now);
        Ok(Opened { store: Self { writer, reader }, targets, forgotten_until })
    }

    /// Where results go.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Where history comes from.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Writes everything that was handed in, folds the journal and the write-ahead log, and closes the database. Returns
    /// within seconds: what the database does not take by then goes to a file that the next start takes in.
    pub fn close(&self, now: Timestamp) {
        // A kept reader would hold the log up.
        self.reader.close();
        self.writer.finish(now);
    }
}

/// Writes what an earlier host could not, where it left something.
fn take_in(desk: &mut Desk, path: &Path) -> Result<bool, OpenError> {
    let file = beside(path, SPILL);
    let jobs = match spill::read(&file) {
        Ok(None) => return Ok(false),
        Ok(Some(jobs)) => jobs,
        Err(error) => {
            let aside = beside(path, "-spill.unreadable");
            let kept = fs::rename(&file, &aside).map_or(file, |()| aside);
            tracing::error!("results of an earlier run cannot be read ({error}); they are kept in {}", kept.display());
            return Ok(false);
        }
    };
    desk.take_in(&jobs).map_err(|error| unusable(path, &error))?;
    tracing::warn!("{} results that an earlier run could not write are in the database now", jobs.len());
    fs::remove_file(&file).map_err(|error| OpenError::Open { file, why: error.to_string() })?;
    Ok(true)
}

/// A file beside the database: its whole name with an ending, so that no two databases share one.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The copies of a database that lie beside it, in half a sentence.
fn copies(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = path.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let names = beside.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut copies: Vec<String> = names.filter(|copy| copy.starts_with(&name) && copy.ends_with(".bak")).collect();
    copies.sort_unstable();
    copies.last().map(|newest| format!(" ({newest} beside it was made before an upgrade)")).unwrap_or_default()
}

/// Makes the database's files readable for their owner only. SQLite makes its side files like the database.
fn prepare(path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
        tracing::warn!(
            "{} was empty, so nothing is known of earlier runs: if there were any, end the host and restore a copy{}",
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

pub(crate) fn make_private(file: &Path) -> io::Result<()> {
    if fs::metadata(file)?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
}

/// What SQLite says, without the statement that it says it of.
pub(crate) fn plain(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => message.clone().unwrap_or_else(|| code.to_string()),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

fn unusable(file: &Path, error: &rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, PermissionDenied, ReadOnly,
    };
    let (file, why) = (file.to_owned(), plain(error));
    let environment = [CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OutOfMemory, PermissionDenied, ReadOnly];
    match error {
        // A read that ends too early is a file that was cut short; every other error of reading is the disk's.
        rusqlite::Error::SqliteFailure(code, _)
            if environment.contains(&code.code)
                || (code.code == rusqlite::ErrorCode::SystemIoFailure
                    && code.extended_code != rusqlite::ffi::SQLITE_IOERR_SHORT_READ) =>
        {
            OpenError::Open { file, why }
        }
        // A missing table or a value of another type is as good as a torn page.
        _ => OpenError::Damaged { file, why },
    }
}

pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(2))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A WAL that grew once, behind a slow reader, is cut back to this at the next checkpoint.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    Ok(connection)
}

/// What the writer has to remember of earlier writes.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    pub version: u64,
    /// The newest of each target in the journal.
    pub snapshots: BTreeMap<i64, Snapshot>,
    /// Latency points in the journal.
    pub points: Vec<(i64, u32, PointWire)>,
    pub journal_rows: u64,
    pub forgotten_until: Option<Timestamp>,
}

pub(crate) type Everything = (HashMap<TargetId, i64>, HashMap<TargetId, Loaded>, WriterState);

pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Everything> {
    let state = journal(connection)?;
    let mut dependencies = dependencies(connection)?;
    let (mut numbers, mut loaded) = (HashMap::new(), HashMap::new());
    let mut version = state.version;
    let mut statement = connection.prepare(
        "SELECT num, id, kind, warnings, failure_category, failure_code, failure_message, failure_at, stale_since, snapshot
         FROM target",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let num: i64 = row.get(0)?;
        let (Ok(id), Ok(kind)) = (TargetId::new(&row.get::<_, String>(1)?), Kind::new(&row.get::<_, String>(2)?))
        else {
            continue;
        };
        let own: Option<Snapshot> =
            row.get::<_, Option<Vec<u8>>>(9)?.and_then(|bytes| postcard::from_bytes(&bytes).ok());
        let snapshot = Snapshot::merged(own, state.snapshots.get(&num));
        let snapshot = snapshot.as_ref();
        version = version.max(snapshot.map_or(0, |snapshot| snapshot.version));
        let known = known(row, snapshot, dependencies.remove(&num).unwrap_or_default())?;
        let schedule = snapshot.map(|snapshot| Schedule::from(&snapshot.schedule));
        numbers.insert(id.clone(), num);
        loaded.insert(id, Loaded { kind, known, schedule });
    }
    Ok((numbers, loaded, WriterState { version, ..state }))
}

fn journal(connection: &Connection) -> rusqlite::Result<WriterState> {
    let mut state = WriterState::default();
    let mut statement = connection.prepare("SELECT body FROM journal ORDER BY sequence")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        state.journal_rows += 1;
        // A row that cannot be read costs its 30 seconds and nothing else.
        if let Ok(entry) = postcard::from_bytes::<Journal>(&row.get::<_, Vec<u8>>(0)?) {
            state.snapshots.extend(entry.snapshots);
            state.points.extend(entry.points);
            let until = Timestamp::from_millis(entry.at).after(FORGOTTEN);
            state.forgotten_until = (!entry.ended).then_some(until);
        }
    }
    Ok(state)
}

fn known(row: &Row<'_>, snapshot: Option<&Snapshot>, facts: Vec<Facts>) -> rusqlite::Result<Known> {
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis));
    let category = row.get::<_, Option<String>>(4)?.and_then(|word| FailureCategory::from_word(&word));
    let failure = match category {
        Some(category) => Some(PollFailure {
            category,
            code: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
            message: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            at: time(7)?.unwrap_or_default(),
        }),
        None => None,
    };
    let report = snapshot.and_then(|snapshot| snapshot.last_report).map(Timestamp::from_millis);
    let live: HashMap<u32, Live> = match (snapshot, report) {
        (Some(snapshot), Some(report)) => snapshot.live.iter().map(|live| live.restore(report)).collect(),
        _ => HashMap::new(),
    };
    let mut known = Known::default();
    known.warnings = serde_json::from_str(&row.get::<_, String>(3)?).unwrap_or_default();
    known.failure = failure;
    known.stale_since = time(8)?;
    known.last_report = report;
    let dependency = |facts: Facts| {
        let live = live.get(&facts.slot).copied();
        let unseen = Live { checked_at: facts.last_status_change.unwrap_or(facts.first_seen), ..Live::default() };
        Dependency { live: live.unwrap_or(unseen), facts: Arc::new(facts) }
    };
    Ok(known.restored(facts.into_iter().map(dependency).collect()))
}

fn dependencies(connection: &Connection) -> rusqlite::Result<HashMap<i64, Vec<Facts>>> {
    let mut statement = connection.prepare(
        "SELECT target, slot, name, canonical_name, title, type, status, skipped, code, description, impact, error,
                error_message, error_state, contact, check_details, parent, first_seen, last_status_change, missing_since
         FROM dependency",
    )?;
    let mut by_target: HashMap<i64, Vec<Facts>> = HashMap::new();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        by_target.entry(row.get(0)?).or_default().push(facts(row)?);
    }
    Ok(by_target)
}

fn facts(row: &Row<'_>) -> rusqlite::Result<Facts> {
    // Earlier versions stored JSON that cannot be parsed.
    let sound = |text: &String| serde_json::from_str::<serde_json::Value>(text).is_ok();
    let json = |column| {
        let text = row.get::<_, Option<String>>(column)?.filter(sound);
        Ok::<_, rusqlite::Error>(text.map(Json::checked))
    };
    let status = Status::from_word(&row.get::<_, String>(6)?).unwrap_or(Status::Unknown);
    let reported = model::Dependency {
        title: row.get(4)?,
        kind: row.get(5)?,
        skipped: row.get(7)?,
        code: row.get(8)?,
        description: row.get(9)?,
        impact: row.get(10)?,
        error: json(11)?,
        error_message: row.get(12)?,
        contact: json(14)?,
        check_details: json(15)?,
        parent: row.get(16)?,
        ..model::Dependency::new(row.get::<_, String>(2)?, status)
    };
    Ok(Facts {
        slot: row.get(1)?,
        reported,
        canonical: row.get(3)?,
        error_state: json(13)?,
        first_seen: Timestamp::from_millis(row.get(17)?),
        last_status_change: row.get::<_, Option<i64>>(18)?.map(Timestamp::from_millis),
        missing_since: row.get::<_, Option<i64>>(19)?.map(Timestamp::from_millis),
    })
}
