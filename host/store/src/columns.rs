//! Latency points and volatile fields by column, as they are compressed: the values of one column are alike.

use crate::wire::{Journal, LiveWire, PointWire, ScheduleWire, Snapshot, StoredPoint, WindowWire, unpack, unpacked};
use model::Sketch;
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

/// The distributions of points, in the same order.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SketchColumns {
    /// The number of buckets of each.
    lengths: Vec<u16>,
    buckets: Vec<u8>,
    counts: Vec<u32>,
}

/// Latency points with their distributions. Each window is stored as its difference from the last one, because equal
/// small numbers compress best.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BlockColumns {
    points: PointColumns,
    sketches: SketchColumns,
}

impl<'a> FromIterator<&'a StoredPoint> for BlockColumns {
    fn from_iter<I: IntoIterator<Item = &'a StoredPoint>>(points: I) -> Self {
        let (mut sketches, mut last) = (SketchColumns::default(), 0);
        let points = points.into_iter().map(|StoredPoint { slot, point, sketch }| {
            let window = point.window.wrapping_sub(std::mem::replace(&mut last, point.window));
            let buckets = sketch.buckets();
            sketches.lengths.push(buckets.len() as u16);
            sketches.buckets.extend(buckets.iter().map(|(bucket, _)| bucket));
            sketches.counts.extend(buckets.iter().map(|(_, count)| count));
            (*slot, PointWire { window, ..*point })
        });
        let points = points.collect();
        Self { points, sketches }
    }
}

impl BlockColumns {
    /// Returns the points. A column that is too short ends them.
    pub(crate) fn points(self) -> impl Iterator<Item = StoredPoint> {
        let SketchColumns { lengths, buckets, counts } = self.sketches;
        let (mut buckets, mut last) = (buckets.into_iter().zip(counts), 0_u32);
        self.points.points().zip(lengths).map(move |((slot, point), length)| {
            last = last.wrapping_add(point.window);
            let point = PointWire { window: last, ..point };
            let sketch = Sketch::of_buckets(buckets.by_ref().take(length.into()));
            StoredPoint { slot, point, sketch }
        })
    }
}

/// Decodes a block of points; those of an earlier version of the schema have no distributions. `None` if it is damaged.
pub(crate) fn block(bytes: &[u8]) -> Option<Vec<StoredPoint>> {
    if let Some(block) = unpacked(bytes).and_then(|plain| postcard::from_bytes::<BlockColumns>(&plain).ok()) {
        return Some(block.points().collect());
    }
    let points = unpack(bytes, |columns: PointColumns| columns.points().collect::<Vec<_>>())?;
    let sketch = Sketch::default();
    Some(points.into_iter().map(|(slot, point)| StoredPoint { slot, point, sketch: sketch.clone() }).collect())
}

/// The points of several targets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OwnedColumns {
    /// The target of each point.
    owners: Vec<i64>,
    block: BlockColumns,
}

impl OwnedColumns {
    pub(crate) fn new(points: &[(i64, StoredPoint)]) -> Self {
        let owners = points.iter().map(|(owner, _)| *owner).collect();
        Self { owners, block: points.iter().map(|(_, point)| point).collect() }
    }

    pub(crate) fn points(self) -> impl Iterator<Item = (i64, StoredPoint)> {
        self.owners.into_iter().zip(self.block.points())
    }
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
    /// The target of each point in `points`, of versions before 6 of the schema.
    owners: Vec<i64>,
    points: PointColumns,
}

impl JournalColumns {
    /// Takes the points of versions before 6 of the schema, which have no distributions.
    pub(crate) fn take_points(&mut self) -> Vec<(i64, StoredPoint)> {
        let (owners, points) = (std::mem::take(&mut self.owners), std::mem::take(&mut self.points));
        let points = points.points().map(|(slot, point)| StoredPoint { slot, point, sketch: Sketch::default() });
        owners.into_iter().zip(points).collect()
    }
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
            owners: Vec::new(),
            points: PointColumns::default(),
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
        Self { at: row.at, ended: row.ended, snapshots: snapshots.collect() }
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

    #[test]
    fn points_are_restored_with_their_distributions_and_without_those_of_earlier_versions() {
        let point = PointWire { window: 7, min_us: 4, max_us: 9, mean_us: 5, count: 3 };
        let sketch = Sketch::of_buckets([(3, 1), (200, 2)]);
        let points = [(1, sketch.clone()), (2, Sketch::default()), (3, sketch)];
        let points = points.map(|(slot, sketch)| StoredPoint { slot, point, sketch });
        let same = |restored: &[StoredPoint], with: bool| {
            assert_eq!(restored.len(), points.len());
            for (restored, point) in restored.iter().zip(&points) {
                assert_eq!((restored.slot, restored.summary().max), (point.slot, point.summary().max));
                let sketch = if with { point.sketch.clone() } else { Sketch::default() };
                assert_eq!(restored.sketch, sketch);
            }
        };
        let packed = pack(&points.iter().collect::<BlockColumns>()).unwrap();
        same(&block(&packed).unwrap(), true);
        assert!(block(&packed[..packed.len() - 4]).is_none());
        let earlier = || points.iter().map(|point| (point.slot, point.point));
        same(&block(&pack(&earlier().collect::<PointColumns>()).unwrap()).unwrap(), false);
        same(&block(&encode(&earlier().collect::<Vec<_>>()).unwrap()).unwrap(), false);
        let owned = pack(&OwnedColumns::new(&points.clone().map(|point| (5, point)))).unwrap();
        let owned: OwnedColumns = postcard::from_bytes(&unpacked(&owned).unwrap()).unwrap();
        let (owners, restored): (Vec<i64>, Vec<StoredPoint>) = owned.points().unzip();
        assert_eq!(owners, [5, 5, 5]);
        same(&restored, true);
    }
}
