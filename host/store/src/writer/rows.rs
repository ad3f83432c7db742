//! Writes the jobs of the writer to the tables.

use super::pending::PendingWrite;
use crate::changes::Changes;
use crate::job::SettingChange;
use crate::load::journaled;
use crate::record::{Commit, Progress};
use crate::tables::history::Place;
use crate::tables::{
    alert, dependency, error, event, fleet, journal, latency, poll_error, session, setting, target, token, transition,
};
use crate::wire::{Journal, LiveWire, ScheduleWire, Snapshot, StoredPoint};
use model::{AccessChange, Event, FleetChange, FleetRecord, Kind, LatencyWindow, SequencedEvent, TargetId, Timestamp};
use rusqlite::Transaction;
use std::collections::{BTreeMap, HashMap};

/// Returns the number of a target.
pub(super) fn number(
    transaction: &Transaction<'_>,
    known: &HashMap<TargetId, i64>,
    pending: &mut PendingWrite,
    (id, kind): (&TargetId, &Kind),
) -> rusqlite::Result<i64> {
    let forgotten = pending.forgotten.contains(id);
    if let Some(num) = pending.numbers.get(id).or_else(|| known.get(id).filter(|_| !forgotten)) {
        return Ok(*num);
    }
    let num = target::number(transaction, id, kind)?;
    pending.numbers.insert(id.clone(), num);
    Ok(num)
}

/// Writes a commit of the target with this number. Returns its events.
pub(super) fn write_commit(
    transaction: &Transaction<'_>,
    num: i64,
    commit: &Commit,
    pending: &mut PendingWrite,
) -> rusqlite::Result<Vec<SequencedEvent>> {
    write_changes(transaction, num, (&commit.changes, commit.at), pending)?;
    pending.unjournaled.extend(points(num, &commit.changes.points));
    if let Some(schedule) = &commit.schedule {
        pending.version += 1;
        // Only the schedule is new; the volatile fields of the journal or the row are kept.
        let held = target::snapshot(transaction, num)?;
        let (last_report, volatile) = held.map_or((None, Vec::new()), |held| (held.last_report, held.volatile));
        let schedule = ScheduleWire::from(schedule);
        let snapshot = Snapshot { version: pending.version, schedule, last_report, volatile };
        target::write_snapshot(transaction, num, &snapshot)?;
    }
    commit.alerts.iter().try_for_each(|change| alert::apply(transaction, change))?;
    if let Some(report) = &commit.report {
        fleet::apply(transaction, &FleetChange::Record(FleetRecord::Report(report.clone())))?;
    }
    write_events(transaction, &commit.events, pending)
}

fn write_changes(
    transaction: &Transaction<'_>,
    num: i64,
    (changes, at): (&Changes, Timestamp),
    pending: &mut PendingWrite,
) -> rusqlite::Result<()> {
    let owner = || Some(num.to_string());
    if let Some(record) = &changes.target {
        target::write(transaction, num, record)?;
    }
    for record in changes.urgent.iter().chain(&changes.details) {
        dependency::write(transaction, num, record)?;
    }
    for name in &changes.forgotten {
        target::keep_slot(transaction, num, name)?;
        dependency::delete(transaction, num, name)?;
    }
    for change in &changes.transitions {
        let bytes = transition::insert(transaction, num, change, at)?;
        pending.history.push((Place::Transition, owner(), bytes));
    }
    for entry in &changes.errors {
        let bytes = error::insert(transaction, num, entry, at)?;
        pending.history.push((Place::Error, owner(), bytes));
    }
    if let Some(entry) = &changes.poll_error {
        let bytes = poll_error::insert(transaction, num, entry, at)?;
        pending.history.push((Place::PollError, owner(), bytes));
    }
    Ok(())
}

/// Writes changed settings. Returns their events.
pub(super) fn write_setting(
    transaction: &Transaction<'_>,
    change: &SettingChange,
    pending: &mut PendingWrite,
) -> rusqlite::Result<Vec<SequencedEvent>> {
    let SettingChange { values, told, at, .. } = change;
    for (key, value) in values {
        setting::set(transaction, key, value.as_ref(), *at)?;
    }
    let events: Vec<Event> = told.iter().map(|kind| Event { at: *at, kind: kind.clone() }).collect();
    write_events(transaction, &events, pending)
}

/// Writes events. Returns those that are stored, with their positions in the sequence.
pub(super) fn write_events(
    transaction: &Transaction<'_>,
    events: &[Event],
    pending: &mut PendingWrite,
) -> rusqlite::Result<Vec<SequencedEvent>> {
    let mut stored = Vec::with_capacity(events.len());
    for event in events {
        let Some((sequenced, bytes)) = event::insert(transaction, event)? else { continue };
        pending.history.push((Place::Event, event.kind.target().map(ToString::to_string), bytes));
        stored.push(sequenced);
    }
    Ok(stored)
}

fn points(num: i64, windows: &[(u32, LatencyWindow)]) -> impl Iterator<Item = (i64, StoredPoint)> {
    windows.iter().map(move |(slot, window)| (num, StoredPoint::new(*slot, window)))
}

/// Writes one row of the journal for all targets, and the details that changed since the last one.
pub(super) fn write_progress(
    transaction: &Transaction<'_>,
    known: &HashMap<TargetId, i64>,
    (progress, now): (&[Progress], Timestamp),
    pending: &mut PendingWrite,
) -> rusqlite::Result<()> {
    let snapshots = Vec::with_capacity(progress.len());
    let mut row = Journal { at: now.as_millis(), ended: false, snapshots };
    let mut measured = std::mem::take(&mut pending.unjournaled);
    for p in progress {
        let num = number(transaction, known, pending, (&p.target, &p.kind))?;
        let report = p.last_report.unwrap_or_default();
        write_changes(transaction, num, (&p.changes, report), pending)?;
        pending.version += 1;
        let snapshot = Snapshot {
            version: pending.version,
            schedule: ScheduleWire::from(&p.schedule),
            last_report: p.last_report.map(Timestamp::as_millis),
            volatile: p.volatile.iter().map(|(slot, volatile)| LiveWire::new(*slot, volatile, report)).collect(),
        };
        measured.extend(points(num, &p.changes.points));
        row.snapshots.push((num, snapshot));
    }
    journal::append(transaction, &row, &measured)?;
    pending.rows += 1;
    Ok(())
}

/// Writes the journal's content into the targets' rows and the latency blocks, and empties it. Leaves out the target
/// with the number `gone`, because that number may be assigned to another target.
pub(super) fn fold(
    transaction: &Transaction<'_>,
    gone: Option<i64>,
    pending: &mut PendingWrite,
) -> rusqlite::Result<()> {
    let journal = journaled(transaction)?;
    for (num, snapshot) in journal.snapshots.iter().filter(|(num, _)| Some(**num) != gone) {
        let held = target::snapshot(transaction, *num)?;
        if let Some(merged) = Snapshot::merged(held, Some(snapshot)) {
            target::write_snapshot(transaction, *num, &merged)?;
        }
    }
    let mut blocks: BTreeMap<(i64, i64), Vec<StoredPoint>> = BTreeMap::new();
    let points = journal.points.into_iter().chain(std::mem::take(&mut pending.unjournaled));
    for (num, point) in points.filter(|(num, _)| Some(*num) != gone) {
        blocks.entry((point.hour(), num)).or_default().push(point);
    }
    for ((hour, num), block) in blocks {
        latency::append(transaction, num, hour, block)?;
    }
    journal::clear(transaction)?;
    (pending.rows, pending.folded) = (0, true);
    Ok(())
}

/// Writes a change of the tokens and sessions.
pub(super) fn write_access(transaction: &Transaction<'_>, change: &AccessChange) -> rusqlite::Result<()> {
    match change {
        AccessChange::First(hash, now) => token::set_admin(transaction, hash, *now),
        AccessChange::Token(named) => token::keep(transaction, named),
        AccessChange::Revoked(hash) => token::delete(transaction, hash),
        AccessChange::Session(begun) => session::keep(transaction, begun),
        AccessChange::SessionEnded(hash) => session::end(transaction, hash),
    }
}
