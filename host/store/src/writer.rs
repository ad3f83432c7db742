//! The single writer: a thread that commits queued jobs in groups.
//!
//! Queueing a job never waits. The callers bound the queue: at most five results per target (the scheduler's
//! back-pressure) and one flush of progress. The length of the queue is a gauge.

mod gauges;
mod guard;
mod jobs;
mod newest;
mod pending;
mod rollup;
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
use crate::tables::{gap, latency, target};
use crate::wire::StoredPoint;
pub use gauges::Gauges;
pub(crate) use guard::check_pages;
use jobs::{Times, write_job};
use model::{
    AccessChange, AlertChange, Alive, Event, EventKind, FleetChange, Pulse, SequencedEvent, TargetId, Timestamp,
};
use newest::Newest;
pub(crate) use pending::Limits;
use pending::{Fold, Known, PendingWrite, incomplete_hour};
use rusqlite::{Connection, Transaction};
use shares::Shares;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The maximum number of jobs in one transaction.
const GROUP: usize = 512;
/// The journal is folded when its rows have this many places, if it was not before. A flush of many targets has several
/// rows: those of 14,000 targets reach this number in an hour.
const FOLD: u32 = 1_024;
/// The delay before a failed transaction is retried; it doubles up to `RETRY_LONGEST`.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// The number of retries of a failed transaction during shutdown. Each one waits for a lock for at most 2 s.
const LAST_TRIES: u32 = 3;
/// The interval of the file checks while no job is queued.
const CHECK_FILES: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    /// The host is shutting down; failed transactions are no longer retried without limit.
    ending: AtomicBool,
    more: Condvar,
    /// The problem with the files, as one sentence; `None` if there is no problem.
    trouble: Mutex<Option<String>>,
    gauges: Gauges,
}

/// The handle of the writer thread.
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

    /// Returns the liveness pulse of the writer thread.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// Returns the problem with the database files, as one sentence. While there is one, results stay queued and no
    /// events are announced.
    pub fn trouble(&self) -> Option<String> {
        self.queue.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits the changes of a target. `publish` runs once they are on disk; if it is `None`, the events are announced
    /// then.
    pub fn commit(&self, commit: Commit, publish: Option<Publish>) {
        self.push(Job::Commit(Box::new(commit), publish));
    }

    /// Runs `publish` once all jobs queued before are on disk.
    pub fn publish(&self, publish: Publish) {
        self.push(Job::Publish(publish));
    }

    /// Commits an event that does not belong to a poll.
    pub fn event(&self, event: Event) {
        self.push(Job::Event(event));
    }

    /// Commits alerts that changed without a poll, with their events. `publish` runs once they are on disk.
    pub fn alerts(&self, changes: Vec<AlertChange>, events: Vec<Event>, publish: Publish) {
        self.push(Job::Alerts(changes, events, publish));
    }

    /// Writes the progress of targets. History is pruned by its age at `now` only if the clock `is_plausible`; a wrong
    /// clock would expire all history.
    pub fn progress(&self, progress: Vec<Progress>, now: Timestamp, is_plausible: bool) {
        self.queue.gauges.flushes.fetch_add(1, Ordering::Relaxed);
        self.push(Job::Progress(progress, now, is_plausible));
    }

    /// Records that polls may happen from now on.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.push(Job::Begin(now));
    }

    /// Stores a change of the tokens and sessions.
    pub fn access(&self, change: AccessChange) {
        self.push(Job::Access(change));
    }

    /// Stores settings, and events that tell the change; a setting without a value is deleted. The channel receives a
    /// message once the settings and their events are on disk.
    pub fn settings(&self, values: Vec<(String, Option<String>)>, told: Vec<EventKind>, at: Timestamp) -> Receiver<()> {
        self.push_and_report(|done| Job::Setting(SettingChange { values, told, at, done }))
    }

    /// Changes the records for the operator of the fleet. The channel receives a message once the change is on disk.
    pub fn fleet(&self, change: FleetChange) -> Receiver<()> {
        self.push_and_report(|done| Job::Fleet(change, done))
    }

    /// Deletes a target and its known state. Its events expire by age.
    pub fn forget(&self, target: TargetId) {
        self.push(Job::Forget(target));
    }

    /// Returns the gauges and counters.
    pub fn gauges(&self) -> &Gauges {
        &self.queue.gauges
    }

    /// Writes all queued jobs, folds the journal, records that the host ended properly, and stops the thread.
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

    /// Queues a job that reports when it is on disk.
    fn push_and_report(&self, job: impl FnOnce(SyncSender<()>) -> Job) -> Receiver<()> {
        let (done, kept) = sync_channel(1);
        self.push(job(done));
        kept
    }

    fn push(&self, job: Job) {
        let mut jobs = self.queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.push_back(job);
        self.queue.gauges.queued.store(jobs.len() as u64, Ordering::Relaxed);
        self.queue.more.notify_one();
    }
}

impl Drop for Writer {
    /// Writes the queued jobs without recording a proper end, so that the next start treats the host as killed.
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
            tracing::error!(
                "{} results could not be written to the database ({why}); next attempt in {wait:?}",
                group.len()
            );
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

/// Publishes a group that is on disk, in order; `stored` holds the events of each job.
fn publish(group: Vec<Job>, stored: Vec<Vec<SequencedEvent>>, announce: &Announce) {
    for (job, events) in group.into_iter().zip(stored) {
        match job {
            Job::Commit(_, Some(publish)) | Job::Alerts(_, _, publish) | Job::Publish(publish) => publish(events),
            Job::Commit(_, None) | Job::Event(_) => announce(events),
            Job::Setting(SettingChange { done, .. }) | Job::Fleet(_, done) => {
                announce(events);
                // The caller may no longer wait.
                let _ = done.try_send(());
            }
            Job::Progress(..) | Job::Forget(..) | Job::Access(_) => {}
            Job::Begin(_) | Job::Finish(_) | Job::Abandon => {}
        }
    }
}

/// Commits a group once and checks that it is in the files at the path of the database. Fails with one sentence for
/// users.
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

/// Removes the queued jobs, up to one group; empty if none was queued within [`CHECK_FILES`].
fn next_group(queue: &Queue) -> Vec<Job> {
    let jobs = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = queue.more.wait_timeout_while(jobs, CHECK_FILES, |jobs| jobs.is_empty());
    let (mut jobs, _) = waited.unwrap_or_else(PoisonError::into_inner);
    let count = jobs.len().min(GROUP);
    let group = jobs.drain(..count).collect();
    queue.gauges.queued.store(jobs.len() as u64, Ordering::Relaxed);
    group
}

/// The connection of the writer and its cached state.
pub(crate) struct WriterState {
    connection: Connection,
    /// Dropped after the connection: closing a descriptor of the file drops SQLite's locks.
    files: Files,
    lock: Lock,
    path: PathBuf,
    reader: Arc<Reader>,
    /// Changes when another connection writes.
    data_version: i64,
    /// The share of each target in the history tables; counted at the first pruning.
    shares: Option<Shares>,
    numbers: HashMap<TargetId, i64>,
    version: u64,
    /// Latency points of commits that are not in the journal yet.
    unjournaled: Vec<(i64, StoredPoint)>,
    /// The place of the last row of the journal.
    place: u32,
    /// The number of the next target.
    next_number: i64,
    /// The newest states of targets in the journal, as far as this process wrote them, by the targets' numbers.
    newest: HashMap<i64, Newest>,
    /// The hour of the last flush; `None` before the first.
    hour: Option<i64>,
    /// The time until which the last host ran; `None` if there was none.
    last_run: Option<Timestamp>,
    limits: Limits,
}

/// The initial state of a writer.
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
        // The file exists now, even if it did not before.
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
            unjournaled: Vec::new(),
            place: 0,
            next_number: 1,
            newest: HashMap::new(),
            hour: None,
            last_run: None,
            limits,
        })
    }

    /// Writes the remaining jobs to the spill file, because they cannot be written to the database during shutdown. The
    /// next start commits them.
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
                "the last {count} results could not be written to the database; they are in {} and are written at the next start",
                file.display()
            ),
            Err(error) => tracing::error!(
                "the last {count} results could not be written to the database or to {} ({error}): they are lost",
                file.display()
            ),
        }
    }

    /// Commits the spilled jobs of an earlier host.
    pub(crate) fn commit_spilled(&mut self, jobs: &[Job]) -> rusqlite::Result<()> {
        jobs.chunks(GROUP).try_for_each(|group| self.write(group).map(drop))
    }

    /// Loads the content of the database, as at opening.
    pub(crate) fn load(&mut self) -> rusqlite::Result<(HashMap<TargetId, Loaded>, Option<Timestamp>)> {
        let Everything { numbers, targets, journal } = load(&self.connection, &self.path, &self.unjournaled)?;
        let stored = target::last_number(&self.connection)?;
        self.next_number = 1 + journal.numbers().max().unwrap_or(0).max(stored);
        self.numbers = numbers;
        (self.version, self.place) = (journal.version, journal.place);
        self.last_run = journal.last;
        Ok((targets, journal.forgotten_until))
    }

    /// Commits a group. Returns the events of each of its jobs.
    fn write(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Vec<SequencedEvent>>> {
        let transaction = self.connection.transaction()?;
        let (version, place, next_number) = (self.version, self.place, self.next_number);
        let unjournaled = self.unjournaled.clone();
        let mut pending = PendingWrite { version, place, next_number, unjournaled, ..PendingWrite::default() };
        let mut times = Times::default();
        let known = Known { numbers: &self.numbers, newest: &self.newest, last_run: self.last_run };
        let write = |job: &Job| write_job(&transaction, &known, job, (&mut pending, &mut times));
        let committed = group.iter().map(write).collect::<rusqlite::Result<Vec<_>>>()?;
        let hour = times.progressed.map_or(self.hour, |(at, _)| Some(incomplete_hour(at)));
        if let Some(at) = times.ended.or(times.progressed.map(|(at, _)| at)) {
            let (ended, is_full) = (times.ended.is_some(), pending.place >= FOLD);
            if ended || is_full || (self.hour.is_some() && hour != self.hour) {
                let incomplete = if ended || is_full { i64::MAX } else { incomplete_hour(at) };
                rows::fold(&transaction, &known, Fold { at, ended, incomplete }, &mut pending)?;
            }
        }
        let shares = self.shares.take().filter(|_| pending.forgotten.is_empty());
        let shares = prune(&transaction, shares, self.limits, (&mut pending, &times))?;
        transaction.commit()?;
        // After a failed transaction the shares stay `None` and are counted again.
        self.shares = shares;
        self.hour = hour;
        self.remember(pending);
        Ok(committed)
    }

    fn remember(&mut self, pending: PendingWrite) {
        self.version = pending.version;
        for target in pending.forgotten {
            self.numbers.remove(&target);
        }
        self.numbers.extend(pending.numbers);
        self.unjournaled = pending.unjournaled;
        (self.place, self.next_number) = (pending.place, pending.next_number);
        for (num, newest) in pending.newest {
            match newest {
                Some(newest) => drop(self.newest.insert(num, newest)),
                None => drop(self.newest.remove(&num)),
            }
        }
    }
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
    now.map_or(Ok(()), |now| rollup::step(transaction, limits, now))?;
    if pending.folded {
        latency::prune(transaction, limits.most_rows())?;
        now.map_or(Ok(()), |now| gap::prune(transaction, limits.oldest(now)))?;
    }
    let mut counted = match shares {
        Some(shares) => shares,
        None => Shares::count(transaction)?,
    };
    counted.prune(transaction, limits, now)?;
    Ok(Some(counted))
}

/// The ending of the spill file next to the database.
pub(crate) const SPILL: &str = "-spill";

#[cfg(test)]
mod tests;
