//! Loading the state of every target.

use crate::known::KnownState;
use crate::record::StoredSchedule;
use crate::single::Singles;
use crate::sqlite::connect;
use crate::tables::target::TargetRow;
use crate::tables::{dependency, journal, plugin_value, target};
use crate::wire::{LiveWire, Rest, Row, ScheduleWire, Snapshot, StoredPoint, TargetState, WindowWire};
use model::{DependencyRecord, DependencyState, Kind, TargetId, Timestamp, Volatile};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The state of a target when the database was last written.
#[derive(Debug)]
pub struct Loaded {
    /// The kind of the target at that time.
    pub kind: Kind,
    /// The known state.
    pub known: KnownState,
    /// The schedule; `None` if none is stored.
    pub schedule: Option<StoredSchedule>,
}

/// A kill may lose schedules and volatile fields for this time.
pub const FORGOTTEN: Duration = Duration::from_secs(30);

/// The content of the journal.
#[derive(Debug, Default)]
pub(crate) struct Journaled {
    /// The highest version of a target's state.
    pub version: u64,
    /// The newest snapshot of each target, by its number.
    pub snapshots: BTreeMap<i64, Snapshot>,
    /// Latency points, each with the number of its target.
    pub points: Vec<(i64, StoredPoint)>,
    /// The windows with one measurement.
    singles: Singles,
    /// The last fields of each target's schedule that not every poll changes, with the version of the state that has
    /// them.
    rests: HashMap<i64, (u64, ScheduleWire)>,
    /// The place of the last row.
    pub place: u32,
    /// Polls up to this time may be missing from the database; `None` if the last host ended properly.
    pub forgotten_until: Option<Timestamp>,
    /// The time of the last row: the last host ran until then. `None` without a row.
    pub last: Option<Timestamp>,
}

/// The loaded state.
pub(crate) struct Everything {
    /// The numbers of targets.
    pub numbers: HashMap<TargetId, i64>,
    /// The state of each target.
    pub targets: HashMap<TargetId, Loaded>,
    /// The journal.
    pub journal: Journaled,
}

/// Loads the state of all targets and the journal, with points that are not in it yet. The dependencies are most of it:
/// they are read at the same time, over another connection to the file at `path`.
pub(crate) fn load(
    connection: &Connection,
    path: &Path,
    unjournaled: &[(i64, StoredPoint)],
) -> rusqlite::Result<Everything> {
    let (dependencies, rest) = thread::scope(|scope| {
        let dependencies = scope.spawn(|| dependency::all(&connect(path)?));
        let values = || Ok::<_, rusqlite::Error>((target::all(connection)?, plugin_value::all(connection)?));
        let rest = journaled(connection).and_then(|journal| Ok((journal, values()?)));
        (dependencies.join().unwrap_or_else(|panic| resume_unwind(panic)), rest)
    });
    let (mut dependencies, (mut journal, (rows, mut values))) = (dependencies?, rest?);
    journal.points.extend_from_slice(unjournaled);
    journal.settle();
    let mut numbers = HashMap::with_capacity(rows.len());
    let mut targets = HashMap::with_capacity(rows.len());
    for TargetRow { num, id, kind, record, snapshot, next_slot } in rows {
        let snapshot = Snapshot::merged(snapshot, journal.snapshots.get(&num));
        journal.version = journal.version.max(snapshot.as_ref().map_or(0, |snapshot| snapshot.version));
        let schedule = snapshot.as_ref().map(|snapshot| StoredSchedule::from(&snapshot.schedule));
        let mut known = KnownState::default();
        (known.warnings, known.failure, known.stale_since) = (record.warnings, record.failure, record.stale_since);
        let records = dependencies.remove(&num).unwrap_or_default();
        let report = snapshot.as_ref().and_then(|snapshot| snapshot.last_report).map(Timestamp::from_millis);
        // Without a stored time, the target has reported when its dependencies changed.
        let changed = records.iter().map(|record| record.last_status_change.unwrap_or(record.first_seen)).max();
        known.last_report = report.or(changed);
        let of_kind = values.remove(&num).filter(|(stored, _)| stored == kind.as_str());
        known.values = of_kind.map(|(_, values)| values).unwrap_or_default();
        let known = known.restored(states(records, snapshot.as_ref()), next_slot);
        numbers.insert(id.clone(), num);
        targets.insert(id, Loaded { kind, known, schedule });
    }
    Ok(Everything { numbers, targets, journal })
}

/// Reads the journal.
pub(crate) fn journaled(connection: &Connection) -> rusqlite::Result<Journaled> {
    let (mut journaled, mut damaged) = (Journaled::default(), 0);
    journal::each(connection, |place, row| {
        journaled.place = place;
        match row {
            Some(row) => journaled.add(row),
            None => damaged += 1,
        }
    })?;
    if damaged > 0 {
        tracing::error!(
            "{damaged} rows of the table journal are damaged: the times and latencies in them are lost; \
             check the disk, or restore a copy of the database"
        );
    }
    Ok(journaled)
}

impl Journaled {
    /// Adds the next row.
    fn add(&mut self, row: Row) {
        self.version = self.version.max(row.last());
        let until = Timestamp::from_millis(row.at).after(FORGOTTEN);
        self.forgotten_until = (!row.ended).then_some(until);
        self.last = Some(Timestamp::from_millis(row.at));
        for (TargetState { num, moving, last_report, rest, lives }, version) in row.targets.into_iter().zip(row.first..)
        {
            let rest = match rest {
                Rest::New(rest) => {
                    self.rests.insert(num, (version, rest.clone()));
                    rest
                }
                Rest::Of(before) => match self.rests.get(&num) {
                    Some((held, rest)) if *held == before => rest.clone(),
                    // The row that has the rest is damaged: the target keeps an earlier state.
                    _ => continue,
                },
            };
            let snapshot = Snapshot { version, schedule: rest.with(moving), last_report, volatile: lives };
            self.snapshots.insert(num, snapshot);
        }
        let points = &mut self.points;
        self.singles.read(row.latencies, |num, point| points.push((num, point)));
    }

    /// Removes the windows whose points are in the journal, so that they are not completed again: a point is written at
    /// once, and the next window of its dependency with the next flush.
    pub(crate) fn settle(&mut self) {
        let windows = |(num, snapshot): (&i64, &Snapshot)| {
            let num = *num;
            let window = move |live: &LiveWire| live.window().map(|window| ((num, live.slot), window));
            snapshot.volatile.iter().filter_map(window).collect::<Vec<_>>()
        };
        let open: HashMap<(i64, u32), u32> = self.snapshots.iter().flat_map(windows).collect();
        let key = |(num, point): &(i64, StoredPoint)| (*num, point.slot);
        let is_written = |point: &&(i64, StoredPoint)| open.get(&key(point)) == Some(&point.1.point.window);
        let written: HashSet<(i64, u32)> = self.points.iter().filter(is_written).map(key).collect();
        for (num, snapshot) in &mut self.snapshots {
            let is_written = |live: &&mut LiveWire| written.contains(&(*num, live.slot));
            snapshot.volatile.iter_mut().filter(is_written).for_each(|live| live.window = WindowWire::Empty);
        }
    }

    /// Returns the numbers of targets that it has.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = i64> {
        self.snapshots.keys().copied().chain(self.points.iter().map(|(num, _)| *num))
    }
}

/// Combines dependencies with their volatile fields. The last check of a dependency that is not in the snapshot is the
/// time of its last change.
fn states(records: Vec<DependencyRecord>, snapshot: Option<&Snapshot>) -> Vec<DependencyState> {
    let report = snapshot.and_then(|snapshot| snapshot.last_report).map(Timestamp::from_millis);
    let mut volatile: Vec<(u32, Volatile)> = match (snapshot, report) {
        (Some(snapshot), Some(report)) => snapshot.volatile.iter().map(|wire| wire.restore(report)).collect(),
        _ => Vec::new(),
    };
    volatile.sort_unstable_by_key(|(slot, _)| *slot);
    let state = |record: DependencyRecord| {
        let checked_at = record.last_status_change.unwrap_or(record.first_seen);
        let unseen = Volatile { checked_at, ..Volatile::default() };
        let stored = volatile.binary_search_by_key(&record.slot, |(slot, _)| *slot);
        let volatile = stored.map_or(unseen, |at| volatile[at].1);
        DependencyState { volatile, record: Arc::new(record) }
    };
    records.into_iter().map(state).collect()
}
