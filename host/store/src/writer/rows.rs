//! Writes the jobs of the writer to the tables.

use super::newest::Newest;
use super::pending::{Fold, Known, PendingWrite};
use crate::changes::Changes;
use crate::job::SettingChange;
use crate::load::journaled;
use crate::record::{Commit, Progress};
use crate::tables::history::Place;
use crate::tables::{
    alert, dependency, error, event, fleet, journal, latency, plugin_value, poll_error, session, setting, target,
    token, transition,
};
use crate::wire::{LiveWire, Rest, Row, ScheduleWire, Snapshot, StoredPoint, TargetState};
use model::{AccessChange, Event, FleetChange, FleetRecord, Kind, LatencyWindow, SequencedEvent, TargetId, Timestamp};
use rusqlite::Transaction;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The maximum number of targets in a row that has their newest states. It bounds the memory that a row needs.
const FOLDED: usize = 2_000;

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
    let num = target::number(transaction, pending.next_number, id, kind)?;
    pending.next_number = pending.next_number.max(num + 1);
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
    write_values(transaction, num, &commit.kind, &commit.changes)?;
    pending.unjournaled.extend(points(&commit.changes.points).map(|point| (num, point)));
    if let Some(schedule) = &commit.schedule {
        pending.version += 1;
        // Only the schedule is new: the journal has the volatile fields.
        let schedule = ScheduleWire::from(schedule);
        let snapshot = Snapshot { version: pending.version, schedule, last_report: None, volatile: Vec::new() };
        target::write_snapshot(transaction, num, &snapshot)?;
    }
    commit.alerts.iter().try_for_each(|change| alert::apply(transaction, change))?;
    if let Some(report) = &commit.report {
        fleet::apply(transaction, &FleetChange::Record(FleetRecord::Report(report.clone())))?;
    }
    write_events(transaction, &commit.events, pending)
}

/// Writes what the plugin of a kind stores.
fn write_values(transaction: &Transaction<'_>, num: i64, kind: &Kind, changes: &Changes) -> rusqlite::Result<()> {
    let values = changes.values.as_ref();
    values.map_or(Ok(()), |values| plugin_value::write(transaction, num, kind.as_str(), values))
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

fn points(windows: &[(u32, LatencyWindow)]) -> impl Iterator<Item = StoredPoint> {
    windows.iter().map(|(slot, window)| StoredPoint::new(*slot, window))
}

/// Returns the newest state of a target in the journal.
fn newest<'a>(known: &'a Known<'_>, pending: &'a PendingWrite, num: i64) -> Option<&'a Newest> {
    pending.newest.get(&num).map_or_else(|| known.newest.get(&num), Option::as_ref)
}

/// Appends a row that only records the time: polls may have happened after it.
pub(super) fn mark(transaction: &Transaction<'_>, now: Timestamp, pending: &mut PendingWrite) -> rusqlite::Result<()> {
    append(transaction, Row { at: now.as_millis(), ..Row::default() }, pending)
}

/// Appends a row to the journal.
fn append(transaction: &Transaction<'_>, row: Row, pending: &mut PendingWrite) -> rusqlite::Result<()> {
    write_at(transaction, pending.place + 1, row, pending)
}

/// Writes a row with the next versions, after which all rows at later places are leftovers.
fn write_at(
    transaction: &Transaction<'_>,
    place: u32,
    mut row: Row,
    pending: &mut PendingWrite,
) -> rusqlite::Result<()> {
    row.first = pending.version + 1;
    (pending.version, pending.place) = (row.last(), place);
    journal::write(transaction, place, &row)
}

/// Writes one row of the journal for all targets, and the details that changed since the last one.
pub(super) fn write_progress(
    transaction: &Transaction<'_>,
    known: &Known<'_>,
    (progress, now): (&[Progress], Timestamp),
    pending: &mut PendingWrite,
) -> rusqlite::Result<()> {
    let numbered = progress.iter().map(|p| Ok((number(transaction, known.numbers, pending, (&p.target, &p.kind))?, p)));
    let mut numbered = numbered.collect::<rusqlite::Result<Vec<_>>>()?;
    numbered.sort_unstable_by_key(|(num, _)| *num);
    let mut row = Row { at: now.as_millis(), ..Row::default() };
    let mut waiting: BTreeMap<i64, Vec<StoredPoint>> = BTreeMap::new();
    for (num, point) in std::mem::take(&mut pending.unjournaled) {
        waiting.entry(num).or_default().push(point);
    }
    for ((num, p), version) in numbered.into_iter().zip(pending.version + 1..) {
        let report = p.last_report.unwrap_or_default();
        write_changes(transaction, num, (&p.changes, report), pending)?;
        write_values(transaction, num, &p.kind, &p.changes)?;
        let mut rest = ScheduleWire::from(&p.schedule);
        let moving = rest.split();
        let lives: Vec<LiveWire> =
            p.volatile.iter().map(|(slot, volatile)| LiveWire::new(*slot, volatile, report)).collect();
        let mut state = Newest::of(version, &rest, &lives)?;
        let before = newest(known, pending, num);
        let single: HashMap<u32, u32> =
            lives.iter().filter_map(|live| live.single().map(|(window, _)| (live.slot, window))).collect();
        // The journal has the point as the single window before that of this row.
        let is_held = |point: &StoredPoint| {
            before.is_some_and(|before| before.has_point(point))
                && single.get(&point.slot).is_some_and(|window| *window != point.point.window)
        };
        let completed = waiting.remove(&num).into_iter().flatten().chain(points(&p.changes.points));
        let (held, written): (Vec<_>, Vec<_>) = completed.partition(is_held);
        row.latencies.points.extend(written.into_iter().map(|point| (num, point)));
        let rest = match before.filter(|before| before.has_rest_of(&state)) {
            Some(before) => {
                state.version = before.version;
                Rest::Of(before.version)
            }
            None => Rest::New(rest),
        };
        let completed: BTreeSet<u32> = held.iter().map(|point| point.slot).collect();
        let last_report = p.last_report.map(Timestamp::as_millis);
        row.push(TargetState { num, moving, last_report, rest, lives }, |live| completed.contains(&live.slot));
        pending.newest.insert(num, Some(state));
    }
    let rest = waiting.into_iter().flat_map(|(num, points)| points.into_iter().map(move |point| (num, point)));
    row.latencies.points.extend(rest);
    append(transaction, row, pending)
}

/// Folds the journal: writes its latency points of complete hours into the latency blocks, and the newest state of each
/// target into its first rows.
pub(super) fn fold(
    transaction: &Transaction<'_>,
    known: &Known<'_>,
    Fold { at, ended, incomplete }: Fold,
    pending: &mut PendingWrite,
) -> rusqlite::Result<()> {
    let mut journal = journaled(transaction)?;
    journal.points.append(&mut pending.unjournaled);
    journal.settle();
    let targets = target::snapshots(transaction)?;
    let mut later: BTreeMap<i64, Vec<StoredPoint>> = BTreeMap::new();
    let mut blocks: BTreeMap<(i64, i64), Vec<StoredPoint>> = BTreeMap::new();
    let is_present = |num: &i64| targets.binary_search_by_key(num, |(num, _)| *num).is_ok();
    for (num, point) in journal.points.into_iter().filter(|(num, _)| is_present(num)) {
        if point.hour() < incomplete {
            blocks.entry((point.hour(), num)).or_default().push(point);
        } else {
            later.entry(num).or_default().push(point);
        }
    }
    for ((hour, num), block) in blocks {
        latency::append(transaction, num, hour, block)?;
    }
    // Targets without a state in the journal must not refer to one.
    let held: Vec<i64> = known.newest.keys().chain(pending.newest.keys()).copied().collect();
    pending.newest.extend(held.into_iter().map(|num| (num, None)));
    let mut place = 0;
    for targets in targets.chunks(FOLDED) {
        let mut row = Row { at: at.as_millis(), ended, ..Row::default() };
        let mut version = pending.version;
        for (num, own) in targets {
            let points = later.remove(num).unwrap_or_default();
            row.latencies.points.extend(points.into_iter().map(|point| (*num, point)));
            let Some(merged) = Snapshot::merged(own.clone(), journal.snapshots.get(num)) else { continue };
            let Snapshot { schedule: mut rest, last_report, volatile: lives, .. } = merged;
            version += 1;
            let moving = rest.split();
            pending.newest.insert(*num, Some(Newest::of(version, &rest, &lives)?));
            row.push(TargetState { num: *num, moving, last_report, rest: Rest::New(rest), lives }, |_| false);
        }
        write_at(transaction, place, row, pending)?;
        place += 1;
    }
    // If one of these rows is damaged, this one still shows that those at later places are leftovers.
    write_at(transaction, place, Row { at: at.as_millis(), ended, ..Row::default() }, pending)?;
    journal::clear_earlier(transaction)?;
    pending.folded = true;
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
