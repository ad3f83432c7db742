//! Loading the state of every target.

use crate::known::KnownState;
use crate::record::StoredSchedule;
use crate::tables::target::TargetRow;
use crate::tables::{dependency, journal, target};
use crate::wire::{PointWire, Snapshot};
use model::{DependencyRecord, DependencyState, Kind, TargetId, Timestamp, Volatile};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The state of a target when the database was last written.
#[derive(Debug)]
pub struct Loaded {
    /// Its kind then.
    pub kind: Kind,
    /// Its known state.
    pub known: KnownState,
    /// Its schedule.
    pub schedule: Option<StoredSchedule>,
}

/// A kill may cost the schedules and volatile fields of this time.
pub const FORGOTTEN: Duration = Duration::from_secs(30);

/// The content of the journal.
#[derive(Debug, Default)]
pub(crate) struct Journaled {
    /// The highest version of a snapshot.
    pub version: u64,
    /// The newest snapshot of each target, by its number.
    pub snapshots: BTreeMap<i64, Snapshot>,
    /// Latency points: target number, slot, point.
    pub points: Vec<(i64, u32, PointWire)>,
    /// The number of rows.
    pub rows: u64,
    /// If the last host was killed: polls up to this time may have happened without a trace.
    pub forgotten_until: Option<Timestamp>,
}

/// Everything that is loaded.
pub(crate) struct Everything {
    /// The numbers of targets.
    pub numbers: HashMap<TargetId, i64>,
    /// The state of each target.
    pub targets: HashMap<TargetId, Loaded>,
    /// The journal.
    pub journal: Journaled,
}

/// Loads everything.
pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Everything> {
    let mut journal = journaled(connection)?;
    let mut dependencies = dependency::all(connection)?;
    let (mut numbers, mut targets) = (HashMap::new(), HashMap::new());
    for TargetRow { num, id, kind, record, snapshot } in target::all(connection)? {
        let snapshot = Snapshot::merged(snapshot, journal.snapshots.get(&num));
        journal.version = journal.version.max(snapshot.as_ref().map_or(0, |snapshot| snapshot.version));
        let schedule = snapshot.as_ref().map(|snapshot| StoredSchedule::from(&snapshot.schedule));
        let mut known = KnownState::default();
        (known.warnings, known.failure, known.stale_since) = (record.warnings, record.failure, record.stale_since);
        known.last_report = snapshot.as_ref().and_then(|snapshot| snapshot.last_report).map(Timestamp::from_millis);
        let records = dependencies.remove(&num).unwrap_or_default();
        let known = known.restored(states(records, snapshot.as_ref()));
        numbers.insert(id.clone(), num);
        targets.insert(id, Loaded { kind, known, schedule });
    }
    Ok(Everything { numbers, targets, journal })
}

fn journaled(connection: &Connection) -> rusqlite::Result<Journaled> {
    let mut journaled = Journaled::default();
    for row in journal::all(connection)? {
        journaled.rows += 1;
        let Some(row) = row else { continue };
        journaled.snapshots.extend(row.snapshots);
        journaled.points.extend(row.points);
        let until = Timestamp::from_millis(row.at).after(FORGOTTEN);
        journaled.forgotten_until = (!row.ended).then_some(until);
    }
    Ok(journaled)
}

/// Dependencies with their volatile fields. A dependency that is not in the snapshot was last checked when it last changed.
fn states(records: Vec<DependencyRecord>, snapshot: Option<&Snapshot>) -> Vec<DependencyState> {
    let report = snapshot.and_then(|snapshot| snapshot.last_report).map(Timestamp::from_millis);
    let volatile: HashMap<u32, Volatile> = match (snapshot, report) {
        (Some(snapshot), Some(report)) => snapshot.volatile.iter().map(|wire| wire.restore(report)).collect(),
        _ => HashMap::new(),
    };
    let state = |record: DependencyRecord| {
        let checked_at = record.last_status_change.unwrap_or(record.first_seen);
        let unseen = Volatile { checked_at, ..Volatile::default() };
        let volatile = volatile.get(&record.slot).copied().unwrap_or(unseen);
        DependencyState { volatile, record: Arc::new(record) }
    };
    records.into_iter().map(state).collect()
}
