//! The one writer: a thread that commits what it is handed, many at a time.
//!
//! Handing something in never waits. What may pile up is bounded by whoever hands in: at most five results of each target
//! (the scheduler's back-pressure), one flush of what merely continued, and the queue's length is a gauge.

mod rows;

use crate::open::WriterState;
use crate::record::{Acknowledge, Commit, Committed, Progress};
use crate::wire::{PointWire, Snapshot};
use model::{Event, TargetId, Timestamp};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Commits that share a transaction.
const GROUP: usize = 512;
/// Rows of the journal before they are folded: about half an hour.
const FOLD: u64 = 64;
/// Rows that one pass of pruning takes from each history, so that no transaction is long.
const PRUNED: i64 = 50_000;
/// A failed transaction is tried again after this, doubling to the second.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(10);
/// How often a failed transaction is tried again once the host ends.
const LAST_TRIES: u32 = 20;

/// How history is bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub days: u32,
    pub rows: u64,
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

enum Job {
    Commit(Box<Commit>),
    Event(Event),
    Progress(Vec<Progress>, Timestamp),
    Forget(TargetId, Timestamp),
    Token([u8; 32], Timestamp),
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
    gauges: Gauges,
}

/// Settings that are to be kept, or forgotten where they have no value.
struct SettingChange {
    values: Vec<(String, Option<String>)>,
    at: Timestamp,
    /// Told when it is on disk.
    done: SyncSender<()>,
}

/// Where results go.
pub struct Writer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(crate) fn start(
        connection: Connection,
        state: WriterState,
        numbers: HashMap<TargetId, i64>,
        limits: Limits,
        acknowledge: Acknowledge,
    ) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut desk = Desk {
            connection,
            numbers,
            version: state.version,
            snapshots: state.snapshots,
            points: state.points,
            loose: Vec::new(),
            journal_rows: state.journal_rows,
            limits,
        };
        let own = queue.clone();
        let run = move || run(&own, &mut desk, &acknowledge);
        let thread = thread::Builder::new().name("store".to_owned()).spawn(run)?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Commits what changed for a target.
    pub fn commit(&self, commit: Commit) {
        self.push(Job::Commit(Box::new(commit)));
    }

    /// Commits an event that is about no target's poll.
    pub fn event(&self, event: Event) {
        self.push(Job::Event(event));
    }

    /// Writes what merely continued; `now` is what history's age is counted from.
    pub fn progress(&self, progress: Vec<Progress>, now: Timestamp) {
        self.queue.gauges.flushes.fetch_add(1, Ordering::Relaxed);
        self.push(Job::Progress(progress, now));
    }

    /// Notes that polls may happen from now on.
    pub(crate) fn begin(&self, now: Timestamp) {
        self.push(Job::Begin(now));
    }

    /// Keeps the hash of an admin token.
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

fn run(queue: &Queue, desk: &mut Desk, acknowledge: &Acknowledge) {
    let gauges = &queue.gauges;
    loop {
        let group = next_group(queue);
        let finish = group.iter().any(|job| matches!(job, Job::Finish(_) | Job::Abandon));
        let mut last_tries = 0;
        while let Err(error) = desk.write(&group).map(|committed| committed.into_iter().for_each(acknowledge)) {
            gauges.failures.fetch_add(1, Ordering::Relaxed);
            let failed = gauges.failing.fetch_add(1, Ordering::Relaxed) + 1;
            if queue.ending.load(Ordering::Relaxed) {
                last_tries += 1;
            }
            if last_tries > LAST_TRIES {
                tracing::error!("the database did not take the last {} results ({error}): they are lost", group.len());
                return;
            }
            let longest = if last_tries > 0 { RETRY } else { RETRY_LONGEST };
            let wait = RETRY.saturating_mul(1 << failed.min(10)).min(longest);
            tracing::error!("the database did not take {} results ({error}); trying again in {wait:?}", group.len());
            thread::sleep(wait);
        }
        for job in &group {
            if let Job::Setting(change) = job {
                // Whoever asked may have left.
                let _ = change.done.try_send(());
            }
        }
        let flushes = group.iter().filter(|job| matches!(job, Job::Progress(..))).count();
        gauges.flushes.fetch_sub(flushes as u64, Ordering::Relaxed);
        gauges.transactions.fetch_add(1, Ordering::Relaxed);
        gauges.failing.store(0, Ordering::Relaxed);
        if finish {
            return;
        }
    }
}

fn next_group(queue: &Queue) -> Vec<Job> {
    let mut jobs = queue.jobs.lock().unwrap_or_else(PoisonError::into_inner);
    while jobs.is_empty() {
        jobs = queue.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
    }
    let count = jobs.len().min(GROUP);
    let group = jobs.drain(..count).collect();
    queue.gauges.queued.store(jobs.len() as u64, Ordering::Relaxed);
    group
}

/// The writer's connection and what it remembers.
struct Desk {
    connection: Connection,
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
    rows: u64,
    folded: bool,
}

impl Desk {
    fn write(&mut self, group: &[Job]) -> rusqlite::Result<Vec<Committed>> {
        let transaction = self.connection.transaction()?;
        let mut draft = Draft { version: self.version, loose: self.loose.clone(), ..Draft::default() };
        let mut committed = Vec::with_capacity(group.len());
        let mut pruned_to = None;
        let (mut ended, mut forgotten_at) = (None, None);
        for job in group {
            match job {
                Job::Commit(commit) => {
                    let num = rows::number(&transaction, &self.numbers, &mut draft, (&commit.target, &commit.kind))?;
                    committed.push(rows::write_commit(&transaction, num, commit, &mut draft)?);
                }
                Job::Event(event) => {
                    let events = rows::write_events(&transaction, std::slice::from_ref(event))?;
                    committed.push(Committed { target: None, events });
                }
                Job::Progress(progress, now) => {
                    pruned_to = Some(*now);
                    rows::write_progress(&transaction, &self.numbers, (progress, *now), &mut draft)?;
                }
                Job::Token(hash, now) => {
                    let sql = "INSERT OR IGNORE INTO token (hash, scope, created_at) VALUES (?1, 'admin', ?2)";
                    transaction.execute(sql, params![hash, now.as_millis()])?;
                }
                Job::Setting(change) => {
                    let events = rows::write_setting(&transaction, change)?;
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
            if let Some(at) = ended.or(pruned_to).or(forgotten_at) {
                rows::write_marker(&transaction, at, ended.is_some())?;
            }
            if let Some(now) = pruned_to {
                rows::prune_latency(&transaction, self.limits, now)?;
            }
        }
        if let Some(now) = pruned_to {
            rows::prune_history(&transaction, self.limits, now)?;
        }
        transaction.commit()?;
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

#[cfg(test)]
mod tests;
