//! Latency points and rows of the journal by column, as they are compressed: the values of one column are alike.

use crate::digits::{Codes, code, micros_of};
use crate::wire::{
    Latencies, LiveWire, Moving, PointWire, Rest, Row, ScheduleWire, Single, StoredPoint, TargetState, WindowWire,
};
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
                let (min_us, max_us) = (micros_of(mean.saturating_sub(below)), micros_of(mean.saturating_add(above)));
                let point = PointWire { window: last, min_us, max_us, mean_us: micros_of(mean), count };
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

/// The states of targets in a row of the journal, in their order. The windows with one measurement, with the latencies
/// of their fields, are in [`LatencyColumns`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct StateColumns {
    /// The number of each target less the one before.
    targets: Vec<i64>,
    /// The time of the row less that of the last poll.
    polled: Vec<Option<i64>>,
    /// The next due time less the last poll, or less the time of the row without one.
    due: Vec<i64>,
    /// That time less the last success, and less the last report.
    succeeded: Vec<Option<i64>>,
    reported: Vec<Option<i64>>,
    intervals: Vec<Option<u64>>,
    rates: [Vec<f32>; 4],
    /// 0 if the rest of the schedule is in `rest`; otherwise the version less that of the state that has it.
    same: Vec<u64>,
    rest: Vec<ScheduleWire>,
    /// The number of volatile fields of each target.
    lives: Vec<u32>,
    ages: Vec<i64>,
    /// Per volatile field: one of the constants below.
    kinds: Vec<u8>,
    /// The slots of fields without a single measurement in the window, and the latencies of those with one.
    slots: Vec<u32>,
    latencies: Codes,
    more: BlockColumns,
}

/// The window has one measurement, which is among the latencies of history.
const SINGLE: u8 = 0;
/// There is no window, and no latency or one.
const NOTHING: u8 = 1;
const LATENCY: u8 = 2;
/// The window has a point with several measurements, and there is no latency or one.
const POINT: u8 = 3;
const POINT_AND_LATENCY: u8 = 4;

impl From<&Row> for StateColumns {
    fn from(row: &Row) -> Self {
        let (mut columns, mut last, mut more) = (Self::default(), 0, Vec::new());
        for (TargetState { num, moving, last_report, rest, lives }, version) in row.targets.iter().zip(row.first..) {
            let base = moving.last_polled.unwrap_or(row.at);
            let since = |time: Option<i64>| time.map(|time| base.wrapping_sub(time));
            columns.targets.push(num.wrapping_sub(std::mem::replace(&mut last, *num)));
            columns.polled.push(moving.last_polled.map(|polled| row.at.wrapping_sub(polled)));
            columns.due.push(moving.due.wrapping_sub(base));
            columns.succeeded.push(since(moving.last_success));
            columns.reported.push(since(*last_report));
            columns.intervals.push(moving.interval_ms);
            columns.rates.iter_mut().zip(moving.rates).for_each(|(column, rate)| column.push(rate));
            match rest {
                Rest::New(rest) => {
                    columns.same.push(0);
                    columns.rest.push(rest.clone());
                }
                Rest::Of(before) => columns.same.push(version.wrapping_sub(*before)),
            }
            columns.lives.push(lives.len() as u32);
            for live in lives {
                columns.ages.push(live.age);
                if live.single().is_some() {
                    columns.kinds.push(SINGLE);
                    continue;
                }
                columns.slots.push(live.slot);
                let (without, with) = match live.window {
                    WindowWire::Empty | WindowWire::One(_) => (NOTHING, LATENCY),
                    WindowWire::More(point) => {
                        more.push(StoredPoint { slot: live.slot, point, sketch: Sketch::default() });
                        (POINT, POINT_AND_LATENCY)
                    }
                };
                columns.kinds.push(if live.latency_us.is_some() { with } else { without });
                live.latency_us.into_iter().for_each(|us| columns.latencies.push(code(us)));
            }
        }
        columns.more = more.iter().collect();
        columns
    }
}

impl StateColumns {
    /// Returns the states of a row with the time and the first version, and with the windows with one measurement. A
    /// column that is too short ends them.
    pub(crate) fn states(self, (at, first): (i64, u64), singles: &[Single]) -> Vec<TargetState> {
        let (mut latencies, mut more) = (self.latencies.codes().map(micros_of), self.more.points());
        let (mut singles, mut slots) = (singles.iter(), self.slots.into_iter());
        let mut fields = self.ages.into_iter().zip(self.kinds).map_while(|(age, kind)| {
            if kind == SINGLE {
                let Single { slot, window, us, .. } = *singles.next()?;
                return Some(LiveWire { slot, age, latency_us: Some(us), window: WindowWire::One(window) });
            }
            let latency_us = if matches!(kind, LATENCY | POINT_AND_LATENCY) { Some(latencies.next()?) } else { None };
            let window = match kind {
                POINT | POINT_AND_LATENCY => WindowWire::More(more.next()?.point),
                _ => WindowWire::Empty,
            };
            Some(LiveWire { slot: slots.next()?, age, latency_us, window })
        });
        let [a, b, c, d] = self.rates.map(Vec::into_iter);
        let rates = a.zip(b).zip(c).zip(d).map(|(((a, b), c), d)| [a, b, c, d]);
        let times = self.polled.into_iter().zip(self.due).zip(self.succeeded).zip(self.reported).zip(self.intervals);
        let targets = self.targets.into_iter().zip(self.lives).zip(self.same).zip(first..);
        let (mut num, mut rest) = (0_i64, self.rest.into_iter());
        let state = |((times, rates), (((step, count), same), version))| {
            let ((((polled, due), success), report), interval_ms) = times;
            num = num.wrapping_add(step);
            let last_polled = Option::map(polled, |polled| at.wrapping_sub(polled));
            let base = last_polled.unwrap_or(at);
            let before = |since: Option<i64>| since.map(|since| base.wrapping_sub(since));
            let rest = if same == 0 { Rest::New(rest.next()?) } else { Rest::Of(u64::wrapping_sub(version, same)) };
            let (due, last_success) = (base.wrapping_add(due), before(success));
            let moving = Moving { due, interval_ms, last_success, last_polled, rates };
            let lives = fields.by_ref().take(count as usize).collect();
            Some(TargetState { num, moving, last_report: before(report), rest, lives })
        };
        times.zip(rates).zip(targets).map_while(state).collect()
    }
}

/// The latencies in a row of the journal that belong to history, apart from the rest of the states, which readers of
/// history do not need.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LatencyColumns {
    /// The number of each target with single windows, less the one before.
    targets: Vec<i64>,
    /// The number of its single windows.
    counts: Vec<u32>,
    slots: Vec<u32>,
    /// Each window less the one before.
    windows: Vec<u32>,
    latencies: Codes,
    completes: Vec<bool>,
    /// The target of each point.
    owners: Vec<i64>,
    points: BlockColumns,
}

impl From<&Latencies> for LatencyColumns {
    fn from(latencies: &Latencies) -> Self {
        let (mut columns, mut last, mut window) = (Self::default(), 0, 0);
        for of_target in latencies.singles.chunk_by(|a, b| a.num == b.num) {
            let num = of_target[0].num;
            columns.targets.push(num.wrapping_sub(std::mem::replace(&mut last, num)));
            columns.counts.push(of_target.len() as u32);
            for single in of_target {
                columns.slots.push(single.slot);
                columns.windows.push(single.window.wrapping_sub(std::mem::replace(&mut window, single.window)));
                columns.latencies.push(code(single.us));
                columns.completes.push(single.completes);
            }
        }
        columns.owners = latencies.points.iter().map(|(owner, _)| *owner).collect();
        columns.points = latencies.points.iter().map(|(_, point)| point).collect();
        columns
    }
}

impl LatencyColumns {
    /// Returns the latencies of the targets that are `wanted`. A column that is too short ends them.
    pub(crate) fn latencies(self, wanted: impl Fn(i64) -> bool) -> Latencies {
        let values = self.slots.into_iter().zip(self.windows).zip(self.latencies.codes()).zip(self.completes);
        let targets = self.targets.into_iter().zip(self.counts);
        let (mut num, mut window, mut left) = (0_i64, 0_u32, 0);
        let mut targets = targets.map(|(step, count)| {
            num = num.wrapping_add(step);
            (num, count)
        });
        let mut current = 0;
        let single = values.map_while(|(((slot, step), latency), completes)| {
            while left == 0 {
                (current, left) = targets.next()?;
            }
            left -= 1;
            window = window.wrapping_add(step);
            Some((Single { num: current, slot, window, us: 0, completes }, latency))
        });
        let singles = single.filter(|(single, _)| wanted(single.num));
        let singles = singles.map(|(single, latency)| Single { us: micros_of(latency), ..single }).collect();
        let points = self.owners.into_iter().zip(self.points.points()).filter(|(num, _)| wanted(*num)).collect();
        Latencies { singles, points }
    }
}

#[cfg(test)]
mod tests;
