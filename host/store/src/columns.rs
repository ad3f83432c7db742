//! Latency points and volatile fields by column, as they are compressed: the values of one column are alike.

use crate::wire::{Journal, LiveWire, PointWire, ScheduleWire, Snapshot, WindowWire};
use serde::{Deserialize, Serialize};

/// Latency points, each with the slot of its dependency.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PointColumns {
    slots: Vec<u32>,
    windows: Vec<u32>,
    counts: Vec<u32>,
    means: Vec<u32>,
    /// The mean less the minimum; 0 for a point with one measurement.
    below: Vec<u32>,
    /// The maximum less the mean.
    above: Vec<u32>,
}

/// A row of the journal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JournalColumns {
    at: i64,
    ended: bool,
    targets: Vec<i64>,
    versions: Vec<u64>,
    last_reports: Vec<Option<i64>>,
    schedules: Vec<ScheduleWire>,
    /// The number of volatile fields of each target.
    lives: Vec<u32>,
    slots: Vec<u32>,
    ages: Vec<i64>,
    latencies: Vec<Option<u32>>,
    /// Per volatile field: 0 for no window, 1 for a window with one measurement, 2 for a point in `more`.
    kinds: Vec<u8>,
    /// The windows with one measurement.
    windows: Vec<u32>,
    more: PointColumns,
    /// The target of each point in `points`.
    owners: Vec<i64>,
    points: PointColumns,
}

impl FromIterator<(u32, PointWire)> for PointColumns {
    fn from_iter<I: IntoIterator<Item = (u32, PointWire)>>(points: I) -> Self {
        let mut columns = Self::default();
        for (slot, point) in points {
            columns.slots.push(slot);
            columns.windows.push(point.window);
            columns.counts.push(point.count);
            columns.means.push(point.mean_us);
            columns.below.push(point.mean_us.wrapping_sub(point.min_us));
            columns.above.push(point.max_us.wrapping_sub(point.mean_us));
        }
        columns
    }
}

impl PointColumns {
    /// Returns the points. A column that is too short ends them.
    pub(crate) fn points(self) -> impl Iterator<Item = (u32, PointWire)> {
        let Self { slots, windows, counts, means, below, above } = self;
        let values = windows.into_iter().zip(counts).zip(means).zip(below).zip(above);
        slots.into_iter().zip(values).map(|(slot, ((((window, count), mean_us), below), above))| {
            let (min_us, max_us) = (mean_us.wrapping_sub(below), mean_us.wrapping_add(above));
            (slot, PointWire { window, min_us, max_us, mean_us, count })
        })
    }
}

impl From<&Journal> for JournalColumns {
    fn from(row: &Journal) -> Self {
        let snapshots = || row.snapshots.iter().map(|(_, snapshot)| snapshot);
        let lives = || snapshots().flat_map(|snapshot| &snapshot.volatile);
        Self {
            at: row.at,
            ended: row.ended,
            targets: row.snapshots.iter().map(|(target, _)| *target).collect(),
            versions: snapshots().map(|snapshot| snapshot.version).collect(),
            last_reports: snapshots().map(|snapshot| snapshot.last_report).collect(),
            schedules: snapshots().map(|snapshot| snapshot.schedule.clone()).collect(),
            lives: snapshots().map(|snapshot| u32::try_from(snapshot.volatile.len()).unwrap_or(u32::MAX)).collect(),
            slots: lives().map(|live| live.slot).collect(),
            ages: lives().map(|live| live.age).collect(),
            latencies: lives().map(|live| live.latency_us).collect(),
            kinds: (lives().map(|live| match live.window {
                WindowWire::Empty => 0,
                WindowWire::One(_) => 1,
                WindowWire::More(_) => 2,
            }))
            .collect(),
            windows: (lives().filter_map(|live| match live.window {
                WindowWire::One(window) => Some(window),
                WindowWire::Empty | WindowWire::More(_) => None,
            }))
            .collect(),
            more: (lives().filter_map(|live| match live.window {
                WindowWire::More(point) => Some((live.slot, point)),
                WindowWire::Empty | WindowWire::One(_) => None,
            }))
            .collect(),
            owners: row.points.iter().map(|(target, ..)| *target).collect(),
            points: row.points.iter().map(|(_, slot, point)| (*slot, *point)).collect(),
        }
    }
}

impl From<JournalColumns> for Journal {
    fn from(row: JournalColumns) -> Self {
        let (mut windows, mut more) = (row.windows.into_iter(), row.more.points());
        let fields = row.slots.into_iter().zip(row.ages).zip(row.latencies).zip(row.kinds);
        let mut lives = fields.map(|(((slot, age), latency_us), kind)| LiveWire {
            slot,
            age,
            latency_us,
            window: match kind {
                1 => windows.next().map_or(WindowWire::Empty, WindowWire::One),
                2 => more.next().map_or(WindowWire::Empty, |(_, point)| WindowWire::More(point)),
                _ => WindowWire::Empty,
            },
        });
        let targets = row.targets.into_iter().zip(row.versions).zip(row.last_reports).zip(row.schedules);
        let snapshots = targets.zip(row.lives).map(|((((target, version), last_report), schedule), count)| {
            let volatile = lives.by_ref().take(count as usize).collect();
            (target, Snapshot { version, schedule, last_report, volatile })
        });
        let snapshots = snapshots.collect();
        let points = row.owners.into_iter().zip(row.points.points());
        Self {
            at: row.at,
            ended: row.ended,
            snapshots,
            points: points.map(|(target, (slot, point))| (target, slot, point)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StoredSchedule;
    use crate::wire::{encode, pack, unpack};
    use model::{Schedule, Timestamp};

    #[test]
    fn rows_by_column_are_restored() {
        let point = |n: u32| PointWire { window: n, min_us: 4, max_us: 9 + n, mean_us: 5, count: 2 };
        let live = |slot: u32, window: WindowWire| LiveWire { slot, age: -3, latency_us: Some(slot), window };
        let schedule = StoredSchedule { identity: -7, schedule: Schedule::new(Timestamp::from_millis(5)) };
        let snapshot = |version: u64, volatile: Vec<LiveWire>| Snapshot {
            version,
            schedule: ScheduleWire::from(&schedule),
            last_report: Some(12),
            volatile,
        };
        let row = Journal {
            at: 1_784_000_000_000,
            ended: false,
            snapshots: vec![
                (3, snapshot(1, vec![live(0, WindowWire::One(7)), live(1, WindowWire::More(point(1)))])),
                (4, snapshot(2, Vec::new())),
                (9, snapshot(3, vec![live(5, WindowWire::Empty), live(6, WindowWire::One(8))])),
            ],
            points: vec![(3, 0, point(2)), (9, 6, PointWire { min_us: 5, max_us: 5, count: 1, ..point(0) })],
        };
        let plain = encode(&row).unwrap();
        let restored =
            |bytes: &[u8]| unpack(bytes, |row: JournalColumns| Journal::from(row)).map(|row| encode(&row).unwrap());
        let packed = pack(&JournalColumns::from(&row)).unwrap();
        assert_eq!(restored(&packed).as_ref(), Some(&plain));
        // Rows of an earlier version of the schema are not packed.
        assert_eq!(restored(&plain).as_ref(), Some(&plain));
        assert_eq!(restored(&packed[..packed.len() / 2]), None);
        assert_eq!(restored(&[]), None);
    }
}
