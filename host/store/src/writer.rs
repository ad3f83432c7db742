//! The one writer: a thread that commits what it is handed, many at a time.
//!
//! Handing something in never waits. What may pile up is bounded by whoever hands in: at most five results of each target
//! (the scheduler's back-pressure), one flush of what merely continued, and the queue's length is a gauge.

use crate::changes::{Changes, TargetFacts};
use crate::history::LatencyPoint;
use crate::known::Facts;
use crate::open::WriterState;
use crate::record::{Acknowledge, Commit, Committed, Progress, StoredEvent};
use crate::schema::HISTORY;
use crate::wire::{EventWire, Journal, LiveWire, PointWire, ScheduleWire, Snapshot};
use model::{Event, Kind, TargetId, Timestamp};
use rusqlite::{Connection, Transaction, params};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    Forget(TargetId),
    Token([u8; 32], Timestamp),
    Finish,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    /// The host ends: a database that takes nothing is not waited for any longer.
    ending: AtomicBool,
    more: Condvar,
    gauges: Gauges,
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

    /// Keeps the hash of an admin token.
    pub fn admin_token(&self, hash: [u8; 32], now: Timestamp) {
        self.push(Job::Token(hash, now));
    }

    /// Forgets a target and everything that is known of it; its history goes by age.
    pub fn forget(&self, target: TargetId) {
        self.push(Job::Forget(target));
    }

    /// Counters for whoever watches the host.
    pub fn gauges(&self) -> &Gauges {
        &self.queue.gauges
    }

    /// Writes everything that was handed in, folds the journal, and ends.
    pub fn finish(&self) {
        self.queue.ending.store(true, Ordering::Relaxed);
        self.push(Job::Finish);
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
    fn drop(&mut self) {
        self.finish();
    }
}

fn run(queue: &Queue, desk: &mut Desk, acknowledge: &Acknowledge) {
    let gauges = &queue.gauges;
    loop {
        let group = next_group(queue);
        let finish = group.iter().any(|job| matches!(job, Job::Finish));
        let mut last_tries = 0;
        while let Err(error) = desk.write(&group, finish).map(|committed| committed.into_iter().for_each(acknowledge)) {
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
    fn write(&mut self, group: &[Job], finish: bool) -> rusqlite::Result<Vec<Committed>> {
        let transaction = self.connection.transaction()?;
        let mut draft = Draft { version: self.version, loose: self.loose.clone(), ..Draft::default() };
        let mut committed = Vec::with_capacity(group.len());
        let mut pruned_to = None;
        for job in group {
            match job {
                Job::Commit(commit) => {
                    let num = number(&transaction, &self.numbers, &mut draft, (&commit.target, &commit.kind))?;
                    committed.push(write_commit(&transaction, num, commit, &mut draft)?);
                }
                Job::Event(event) => {
                    let events = write_events(&transaction, std::slice::from_ref(event))?;
                    committed.push(Committed { target: None, events });
                }
                Job::Progress(progress, now) => {
                    pruned_to = Some(*now);
                    write_progress(&transaction, &self.numbers, progress, &mut draft)?;
                }
                Job::Token(hash, now) => {
                    let sql = "INSERT OR IGNORE INTO token (hash, scope, created_at) VALUES (?1, 'admin', ?2)";
                    transaction.execute(sql, params![hash, now.as_millis()])?;
                }
                Job::Forget(target) => {
                    forget(&transaction, target)?;
                    let num = draft.numbers.remove(target).or_else(|| self.numbers.get(target).copied());
                    draft.snapshots.retain(|held, _| Some(*held) != num);
                    draft.forgotten.push(target.clone());
                }
                Job::Finish => {}
            }
        }
        if self.journal_rows + draft.rows >= FOLD || finish {
            let snapshots = self.snapshots.iter().chain(&draft.snapshots);
            fold(&transaction, snapshots, self.points.iter().chain(&draft.points).chain(&draft.loose))?;
            draft.folded = true;
            draft.loose.clear();
            if let Some(now) = pruned_to {
                prune_latency(&transaction, self.limits, now)?;
            }
        }
        if let Some(now) = pruned_to {
            prune_history(&transaction, self.limits, now)?;
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

fn number(
    transaction: &Transaction<'_>,
    known: &HashMap<TargetId, i64>,
    draft: &mut Draft,
    (target, kind): (&TargetId, &Kind),
) -> rusqlite::Result<i64> {
    let forgotten = draft.forgotten.contains(target);
    if let Some(num) = draft.numbers.get(target).or_else(|| known.get(target).filter(|_| !forgotten)) {
        return Ok(*num);
    }
    transaction
        .prepare_cached(
            "INSERT INTO target (id, kind) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET kind = excluded.kind",
        )?
        .execute(params![target.as_str(), kind.as_str()])?;
    let num = transaction
        .prepare_cached("SELECT num FROM target WHERE id = ?1")?
        .query_row([target.as_str()], |row| row.get(0))?;
    draft.numbers.insert(target.clone(), num);
    Ok(num)
}

fn write_commit(
    transaction: &Transaction<'_>,
    num: i64,
    commit: &Commit,
    draft: &mut Draft,
) -> rusqlite::Result<Committed> {
    write_changes(transaction, num, &commit.changes, commit.at)?;
    draft.loose.extend(points(num, &commit.changes.points));
    if let Some(schedule) = &commit.schedule {
        draft.version += 1;
        // Only the schedule is new; what continues of the dependencies stays as the journal or the row has it.
        let held: Option<Vec<u8>> = transaction
            .prepare_cached("SELECT snapshot FROM target WHERE num = ?1")?
            .query_row([num], |row| row.get(0))?;
        let held = held.and_then(|bytes| postcard::from_bytes::<Snapshot>(&bytes).ok());
        let (last_report, live) = held.map_or((None, Vec::new()), |held| (held.last_report, held.live));
        let snapshot = Snapshot { version: draft.version, schedule: ScheduleWire::from(schedule), last_report, live };
        write_snapshot(transaction, num, &snapshot)?;
    }
    let events = write_events(transaction, &commit.events)?;
    Ok(Committed { target: Some(commit.target.clone()), events })
}

fn write_changes(transaction: &Transaction<'_>, num: i64, changes: &Changes, at: Timestamp) -> rusqlite::Result<()> {
    let at = at.as_millis();
    if let Some(facts) = &changes.target {
        write_target(transaction, num, facts)?;
    }
    for facts in changes.urgent.iter().chain(&changes.details) {
        write_dependency(transaction, num, facts)?;
    }
    for name in &changes.forgotten {
        transaction
            .prepare_cached("DELETE FROM dependency WHERE target = ?1 AND name = ?2")?
            .execute(params![num, name])?;
    }
    for t in &changes.transitions {
        transaction
            .prepare_cached(
                "INSERT INTO transition (target, dependency, previous, current, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![num, t.dependency, t.previous.as_str(), t.current.as_str(), at])?;
    }
    for e in &changes.errors {
        transaction
            .prepare_cached(
                "INSERT INTO error_history (target, dependency, error, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![num, e.dependency, e.error.as_ref().map(model::Json::as_str), e.message, at])?;
    }
    if let Some(entry) = &changes.poll_error {
        let failure = entry.failure.as_ref();
        transaction
            .prepare_cached(
                "INSERT INTO poll_error_history (target, category, code, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![num, failure.map(|f| f.0.as_str()), failure.map(|f| &f.1), failure.map(|f| &f.2), at])?;
    }
    Ok(())
}

fn write_target(transaction: &Transaction<'_>, num: i64, facts: &TargetFacts) -> rusqlite::Result<()> {
    let warnings = serde_json::Value::from(facts.warnings.clone()).to_string();
    let failure = facts.failure.as_ref();
    transaction
        .prepare_cached(
            "UPDATE target SET warnings = ?2, failure_category = ?3, failure_code = ?4, failure_message = ?5,
             failure_at = ?6, stale_since = ?7 WHERE num = ?1",
        )?
        .execute(params![
            num,
            warnings,
            failure.map(|f| f.category.as_str()),
            failure.map(|f| &f.code),
            failure.map(|f| &f.message),
            failure.map(|f| f.at.as_millis()),
            facts.stale_since.map(Timestamp::as_millis),
        ])
        .map(drop)
}

fn write_dependency(transaction: &Transaction<'_>, num: i64, facts: &Arc<Facts>) -> rusqlite::Result<()> {
    let reported = &facts.reported;
    let json = |json: &Option<model::Json>| json.as_ref().map(|json| json.as_str().to_owned());
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO dependency (target, slot, name, canonical_name, title, type, status, skipped, code,
             description, impact, error, error_message, error_state, contact, check_details, parent, first_seen,
             last_status_change, missing_since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        )?
        .execute(params![
            num,
            facts.slot,
            reported.name,
            facts.canonical,
            reported.title,
            reported.kind,
            reported.status.as_str(),
            reported.skipped,
            reported.code,
            reported.description,
            reported.impact,
            json(&reported.error),
            reported.error_message,
            json(&facts.error_state),
            json(&reported.contact),
            json(&reported.check_details),
            reported.parent,
            facts.first_seen.as_millis(),
            facts.last_status_change.map(Timestamp::as_millis),
            facts.missing_since.map(Timestamp::as_millis),
        ])
        .map(drop)
}

fn write_events(transaction: &Transaction<'_>, events: &[Event]) -> rusqlite::Result<Vec<StoredEvent>> {
    let mut stored = Vec::with_capacity(events.len());
    for event in events {
        let Some(wire) = EventWire::of(&event.kind) else { continue };
        let body =
            serde_json::to_string(&wire).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let target = event.kind.target().map(TargetId::as_str);
        transaction
            .prepare_cached("INSERT INTO event (at, name, target, body) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![event.at.as_millis(), event.kind.name(), target, body])?;
        stored.push(StoredEvent { sequence: transaction.last_insert_rowid(), event: event.clone() });
    }
    Ok(stored)
}

fn points(num: i64, points: &[(u32, LatencyPoint)]) -> impl Iterator<Item = (i64, u32, PointWire)> {
    points.iter().map(move |&(slot, point)| (num, slot, point.into()))
}

/// One row for everything that continued, and the details that changed meanwhile.
fn write_progress(
    transaction: &Transaction<'_>,
    known: &HashMap<TargetId, i64>,
    progress: &[Progress],
    draft: &mut Draft,
) -> rusqlite::Result<()> {
    let points_of_commits = std::mem::take(&mut draft.loose);
    let mut journal = Journal { snapshots: Vec::with_capacity(progress.len()), points: points_of_commits };
    for p in progress {
        let num = number(transaction, known, draft, (&p.target, &p.kind))?;
        write_changes(transaction, num, &p.changes, p.last_report.unwrap_or_default())?;
        draft.version += 1;
        let report = p.last_report.unwrap_or_default();
        let snapshot = Snapshot {
            version: draft.version,
            schedule: ScheduleWire::from(&p.schedule),
            last_report: p.last_report.map(Timestamp::as_millis),
            live: p.live.iter().map(|(slot, live)| LiveWire::new(*slot, live, report)).collect(),
        };
        journal.points.extend(points(num, &p.changes.points));
        draft.snapshots.insert(num, snapshot.clone());
        journal.snapshots.push((num, snapshot));
    }
    transaction.prepare_cached("INSERT INTO journal (body) VALUES (?1)")?.execute([encode(&journal)?])?;
    draft.points.append(&mut journal.points);
    draft.rows += 1;
    Ok(())
}

fn encode<T: serde::Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn write_snapshot(transaction: &Transaction<'_>, num: i64, snapshot: &Snapshot) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE target SET snapshot = ?2 WHERE num = ?1")?
        .execute(params![num, encode(snapshot)?])
        .map(drop)
}

/// Writes what the journal holds where it belongs, and empties it.
fn fold<'a>(
    transaction: &Transaction<'_>,
    snapshots: impl Iterator<Item = (&'a i64, &'a Snapshot)>,
    points: impl Iterator<Item = &'a (i64, u32, PointWire)>,
) -> rusqlite::Result<()> {
    let newest: BTreeMap<i64, &Snapshot> = snapshots.map(|(num, snapshot)| (*num, snapshot)).collect();
    for (num, snapshot) in newest {
        let held: Option<Vec<u8>> = transaction
            .prepare_cached("SELECT snapshot FROM target WHERE num = ?1")?
            .query_map([num], |row| row.get(0))?
            .next()
            .transpose()?
            .flatten();
        let held = held.and_then(|bytes| postcard::from_bytes::<Snapshot>(&bytes).ok());
        if let Some(merged) = Snapshot::merged(held, Some(snapshot)) {
            write_snapshot(transaction, num, &merged)?;
        }
    }
    let mut blocks: BTreeMap<(i64, i64), Vec<(u32, PointWire)>> = BTreeMap::new();
    for (num, slot, point) in points {
        blocks.entry((point.hour(), *num)).or_default().push((*slot, *point));
    }
    for ((hour, num), mut block) in blocks {
        let held: Option<Vec<u8>> = transaction
            .prepare_cached("SELECT points FROM latency_block WHERE hour = ?1 AND target = ?2")?
            .query_map([hour, num], |row| row.get(0))?
            .next()
            .transpose()?;
        let mut all: Vec<(u32, PointWire)> =
            held.and_then(|bytes| postcard::from_bytes(&bytes).ok()).unwrap_or_default();
        all.append(&mut block);
        transaction
            .prepare_cached("INSERT OR REPLACE INTO latency_block (hour, target, points) VALUES (?1, ?2, ?3)")?
            .execute(params![hour, num, encode(&all)?])?;
    }
    transaction.execute("DELETE FROM journal", []).map(drop)
}

fn oldest_kept(limits: Limits, now: Timestamp) -> i64 {
    now.as_millis() - i64::from(limits.days) * 24 * 3600 * 1000
}

fn most_rows(limits: Limits) -> i64 {
    i64::try_from(limits.rows).unwrap_or(i64::MAX)
}

/// Takes away history that is too old or too much, a little at a time. Only the oldest rows are looked at: ids rise with
/// time.
fn prune_history(transaction: &Transaction<'_>, limits: Limits, now: Timestamp) -> rusqlite::Result<()> {
    for (table, id) in HISTORY {
        let sql = format!(
            "DELETE FROM {table} WHERE {id} IN (SELECT {id} FROM {table} ORDER BY {id} LIMIT ?3)
             AND ({id} <= (SELECT max({id}) FROM {table}) - ?1 OR at < ?2)
             AND EXISTS (SELECT 1 FROM (SELECT {id} AS first, at FROM {table} ORDER BY {id} LIMIT 1)
                         WHERE first <= (SELECT max({id}) FROM {table}) - ?1 OR at < ?2)"
        );
        transaction.prepare_cached(&sql)?.execute(params![most_rows(limits), oldest_kept(limits, now), PRUNED])?;
    }
    Ok(())
}

fn prune_latency(transaction: &Transaction<'_>, limits: Limits, now: Timestamp) -> rusqlite::Result<()> {
    let hour = oldest_kept(limits, now) / 3_600_000;
    transaction.execute("DELETE FROM latency_block WHERE hour < ?1", [hour])?;
    let blocks: i64 = transaction.query_row("SELECT count(*) FROM latency_block", [], |row| row.get(0))?;
    if blocks > most_rows(limits) {
        let sql = "DELETE FROM latency_block WHERE (hour, target) IN
                   (SELECT hour, target FROM latency_block ORDER BY hour LIMIT ?1)";
        transaction.execute(sql, [blocks - most_rows(limits)])?;
    }
    Ok(())
}

fn forget(transaction: &Transaction<'_>, target: &TargetId) -> rusqlite::Result<()> {
    let num = "(SELECT num FROM target WHERE id = ?1)";
    for table in ["dependency", "transition", "error_history", "poll_error_history", "latency_block"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE target = {num}"), [target.as_str()])?;
    }
    transaction.execute("DELETE FROM target WHERE id = ?1", [target.as_str()]).map(drop)
}

#[cfg(test)]
mod tests;
