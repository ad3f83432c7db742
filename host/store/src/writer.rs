//! The one writer: a thread that commits what it is handed, many at a time.
//!
//! Handing something in never waits. What may pile up is bounded by whoever hands in: at most five results of each target
//! (the scheduler's back-pressure), one flush of what merely continued, and the queue's length is a gauge.

mod guard;
mod pending;
mod rows;
mod shares;

use crate::files::Files;
use crate::job::{Job, SettingChange};
use crate::load::{Everything, Loaded, load};
use crate::lock::Lock;
use crate::path::beside;
use crate::reader::Reader;
use crate::record::{Announce, Commit, Progress, Publish};
use crate::sqlite::{data_version, plain};
use crate::tables::journal::mark;
use crate::tables::{latency, session, target, token};
use crate::wire::{PointWire, Snapshot};
use model::{Alive, Event, Pulse, SequencedEvent, TargetId, Timestamp};
pub(crate) use pending::Limits;
use pending::PendingWrite;
use rusqlite::{Connection, Transaction};
use shares::Shares;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
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

/// Where results go.
pub struct Writer {
    queue: Arc<Queue>,
    pulse: Arc<Pulse>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(crate) fn start(mut state: WriterState, announce: Announce) -> std::io::Result<Self> {
        let (queue, pulse) = (Arc::new(Queue::default()), Pulse::new("store"));
        let (own, alive) = (queue.clone(), Alive(pulse.clone()));
        let run = move || run(&own, &mut state, &announce, &alive.0);
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

    /// Commits the changes of a target. `publish` runs once they are on disk; without it, their events are announced then.
    pub fn commit(&self, commit: Commit, publish: Option<Publish>) {
        self.push(Job::Commit(Box::new(commit), publish));
    }

    /// Runs `publish` once everything handed in before is on disk.
    pub fn publish(&self, publish: Publish) {
        self.push(Job::Publish(publish));
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

fn run(queue: &Queue, state: &mut WriterState, announce: &Announce, pulse: &Pulse) {
    let gauges = &queue.gauges;
    loop {
        let group = next_group(queue);
        pulse.beat();
        let finish = group.iter().any(|job| matches!(job, Job::Finish(_) | Job::Abandon));
        let (mut last_tries, mut committed) = (0, None);
        while let Err(why) = attempt(state, &group, &mut committed, queue) {
            pulse.beat();
            gauges.failures.fetch_add(1, Ordering::Relaxed);
            let failed = gauges.failing.fetch_add(1, Ordering::Relaxed) + 1;
            if queue.ending.load(Ordering::Relaxed) {
                last_tries += 1;
            }
            if last_tries > LAST_TRIES {
                return state.spill(group, queue);
            }
            let longest = if last_tries > 0 { RETRY } else { RETRY_LONGEST };
            let wait = RETRY.saturating_mul(1 << failed.min(10)).min(longest);
            tracing::error!("the database did not take {} results ({why}); trying again in {wait:?}", group.len());
            thread::sleep(wait);
        }
        let flushes = group.iter().filter(|job| matches!(job, Job::Progress(..))).count();
        gauges.flushes.fetch_sub(flushes as u64, Ordering::Relaxed);
        gauges.transactions.fetch_add(u64::from(!group.is_empty()), Ordering::Relaxed);
        publish(group, committed.unwrap_or_default(), announce);
        gauges.failing.store(0, Ordering::Relaxed);
        if finish {
            return state.fold_log();
        }
    }
}

/// Publishes a group that is on disk, in its order; `stored` holds the events of each job.
fn publish(group: Vec<Job>, stored: Vec<Vec<SequencedEvent>>, announce: &Announce) {
    for (job, events) in group.into_iter().zip(stored) {
        match job {
            Job::Commit(_, Some(publish)) | Job::Publish(publish) => publish(events),
            Job::Commit(_, None) | Job::Event(_) => announce(events),
            Job::Setting(change) => {
                announce(events);
                // The caller may have left.
                let _ = change.done.try_send(());
            }
            Job::Progress(..) | Job::Forget(..) | Job::Token(..) | Job::Session(..) => {}
            Job::Begin(_) | Job::Finish(_) | Job::Abandon => {}
        }
    }
}

/// Commits a group once, and checks that it is in the files at the database's path. Fails with one sentence for people.
fn attempt(
    state: &mut WriterState,
    group: &[Job],
    committed: &mut Option<Vec<Vec<SequencedEvent>>>,
    queue: &Queue,
) -> Result<(), String> {
    let check = |state: &mut WriterState| {
        let checked = state.check_files();
        *queue.trouble.lock().unwrap_or_else(PoisonError::into_inner) = checked.as_ref().err().cloned();
        checked
    };
    check(state)?;
    if committed.is_none() && !group.is_empty() {
        *committed = Some(state.write(group).map_err(|error| plain(&error))?);
        check(state)?;
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
pub(crate) struct WriterState {
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
    unjournaled: Vec<(i64, u32, PointWire)>,
    journal_rows: u64,
    limits: Limits,
}

/// What a writer starts with.
pub(crate) struct Opening {
    pub connection: Connection,
    pub lock: Lock,
    pub path: PathBuf,
    pub reader: Arc<Reader>,
    pub limits: Limits,
}

impl WriterState {
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
            unjournaled: Vec::new(),
            journal_rows: 0,
            limits,
        })
    }

    /// Writes the remaining jobs to a file, which the next start commits, because the database takes nothing and the host ends.
    fn spill(&self, group: Vec<Job>, queue: &Queue) {
        let rest = std::mem::take(&mut *queue.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        let all: Vec<Job> = group.into_iter().chain(rest).collect();
        let count = all
            .iter()
            .filter(|job| !matches!(job, Job::Publish(_) | Job::Begin(_) | Job::Finish(_) | Job::Abandon))
            .count();
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
        let Everything { numbers, targets, journal } = load(&self.connection)?;
        self.numbers = numbers;
        (self.version, self.snapshots, self.points) = (journal.version, journal.snapshots, journal.points);
        self.journal_rows = journal.rows;
        Ok((targets, journal.forgotten_until))
    }

    /// Commits a group. Returns the events of each of its jobs.
    fn write(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Vec<SequencedEvent>>> {
        let transaction = self.connection.transaction()?;
        let unjournaled = self.unjournaled.clone();
        let mut pending = PendingWrite { version: self.version, unjournaled, ..PendingWrite::default() };
        let mut times = Times::default();
        let write = |job: &Job| write_job(&transaction, &self.numbers, job, (&mut pending, &mut times));
        let committed = group.iter().map(write).collect::<rusqlite::Result<Vec<_>>>()?;
        // Nothing of a forgotten target stays in the journal, where its number could be another target's one day.
        let gone: Vec<i64> = pending.forgotten.iter().filter_map(|target| self.numbers.get(target).copied()).collect();
        if self.journal_rows + pending.rows >= FOLD || times.ended.is_some() || !gone.is_empty() {
            let snapshots = self.snapshots.iter().filter(|(of, _)| !gone.contains(of)).chain(&pending.snapshots);
            let points = self.points.iter().chain(&pending.points).chain(&pending.unjournaled);
            rows::fold(&transaction, snapshots, points.filter(|(of, ..)| !gone.contains(of)))?;
            pending.folded = true;
            pending.unjournaled.clear();
            if let Some(at) = times.ended.or(times.progressed.map(|(at, _)| at)).or(times.forgotten) {
                mark(&transaction, at, times.ended.is_some())?;
            }
        }
        let shares = self.shares.take().filter(|_| pending.forgotten.is_empty());
        let shares = prune(&transaction, shares, self.limits, (&mut pending, &times))?;
        transaction.commit()?;
        // A transaction that fails leaves them uncounted, and they are counted again.
        self.shares = shares;
        self.remember(pending);
        Ok(committed)
    }

    fn remember(&mut self, pending: PendingWrite) {
        self.version = pending.version;
        for target in pending.forgotten {
            if let Some(num) = self.numbers.remove(&target) {
                self.snapshots.remove(&num);
                // The number may be given to another target.
                self.points.retain(|(of, ..)| *of != num);
            }
        }
        self.numbers.extend(pending.numbers);
        self.unjournaled = pending.unjournaled;
        if pending.folded {
            (self.snapshots, self.points, self.journal_rows) = (BTreeMap::new(), Vec::new(), 0);
        } else {
            self.snapshots.extend(pending.snapshots);
            self.points.extend(pending.points);
            self.journal_rows += pending.rows;
        }
    }
}

/// The times that jobs of a group carry.
#[derive(Default)]
struct Times {
    /// The time of the last flush, and whether it may be used to prune history.
    progressed: Option<(Timestamp, bool)>,
    /// When the host ended.
    ended: Option<Timestamp>,
    /// When a target was forgotten.
    forgotten: Option<Timestamp>,
}

/// Writes one job. Returns its events.
fn write_job(
    transaction: &Transaction<'_>,
    numbers: &HashMap<TargetId, i64>,
    job: &Job,
    (pending, times): (&mut PendingWrite, &mut Times),
) -> rusqlite::Result<Vec<SequencedEvent>> {
    match job {
        Job::Commit(commit, _) => {
            let num = rows::number(transaction, numbers, pending, (&commit.target, &commit.kind))?;
            return rows::write_commit(transaction, num, commit, pending);
        }
        Job::Event(event) => return rows::write_events(transaction, std::slice::from_ref(event), pending),
        Job::Setting(change) => return rows::write_setting(transaction, change, pending),
        Job::Progress(progress, now, is_plausible) => {
            times.progressed = Some((*now, *is_plausible));
            rows::write_progress(transaction, numbers, (progress, *now), pending)?;
        }
        Job::Token(hash, now) => token::set_admin(transaction, hash, *now)?,
        Job::Session(hash, until) => session::set(transaction, hash, *until)?,
        Job::Forget(id, now) => {
            times.forgotten = Some(*now);
            target::delete(transaction, id)?;
            let num = pending.numbers.remove(id).or_else(|| numbers.get(id).copied());
            pending.snapshots.retain(|held, _| Some(*held) != num);
            pending.points.retain(|(of, ..)| Some(*of) != num);
            pending.unjournaled.retain(|(of, ..)| Some(*of) != num);
            pending.forgotten.push(id.clone());
        }
        Job::Begin(now) => mark(transaction, *now, false)?,
        Job::Finish(now) => times.ended = Some(*now),
        Job::Publish(_) | Job::Abandon => {}
    }
    Ok(Vec::new())
}

/// Counts new rows of history, and prunes it after a flush. Returns the shares, if they are counted.
fn prune(
    transaction: &Transaction<'_>,
    mut shares: Option<Shares>,
    limits: Limits,
    (pending, times): (&mut PendingWrite, &Times),
) -> rusqlite::Result<Option<Shares>> {
    if let Some(shares) = &mut shares {
        for (table, owner, bytes) in std::mem::take(&mut pending.history) {
            shares.add(table, owner, bytes as u64);
        }
    }
    let Some((now, is_plausible)) = times.progressed else { return Ok(shares) };
    let now = is_plausible.then_some(now);
    if pending.folded {
        latency::prune(transaction, now.map(|now| limits.oldest(now)), limits.most_rows())?;
    }
    let mut counted = match shares {
        Some(shares) => shares,
        None => Shares::count(transaction)?,
    };
    counted.prune(transaction, limits, now)?;
    Ok(Some(counted))
}

/// Results that could not be written lie beside the database in a file with this ending.
pub(crate) const SPILL: &str = "-spill";

#[cfg(test)]
mod tests;
