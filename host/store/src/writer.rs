//! The one writer: a thread that commits what it is handed, many at a time.
//!
//! Handing something in never waits. What may pile up is bounded by whoever hands in: at most five results of each target
//! (the scheduler's back-pressure), one flush of what merely continued, and the queue's length is a gauge.

mod guard;
mod rows;
mod shares;

use crate::files::Files;
use crate::lock::Lock;
use crate::open::{Loaded, beside, load, plain};
use crate::reader::Reader;
use crate::record::{Acknowledge, Commit, Committed, Progress};
use crate::wire::{PointWire, Snapshot};
use guard::data_version;
use model::{Alive, Event, Pulse, TargetId, Timestamp};
use rusqlite::{Connection, params};
use shares::Shares;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Commits that share a transaction.
const GROUP: usize = 512;
/// Rows of the journal before they are folded: about half an hour.
const FOLD: u64 = 64;
/// A failed transaction is tried again after this, doubling to the second.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// How often a failed transaction is tried again once the host ends. Each try waits for a lock for 2 s at most.
const LAST_TRIES: u32 = 3;
/// How often the files are looked at while nothing is written.
const LOOK: Duration = Duration::from_secs(2);

/// How history is bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub days: u32,
    pub rows: u64,
    pub bytes: u64,
}

/// Counters for whoever watches the host.
#[derive(Debug, Default)]
pub struct Gauges {
    /// What waits to be written.
    pub queued: AtomicU64,
    /// Transactions that were committed.
    pub transactions: AtomicU64,
    /// Transactions that failed and were tried again.
    pub failures: AtomicU64,
    /// How often the transaction under way has failed; 0 when the database takes what it is given.
    pub failing: AtomicU64,
    /// Flushes of what merely continued that are not yet on disk.
    pub flushes: AtomicU64,
}

pub(crate) enum Job {
    Commit(Box<Commit>),
    Event(Event),
    /// What merely continued, when, and whether that time can be trusted to say what is old.
    Progress(Vec<Progress>, Timestamp, bool),
    Forget(TargetId, Timestamp),
    Token([u8; 32], Timestamp),
    /// A session of pages, and its end; `None` ends it now.
    Session([u8; 32], Option<Timestamp>),
    Setting(SettingChange),
    Begin(Timestamp),
    Finish(Timestamp),
    Abandon,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    /// The host ends: a database that takes nothing is not waited for any longer.
    ending: AtomicBool,
    more: Condvar,
    /// What is wrong with the files, in one sentence.
    trouble: Mutex<Option<String>>,
    gauges: Gauges,
}

/// Settings that are to be kept, or forgotten where they have no value.
pub(crate) struct SettingChange {
    pub values: Vec<(String, Option<String>)>,
    pub at: Timestamp,
    /// Told when it is on disk.
    pub done: SyncSender<()>,
}

/// Where results go.
pub struct Writer {
    queue: Arc<Queue>,
    pulse: Arc<Pulse>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(crate) fn start(mut desk: Desk, acknowledge: Acknowledge) -> std::io::Result<Self> {
        let (queue, pulse) = (Arc::new(Queue::default()), Pulse::new("store"));
        let (own, alive) = (queue.clone(), Alive(pulse.clone()));
        let run = move || run(&own, &mut desk, &acknowledge, &alive.0);
        let thread = thread::Builder::new().name("store".to_owned()).spawn(run)?;
        Ok(Self { queue, pulse, thread: Mutex::new(Some(thread)) })
    }

    /// The sign of life of its thread.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// What is wrong with the database's files, in one sentence. Results are kept meanwhile, and nothing is told.
    pub fn trouble(&self) -> Option<String> {
        self.queue.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits what changed for a target.
    pub fn commit(&self, commit: Commit) {
        self.push(Job::Commit(Box::new(commit)));
    }

    /// Commits an event that is about no target's poll.
    pub fn event(&self, event: Event) {
        self.push(Job::Event(event));
    }

    /// Writes what merely continued. History's age is counted from `now` where the clock `is_plausible`; a wrong one would
    /// make all of it old.
    pub fn progress(&self, progress: Vec<Progress>, now: Timestamp, is_plausible: bool) {
        self.queue.gauges.flushes.fetch_add(1, Ordering::Relaxed);
        self.push(Job::Progress(progress, now, is_plausible));
    }

    /// Notes that polls may happen from now on.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.push(Job::Begin(now));
    }

    /// Keeps a session of pages until its end; `None` ends it.
    pub fn session(&self, hash: [u8; 32], until: Option<Timestamp>) {
        self.push(Job::Session(hash, until));
    }

    /// Keeps the hash of the admin token, in the place of the one before.
    pub fn admin_token(&self, hash: [u8; 32], now: Timestamp) {
        self.push(Job::Token(hash, now));
    }

    /// Keeps settings, or forgets those without a value. What is given back receives once all of that is on disk, with the
    /// events that tell of it.
    pub fn settings(&self, values: Vec<(String, Option<String>)>, at: Timestamp) -> Receiver<()> {
        let (done, kept) = sync_channel(1);
        self.push(Job::Setting(SettingChange { values, at, done }));
        kept
    }

    /// Forgets a target and everything that is known of it; its history goes by age.
    pub fn forget(&self, target: TargetId, now: Timestamp) {
        self.push(Job::Forget(target, now));
    }

    /// Counters for whoever watches the host.
    pub fn gauges(&self) -> &Gauges {
        &self.queue.gauges
    }

    /// Writes everything that was handed in, folds the journal, notes that the host ended properly, and ends.
    pub fn finish(&self, now: Timestamp) {
        self.queue.ending.store(true, Ordering::Relaxed);
        self.push(Job::Finish(now));
        self.join();
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn push(&self, job: Job) {
        let mut jobs = self.queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.push_back(job);
        self.queue.gauges.queued.store(jobs.len() as u64, Ordering::Relaxed);
        self.queue.more.notify_one();
    }
}

impl Drop for Writer {
    /// Without a proper end: what was handed in is written, and the next start knows that the end was none.
    fn drop(&mut self) {
        self.queue.ending.store(true, Ordering::Relaxed);
        self.push(Job::Abandon);
        self.join();
    }
}

fn run(queue: &Queue, desk: &mut Desk, acknowledge: &Acknowledge, pulse: &Pulse) {
    let gauges = &queue.gauges;
    loop {
        let group = next_group(queue);
        pulse.beat();
        let finish = group.iter().any(|job| matches!(job, Job::Finish(_) | Job::Abandon));
        let (mut last_tries, mut committed) = (0, None);
        while let Err(why) = attempt(desk, &group, &mut committed, queue) {
            pulse.beat();
            gauges.failures.fetch_add(1, Ordering::Relaxed);
            let failed = gauges.failing.fetch_add(1, Ordering::Relaxed) + 1;
            if queue.ending.load(Ordering::Relaxed) {
                last_tries += 1;
            }
            if last_tries > LAST_TRIES {
                return desk.spill(group, queue);
            }
            let longest = if last_tries > 0 { RETRY } else { RETRY_LONGEST };
            let wait = RETRY.saturating_mul(1 << failed.min(10)).min(longest);
            tracing::error!("the database did not take {} results ({why}); trying again in {wait:?}", group.len());
            thread::sleep(wait);
        }
        committed.into_iter().flatten().for_each(acknowledge);
        for job in &group {
            if let Job::Setting(change) = job {
                // The one who asked may have left.
                let _ = change.done.try_send(());
            }
        }
        let flushes = group.iter().filter(|job| matches!(job, Job::Progress(..))).count();
        gauges.flushes.fetch_sub(flushes as u64, Ordering::Relaxed);
        gauges.transactions.fetch_add(u64::from(!group.is_empty()), Ordering::Relaxed);
        gauges.failing.store(0, Ordering::Relaxed);
        if finish {
            return desk.fold_log();
        }
    }
}

/// Commits a group once, and checks that it is in the files at the database's path. Fails with one sentence for people.
fn attempt(
    desk: &mut Desk,
    group: &[Job],
    committed: &mut Option<Vec<Committed>>,
    queue: &Queue,
) -> Result<(), String> {
    let check = |desk: &mut Desk| {
        let checked = desk.check_files();
        *queue.trouble.lock().unwrap_or_else(PoisonError::into_inner) = checked.as_ref().err().cloned();
        checked
    };
    check(desk)?;
    if committed.is_none() && !group.is_empty() {
        *committed = Some(desk.write(group).map_err(|error| plain(&error))?);
        check(desk)?;
    }
    Ok(())
}

/// Takes the waiting jobs; empty when none came within [`LOOK`].
fn next_group(queue: &Queue) -> Vec<Job> {
    let jobs = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = queue.more.wait_timeout_while(jobs, LOOK, |jobs| jobs.is_empty());
    let (mut jobs, _) = waited.unwrap_or_else(PoisonError::into_inner);
    let count = jobs.len().min(GROUP);
    let group = jobs.drain(..count).collect();
    queue.gauges.queued.store(jobs.len() as u64, Ordering::Relaxed);
    group
}

/// The writer's connection and what it remembers.
pub(crate) struct Desk {
    connection: Connection,
    /// Dropped after the connection: closing a descriptor of the file drops SQLite's locks.
    files: Files,
    lock: Lock,
    path: PathBuf,
    reader: Arc<Reader>,
    /// Changes when another connection writes.
    data_version: i64,
    /// What each target has of history; counted when it is first pruned.
    shares: Option<Shares>,
    numbers: HashMap<TargetId, i64>,
    version: u64,
    /// What the journal holds, newest for each target, to be folded.
    snapshots: BTreeMap<i64, Snapshot>,
    points: Vec<(i64, u32, PointWire)>,
    /// Latency points of commits, which the journal does not hold yet.
    loose: Vec<(i64, u32, PointWire)>,
    journal_rows: u64,
    limits: Limits,
}

/// What a transaction changes of the desk's memory, taken in once it is committed.
#[derive(Default)]
struct Draft {
    numbers: HashMap<TargetId, i64>,
    forgotten: Vec<TargetId>,
    version: u64,
    snapshots: BTreeMap<i64, Snapshot>,
    points: Vec<(i64, u32, PointWire)>,
    /// Points of this transaction's commits, and of earlier ones, until a row of the journal takes them.
    loose: Vec<(i64, u32, PointWire)>,
    /// Rows of history: which, whose, how many bytes.
    history: Vec<(usize, shares::Owner, usize)>,
    rows: u64,
    folded: bool,
}

/// What a writer starts with.
pub(crate) struct Opening {
    pub connection: Connection,
    pub lock: Lock,
    pub path: PathBuf,
    pub reader: Arc<Reader>,
    pub limits: Limits,
}

impl Desk {
    pub(crate) fn new(opening: Opening) -> std::io::Result<Self> {
        let Opening { connection, mut lock, path, reader, limits } = opening;
        let files = Files::of(&path)?;
        // It exists now, whatever was there before.
        let _ = lock.follow(&path);
        let data_version = data_version(&connection).unwrap_or_default();
        Ok(Self {
            connection,
            files,
            lock,
            path,
            reader,
            data_version,
            shares: None,
            numbers: HashMap::new(),
            version: 0,
            snapshots: BTreeMap::new(),
            points: Vec::new(),
            loose: Vec::new(),
            journal_rows: 0,
            limits,
        })
    }

    /// Writes the remaining jobs to a file, which the next start commits, because the database takes nothing and the host ends.
    fn spill(&self, group: Vec<Job>, queue: &Queue) {
        let rest = std::mem::take(&mut *queue.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        let all: Vec<Job> = group.into_iter().chain(rest).collect();
        let count = all.iter().filter(|job| !matches!(job, Job::Begin(_) | Job::Finish(_) | Job::Abandon)).count();
        let file = beside(&self.path, SPILL);
        match crate::spill::write(&file, all.iter()) {
            Ok(()) => tracing::error!(
                "the database did not take the last {count} results; they are in {}, which the next start takes in",
                file.display()
            ),
            Err(error) => tracing::error!(
                "neither the database nor {} took the last {count} results ({error}): they are lost",
                file.display()
            ),
        }
    }

    /// Writes what an earlier host could not.
    pub(crate) fn take_in(&mut self, jobs: &[Job]) -> rusqlite::Result<()> {
        jobs.chunks(GROUP).try_for_each(|group| self.write(group).map(drop))
    }

    /// What is in the database now, as at an open.
    pub(crate) fn load(&mut self) -> rusqlite::Result<(HashMap<TargetId, Loaded>, Option<Timestamp>)> {
        let (numbers, loaded, state) = load(&self.connection)?;
        self.numbers = numbers;
        (self.version, self.snapshots, self.points) = (state.version, state.snapshots, state.points);
        self.journal_rows = state.journal_rows;
        Ok((loaded, state.forgotten_until))
    }

    fn write(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Committed>> {
        let transaction = self.connection.transaction()?;
        let mut draft = Draft { version: self.version, loose: self.loose.clone(), ..Draft::default() };
        let mut committed = Vec::with_capacity(group.len());
        let mut progressed = None;
        let (mut ended, mut forgotten_at) = (None, None);
        for job in group {
            match job {
                Job::Commit(commit) => {
                    let num = rows::number(&transaction, &self.numbers, &mut draft, (&commit.target, &commit.kind))?;
                    committed.push(rows::write_commit(&transaction, num, commit, &mut draft)?);
                }
                Job::Event(event) => {
                    let events = rows::write_events(&transaction, std::slice::from_ref(event), &mut draft)?;
                    committed.push(Committed { target: None, events });
                }
                Job::Progress(progress, now, is_plausible) => {
                    progressed = Some((*now, *is_plausible));
                    rows::write_progress(&transaction, &self.numbers, (progress, *now), &mut draft)?;
                }
                Job::Token(hash, now) => {
                    transaction.execute("DELETE FROM token WHERE scope = 'admin'", [])?;
                    let sql = "INSERT INTO token (hash, scope, created_at) VALUES (?1, 'admin', ?2)";
                    transaction.execute(sql, params![hash, now.as_millis()])?;
                }
                Job::Session(hash, Some(until)) => {
                    let sql = "INSERT OR REPLACE INTO session (hash, expires_at) VALUES (?1, ?2)";
                    transaction.execute(sql, params![hash, until.as_millis()])?;
                }
                Job::Session(hash, None) => {
                    transaction.execute("DELETE FROM session WHERE hash = ?1", [hash])?;
                }
                Job::Setting(change) => {
                    let events = rows::write_setting(&transaction, change, &mut draft)?;
                    committed.push(Committed { target: None, events });
                }
                Job::Forget(target, now) => {
                    forgotten_at = Some(*now);
                    rows::forget(&transaction, target)?;
                    let num = draft.numbers.remove(target).or_else(|| self.numbers.get(target).copied());
                    draft.snapshots.retain(|held, _| Some(*held) != num);
                    draft.points.retain(|(of, ..)| Some(*of) != num);
                    draft.loose.retain(|(of, ..)| Some(*of) != num);
                    draft.forgotten.push(target.clone());
                }
                Job::Begin(now) => rows::write_marker(&transaction, *now, false)?,
                Job::Finish(now) => ended = Some(*now),
                Job::Abandon => {}
            }
        }
        // Of what is forgotten nothing stays in the journal, where its number could be another target's one day.
        let gone: Vec<i64> = draft.forgotten.iter().filter_map(|target| self.numbers.get(target).copied()).collect();
        if self.journal_rows + draft.rows >= FOLD || ended.is_some() || !gone.is_empty() {
            let snapshots = self.snapshots.iter().filter(|(of, _)| !gone.contains(of)).chain(&draft.snapshots);
            let points = self.points.iter().chain(&draft.points).chain(&draft.loose);
            rows::fold(&transaction, snapshots, points.filter(|(of, ..)| !gone.contains(of)))?;
            draft.folded = true;
            draft.loose.clear();
            if let Some(at) = ended.or(progressed.map(|(at, _)| at)).or(forgotten_at) {
                rows::write_marker(&transaction, at, ended.is_some())?;
            }
        }
        let mut shares = self.shares.take().filter(|_| draft.forgotten.is_empty());
        if let Some(shares) = &mut shares {
            for (table, owner, bytes) in std::mem::take(&mut draft.history) {
                shares.add(table, owner, bytes as u64);
            }
        }
        if let Some((now, is_plausible)) = progressed {
            let now = is_plausible.then_some(now);
            if draft.folded {
                rows::prune_latency(&transaction, self.limits, now)?;
            }
            let mut counted = match shares {
                Some(shares) => shares,
                None => Shares::count(&transaction)?,
            };
            counted.prune(&transaction, self.limits, now)?;
            shares = Some(counted);
        }
        transaction.commit()?;
        // A transaction that fails leaves them uncounted, and they are counted again.
        self.shares = shares;
        self.remember(draft);
        Ok(committed)
    }

    fn remember(&mut self, draft: Draft) {
        self.version = draft.version;
        for target in draft.forgotten {
            if let Some(num) = self.numbers.remove(&target) {
                self.snapshots.remove(&num);
                // The number may be given to another target.
                self.points.retain(|(of, ..)| *of != num);
            }
        }
        self.numbers.extend(draft.numbers);
        self.loose = draft.loose;
        if draft.folded {
            (self.snapshots, self.points, self.journal_rows) = (BTreeMap::new(), Vec::new(), 0);
        } else {
            self.snapshots.extend(draft.snapshots);
            self.points.extend(draft.points);
            self.journal_rows += draft.rows;
        }
    }
}

/// Results that could not be written lie beside the database in a file with this ending.
pub(crate) const SPILL: &str = "-spill";

#[cfg(test)]
mod tests;
