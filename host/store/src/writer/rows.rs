//! What the writer's transactions say.

use super::{Draft, Limits, SettingChange};
use crate::changes::{Changes, TargetFacts};
use crate::history::LatencyPoint;
use crate::known::Facts;
use crate::record::{Commit, Committed, Progress, StoredEvent};
use crate::wire::{EventWire, Journal, LiveWire, PointWire, ScheduleWire, Snapshot};
use model::{Event, EventKind, Kind, TargetId, Timestamp};
use rusqlite::{Transaction, params};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Places in [`crate::schema::HISTORY`].
const EVENT: usize = 0;
const TRANSITION: usize = 1;
const ERROR: usize = 2;
const POLL_ERROR: usize = 3;

pub(super) fn number(
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

pub(super) fn write_commit(
    transaction: &Transaction<'_>,
    num: i64,
    commit: &Commit,
    draft: &mut Draft,
) -> rusqlite::Result<Committed> {
    write_changes(transaction, num, &commit.changes, commit.at, draft)?;
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
    let events = write_events(transaction, &commit.events, draft)?;
    Ok(Committed { target: Some(commit.target.clone()), events })
}

pub(super) fn write_changes(
    transaction: &Transaction<'_>,
    num: i64,
    changes: &Changes,
    at: Timestamp,
    draft: &mut Draft,
) -> rusqlite::Result<()> {
    let at = at.as_millis();
    let owner = || Some(num.to_string());
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
        draft.history.push((TRANSITION, owner(), t.dependency.len()));
    }
    for e in &changes.errors {
        transaction
            .prepare_cached(
                "INSERT INTO error_history (target, dependency, error, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![num, e.dependency, e.error.as_ref().map(model::Json::as_str), e.message, at])?;
        let texts = [e.error.as_ref().map(|error| error.as_str().len()), e.message.as_ref().map(String::len)];
        draft.history.push((ERROR, owner(), e.dependency.len() + texts.into_iter().flatten().sum::<usize>()));
    }
    if let Some(entry) = &changes.poll_error {
        let failure = entry.failure.as_ref();
        transaction
            .prepare_cached(
                "INSERT INTO poll_error_history (target, category, code, message, at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![num, failure.map(|f| f.0.as_str()), failure.map(|f| &f.1), failure.map(|f| &f.2), at])?;
        draft.history.push((POLL_ERROR, owner(), failure.map_or(0, |failure| failure.2.len())));
    }
    Ok(())
}

pub(super) fn write_target(transaction: &Transaction<'_>, num: i64, facts: &TargetFacts) -> rusqlite::Result<()> {
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

pub(super) fn write_dependency(transaction: &Transaction<'_>, num: i64, facts: &Arc<Facts>) -> rusqlite::Result<()> {
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

pub(super) fn write_setting(
    transaction: &Transaction<'_>,
    change: &SettingChange,
    draft: &mut Draft,
) -> rusqlite::Result<Vec<StoredEvent>> {
    let SettingChange { values, at, .. } = change;
    let mut events = Vec::new();
    for (key, value) in values {
        match value {
            Some(value) => {
                let sql = "INSERT INTO setting (key, value, changed_at) VALUES (?1, ?2, ?3)
                           ON CONFLICT (key) DO UPDATE SET value = excluded.value, changed_at = excluded.changed_at";
                transaction.prepare_cached(sql)?.execute(params![key, value, at.as_millis()])?;
            }
            None => drop(transaction.prepare_cached("DELETE FROM setting WHERE key = ?1")?.execute([key])?),
        }
        let kind = EventKind::SettingsChanged { what: key.clone(), value: value.clone() };
        events.push(Event { at: *at, kind });
    }
    write_events(transaction, &events, draft)
}

pub(super) fn write_events(
    transaction: &Transaction<'_>,
    events: &[Event],
    draft: &mut Draft,
) -> rusqlite::Result<Vec<StoredEvent>> {
    let mut stored = Vec::with_capacity(events.len());
    for event in events {
        let Some(wire) = EventWire::of(&event.kind) else { continue };
        let body =
            serde_json::to_string(&wire).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let target = event.kind.target().map(TargetId::as_str);
        transaction
            .prepare_cached("INSERT INTO event (at, name, target, body) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![event.at.as_millis(), event.kind.name(), target, body])?;
        draft.history.push((EVENT, target.map(str::to_owned), body.len()));
        stored.push(StoredEvent { sequence: transaction.last_insert_rowid(), event: event.clone() });
    }
    Ok(stored)
}

pub(super) fn points(num: i64, points: &[(u32, LatencyPoint)]) -> impl Iterator<Item = (i64, u32, PointWire)> {
    points.iter().map(move |&(slot, point)| (num, slot, point.into()))
}

/// One row for everything that continued, and the details that changed meanwhile.
pub(super) fn write_progress(
    transaction: &Transaction<'_>,
    known: &HashMap<TargetId, i64>,
    (progress, now): (&[Progress], Timestamp),
    draft: &mut Draft,
) -> rusqlite::Result<()> {
    let points_of_commits = std::mem::take(&mut draft.loose);
    let mut journal = Journal {
        at: now.as_millis(),
        ended: false,
        snapshots: Vec::with_capacity(progress.len()),
        points: points_of_commits,
    };
    for p in progress {
        let num = number(transaction, known, draft, (&p.target, &p.kind))?;
        write_changes(transaction, num, &p.changes, p.last_report.unwrap_or_default(), draft)?;
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

/// A row of the journal that only tells the time: polls may have happened after it, unless the host ended with it.
pub(super) fn write_marker(transaction: &Transaction<'_>, now: Timestamp, ended: bool) -> rusqlite::Result<()> {
    let marker = Journal { at: now.as_millis(), ended, ..Journal::default() };
    transaction.prepare_cached("INSERT INTO journal (body) VALUES (?1)")?.execute([encode(&marker)?]).map(drop)
}

pub(super) fn encode<T: serde::Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(super) fn write_snapshot(transaction: &Transaction<'_>, num: i64, snapshot: &Snapshot) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE target SET snapshot = ?2 WHERE num = ?1")?
        .execute(params![num, encode(snapshot)?])
        .map(drop)
}

/// Writes what the journal holds where it belongs, and empties it.
pub(super) fn fold<'a>(
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

pub(super) fn oldest_kept(limits: Limits, now: Timestamp) -> i64 {
    now.as_millis() - i64::from(limits.days) * 24 * 3600 * 1000
}

pub(super) fn most_rows(limits: Limits) -> i64 {
    i64::try_from(limits.rows).unwrap_or(i64::MAX)
}

pub(super) fn prune_latency(
    transaction: &Transaction<'_>,
    limits: Limits,
    now: Option<Timestamp>,
) -> rusqlite::Result<()> {
    if let Some(now) = now {
        let hour = oldest_kept(limits, now) / 3_600_000;
        transaction.execute("DELETE FROM latency_block WHERE hour < ?1", [hour])?;
    }
    let blocks: i64 = transaction.query_row("SELECT count(*) FROM latency_block", [], |row| row.get(0))?;
    if blocks > most_rows(limits) {
        let sql = "DELETE FROM latency_block WHERE (hour, target) IN
                   (SELECT hour, target FROM latency_block ORDER BY hour LIMIT ?1)";
        transaction.execute(sql, [blocks - most_rows(limits)])?;
    }
    Ok(())
}

pub(super) fn forget(transaction: &Transaction<'_>, target: &TargetId) -> rusqlite::Result<()> {
    let num = "(SELECT num FROM target WHERE id = ?1)";
    for table in ["dependency", "transition", "error_history", "poll_error_history", "latency_block"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE target = {num}"), [target.as_str()])?;
    }
    transaction.execute("DELETE FROM target WHERE id = ?1", [target.as_str()]).map(drop)
}
