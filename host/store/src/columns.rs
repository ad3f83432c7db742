//! Latency points and rows of the journal by column, as they are compressed: the values of one column are alike.

use crate::digits::{Codes, code, micros};
use crate::wire::{LiveWire, Measurements, Moving, PointWire, ScheduleEntry, ScheduleWire, StoredPoint, WindowWire};
use crate::{legacy, wire};
use model::Sketch;
use serde::{Deserialize, Serialize};

/// Latency points with their distributions. Each window is stored as its difference from the last one, because equal
/// small numbers compress best.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BlockColumns {
    slots: Vec<u32>,
    windows: Vec<u32>,
    counts: Vec<u32>,
    means: Codes,
    /// The code of the mean less that of the minimum; 0 for a point with one measurement.
    below: Vec<u16>,
    /// The code of the maximum less that of the mean.
    above: Vec<u16>,
    /// The number of buckets of each distribution.
    lengths: Vec<u16>,
    buckets: Vec<u8>,
    measurements: Vec<u32>,
}

impl<'a> FromIterator<&'a StoredPoint> for BlockColumns {
    fn from_iter<I: IntoIterator<Item = &'a StoredPoint>>(points: I) -> Self {
        let (mut columns, mut last) = (Self::default(), 0);
        for StoredPoint { slot, point, sketch } in points {
            let mean = code(point.mean_us);
            columns.slots.push(*slot);
            columns.windows.push(point.window.wrapping_sub(std::mem::replace(&mut last, point.window)));
            columns.counts.push(point.count);
            columns.means.push(mean);
            columns.below.push(mean.saturating_sub(code(point.min_us)));
            columns.above.push(code(point.max_us).saturating_sub(mean));
            let buckets = sketch.buckets();
            columns.lengths.push(buckets.len() as u16);
            columns.buckets.extend(buckets.iter().map(|(bucket, _)| bucket));
            columns.measurements.extend(buckets.iter().map(|(_, count)| count));
        }
        columns
    }
}

impl BlockColumns {
    /// Returns the points. A column that is too short ends them.
    pub(crate) fn points(self) -> impl Iterator<Item = StoredPoint> {
        let values = self.slots.into_iter().zip(self.windows).zip(self.counts);
        let latencies = self.means.codes().zip(self.below).zip(self.above);
        let mut buckets = self.buckets.into_iter().zip(self.measurements);
        let mut last = 0_u32;
        values.zip(latencies).zip(self.lengths).map(
            move |((((slot, window), count), ((mean, below), above)), length)| {
                last = last.wrapping_add(window);
                let (min_us, max_us) = (micros(mean.saturating_sub(below)), micros(mean.saturating_add(above)));
                let point = PointWire { window: last, min_us, max_us, mean_us: micros(mean), count };
                StoredPoint { slot, point, sketch: Sketch::of_buckets(buckets.by_ref().take(length.into())) }
            },
        )
    }
}

/// Decodes a block of points, also of earlier versions. `None` if it is damaged.
pub(crate) fn block(bytes: &[u8]) -> Option<Vec<StoredPoint>> {
    match wire::unpack::<BlockColumns>(bytes) {
        Some(columns) => Some(columns?.points().collect()),
        None => legacy::block(bytes),
    }
}

/// The schedules in a row of the journal, in the order of its targets.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ScheduleColumns {
    /// The time of the row less that of the last poll.
    polled: Vec<Option<i64>>,
    /// The next due time less the last poll, or less the time of the row without one; so are the next two.
    due: Vec<i64>,
    succeeded: Vec<Option<i64>>,
    reported: Vec<Option<i64>>,
    intervals: Vec<Option<u64>>,
    rates: [Vec<f32>; 4],
    /// Whether the rest of the schedule is in `rest`; otherwise it is that of the target's row before.
    is_new: Vec<bool>,
    rest: Vec<ScheduleWire>,
}

impl ScheduleColumns {
    /// Makes columns of the entries of a row that was written at a time.
    pub(crate) fn new(entries: impl IntoIterator<Item = ScheduleEntry>, at: i64) -> Self {
        let mut columns = Self::default();
        for ScheduleEntry { moving, last_report, rest } in entries {
            let base = moving.last_polled.unwrap_or(at);
            let since = |time: Option<i64>| time.map(|time| base.wrapping_sub(time));
            columns.polled.push(moving.last_polled.map(|polled| at.wrapping_sub(polled)));
            columns.due.push(moving.due.wrapping_sub(base));
            columns.succeeded.push(since(moving.last_success));
            columns.reported.push(since(last_report));
            columns.intervals.push(moving.interval_ms);
            columns.rates.iter_mut().zip(moving.rates).for_each(|(column, rate)| column.push(rate));
            columns.is_new.push(rest.is_some());
            columns.rest.extend(rest);
        }
        columns
    }

    /// Returns the entries of the row that was written at a time. A column that is too short ends them.
    pub(crate) fn entries(self, at: i64) -> impl Iterator<Item = ScheduleEntry> {
        let times = self.polled.into_iter().zip(self.due).zip(self.succeeded).zip(self.reported).zip(self.intervals);
        let rates = |column: Vec<f32>| column.into_iter();
        let [a, b, c, d] = self.rates.map(rates);
        let rates = a.zip(b).zip(c).zip(d).map(|(((a, b), c), d)| [a, b, c, d]);
        let mut rest = self.rest.into_iter();
        let entry = move |((((((polled, due), success), report), interval_ms), rates), is_new)| {
            let last_polled = Option::map(polled, |polled| at.wrapping_sub(polled));
            let base = last_polled.unwrap_or(at);
            let before = |since: Option<i64>| since.map(|since| base.wrapping_sub(since));
            let (due, last_success) = (base.wrapping_add(due), before(success));
            let rest = if is_new { Some(rest.next()?) } else { None };
            let moving = Moving { due, interval_ms, last_success, last_polled, rates };
            Some(ScheduleEntry { moving, last_report: before(report), rest })
        };
        times.zip(rates).zip(self.is_new).map_while(entry)
    }
}

/// The latencies in a row of the journal: the volatile fields of its targets, and completed points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct MeasurementColumns {
    /// The number of each target less the one before.
    targets: Vec<i64>,
    /// The number of volatile fields of each target.
    lives: Vec<u32>,
    slots: Vec<u32>,
    ages: Vec<i64>,
    /// Per volatile field: 1 if there is a latency, plus 2 for a window with one measurement, or 4 for one in `more`.
    kinds: Vec<u8>,
    latencies: Codes,
    /// The windows with one measurement, each less the one before.
    windows: Vec<u32>,
    more: BlockColumns,
    /// The target of each point.
    owners: Vec<i64>,
    points: BlockColumns,
}

const HAS_LATENCY: u8 = 1;
const ONE: u8 = 2;
const MORE: u8 = 4;

impl From<&Measurements> for MeasurementColumns {
    fn from(measured: &Measurements) -> Self {
        let (mut columns, mut target, mut window) = (Self::default(), 0, 0_u32);
        let mut more = Vec::new();
        for (num, lives) in &measured.lives {
            columns.targets.push(num.wrapping_sub(std::mem::replace(&mut target, *num)));
            columns.lives.push(lives.len() as u32);
            for live in lives {
                columns.slots.push(live.slot);
                columns.ages.push(live.age);
                let kind = match live.window {
                    WindowWire::Empty => 0,
                    WindowWire::One(one) => {
                        columns.windows.push(one.wrapping_sub(std::mem::replace(&mut window, one)));
                        ONE
                    }
                    WindowWire::More(point) => {
                        more.push(StoredPoint { slot: live.slot, point, sketch: Sketch::default() });
                        MORE
                    }
                };
                columns.kinds.push(kind | if live.latency_us.is_some() { HAS_LATENCY } else { 0 });
                live.latency_us.into_iter().for_each(|us| columns.latencies.push(code(us)));
            }
        }
        columns.more = more.iter().collect();
        columns.owners = measured.points.iter().map(|(owner, _)| *owner).collect();
        columns.points = measured.points.iter().map(|(_, point)| point).collect();
        columns
    }
}

impl From<MeasurementColumns> for Measurements {
    /// Decodes the columns. One that is too short ends the values.
    fn from(columns: MeasurementColumns) -> Self {
        let (mut latencies, mut more) = (columns.latencies.codes(), columns.more.points());
        let mut window = 0_u32;
        let mut windows = columns.windows.into_iter().map(|step| {
            window = window.wrapping_add(step);
            window
        });
        let fields = columns.slots.into_iter().zip(columns.ages).zip(columns.kinds);
        let mut fields = fields.map(|((slot, age), kind)| {
            let latency_us = if kind & HAS_LATENCY != 0 { latencies.next().map(micros) } else { None };
            let window = match kind & (ONE | MORE) {
                ONE => windows.next().map_or(WindowWire::Empty, WindowWire::One),
                MORE => more.next().map_or(WindowWire::Empty, |more| WindowWire::More(more.point)),
                _ => WindowWire::Empty,
            };
            LiveWire { slot, age, latency_us, window }
        });
        let mut num = 0_i64;
        let lives = columns.targets.into_iter().zip(columns.lives).map(|(step, count)| {
            num = num.wrapping_add(step);
            (num, fields.by_ref().take(count as usize).collect())
        });
        let lives = lives.collect();
        Self { lives, points: columns.owners.into_iter().zip(columns.points.points()).collect() }
    }
}

#[cfg(test)]
mod tests;
