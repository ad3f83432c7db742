//! Values of earlier versions of the schema, which are read and no longer written: rows of the journal and blocks of
//! latency points, with all digits of the latencies. Those of version 3 and earlier are not compressed.

use crate::wire::{
    LiveWire, PointWire, Rest, Row, ScheduleWire, Snapshot, StoredPoint, TargetState, WindowWire, plain_bytes,
};
use model::Sketch;
use serde::{Deserialize, Serialize};

/// The first byte of a compressed value. No value that is not compressed starts with it and has more than one byte.
const COMPRESSED: u8 = 0;

/// A row of the journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Journal {
    /// The time of the row, in milliseconds since the epoch.
    at: i64,
    /// Whether the host ended properly with this row.
    ended: bool,
    snapshots: Vec<(i64, Snapshot)>,
}

/// Latency points, each with the slot of its dependency.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PointColumns {
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
struct BlockColumns {
    points: PointColumns,
    sketches: SketchColumns,
}

/// As earlier versions encoded it.
#[cfg(test)]
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
    fn points(self) -> impl Iterator<Item = StoredPoint> {
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

/// Decodes a block of points. `None` if it is damaged.
pub(crate) fn block(bytes: &[u8]) -> Option<Vec<StoredPoint>> {
    // Blocks of version 5 and earlier have no distributions.
    let points = if is_packed(bytes) {
        let plain = unpacked(bytes)?;
        if let Ok(block) = postcard::from_bytes::<BlockColumns>(&plain) {
            return Some(block.points().collect());
        }
        postcard::from_bytes::<PointColumns>(&plain).ok()?.points().collect::<Vec<_>>()
    } else {
        postcard::from_bytes(bytes).ok()?
    };
    let sketch = Sketch::default();
    Some(points.into_iter().map(|(slot, point)| StoredPoint { slot, point, sketch: sketch.clone() }).collect())
}

/// Decodes a row of the journal: its columns `body` and `points`, of which the second is `None` in version 5 and
/// earlier. `None` if it is damaged; points that cannot be read are left out.
pub(crate) fn row(body: &[u8], points: Option<&[u8]>) -> Option<Row> {
    let (journal, earlier) = if is_packed(body) {
        let mut columns = postcard::from_bytes::<JournalColumns>(&unpacked(body)?).ok()?;
        let earlier = columns.take_points();
        (Journal::from(columns), earlier)
    } else {
        (postcard::from_bytes(body).ok()?, Vec::new())
    };
    let points = points.map_or(earlier, |points| {
        let columns = unpacked(points).and_then(|plain| postcard::from_bytes::<OwnedColumns>(&plain).ok());
        columns.map(|columns| columns.points().collect()).unwrap_or_default()
    });
    let Journal { at, ended, snapshots } = journal;
    let mut row = Row { at, ended, ..Row::default() };
    row.first = snapshots.first().map_or(0, |(_, snapshot)| snapshot.version);
    for (num, Snapshot { mut schedule, last_report, volatile: lives, .. }) in snapshots {
        let moving = schedule.split();
        row.push(TargetState { num, moving, last_report, rest: Rest::New(schedule), lives }, |_| false);
    }
    row.latencies.points = points;
    Some(row)
}

/// Whether a value is compressed.
fn is_packed(bytes: &[u8]) -> bool {
    bytes.len() > 1 && bytes[0] == COMPRESSED
}

/// Returns the bytes of a compressed value; `None` if it is damaged.
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    plain_bytes(bytes.strip_prefix(&[COMPRESSED])?)
}

/// The points of several targets.
#[derive(Debug, Serialize, Deserialize)]
struct OwnedColumns {
    /// The target of each point.
    owners: Vec<i64>,
    block: BlockColumns,
}

impl OwnedColumns {
    /// As earlier versions encoded it.
    #[cfg(test)]
    fn new(points: &[(i64, StoredPoint)]) -> Self {
        let owners = points.iter().map(|(owner, _)| *owner).collect();
        Self { owners, block: points.iter().map(|(_, point)| point).collect() }
    }

    fn points(self) -> impl Iterator<Item = (i64, StoredPoint)> {
        self.owners.into_iter().zip(self.block.points())
    }
}

/// A row of the journal.
#[derive(Debug, Serialize, Deserialize)]
struct JournalColumns {
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
    fn take_points(&mut self) -> Vec<(i64, StoredPoint)> {
        let (owners, points) = (std::mem::take(&mut self.owners), std::mem::take(&mut self.points));
        let points = points.points().map(|(slot, point)| StoredPoint { slot, point, sketch: Sketch::default() });
        owners.into_iter().zip(points).collect()
    }
}

/// As earlier versions encoded it.
#[cfg(test)]
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
    fn points(self) -> impl Iterator<Item = (u32, PointWire)> {
        let Self { slots, windows, counts, means, below, above } = self;
        let values = windows.into_iter().zip(counts).zip(means).zip(below).zip(above);
        slots.into_iter().zip(values).map(|(slot, ((((window, count), mean_us), below), above))| {
            let (min_us, max_us) = (mean_us.wrapping_sub(below), mean_us.wrapping_add(above));
            (slot, PointWire { window, min_us, max_us, mean_us, count })
        })
    }
}

/// As earlier versions encoded it.
#[cfg(test)]
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
mod tests;
