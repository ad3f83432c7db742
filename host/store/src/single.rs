//! Windows with one measurement, whose points need not be written: the latency in the row is the point.
//!
//! A dependency that is polled once in a window of five minutes has its latency in one row of the journal, and the next
//! one in a later row. That the later row has another window completes the point of the earlier one.

use crate::wire::{LiveWire, Measurements, PointWire, StoredPoint, WindowWire};
use model::Sketch;
use std::collections::HashMap;

/// The windows with one measurement that were read and are not complete: window and latency in microseconds, by the
/// target's number and the dependency's slot.
#[derive(Debug, Default)]
pub(crate) struct Singles(HashMap<(i64, u32), (u32, u32)>);

impl Singles {
    /// Reads the latencies of the next row. Calls `found` with the points that are complete with it, of the targets
    /// that are `wanted`.
    pub(crate) fn read(
        &mut self,
        measured: Measurements,
        wanted: impl Fn(i64) -> bool,
        mut found: impl FnMut(i64, StoredPoint),
    ) {
        for (num, point) in measured.points.into_iter().filter(|(num, _)| wanted(*num)) {
            self.complete(num, &point);
            found(num, point);
        }
        for (num, lives) in measured.lives.iter().filter(|(num, _)| wanted(*num)) {
            for live in lives {
                let (key, single) = ((*num, live.slot), single(live));
                let held = match single {
                    Some(single) => self.0.insert(key, single),
                    None => self.0.remove(&key),
                };
                if let Some((window, us)) = held {
                    let point = PointWire { window, min_us: us, max_us: us, mean_us: us, count: 1 };
                    let point = StoredPoint { slot: live.slot, point, sketch: Sketch::default() };
                    if completes(live, &point) {
                        found(*num, point);
                    }
                }
            }
        }
    }

    /// Takes note of a point that was written, which has all measurements of its window.
    pub(crate) fn complete(&mut self, num: i64, point: &StoredPoint) {
        if self.0.get(&(num, point.slot)).is_some_and(|(window, _)| *window == point.point.window) {
            self.0.remove(&(num, point.slot));
        }
    }

    /// Removes the window of a volatile field whose point was written, so that it is not completed again.
    pub(crate) fn settle(&self, num: i64, live: &mut LiveWire) {
        if single(live).is_some() && !self.0.contains_key(&(num, live.slot)) {
            live.window = WindowWire::Empty;
        }
    }
}

/// Whether a volatile field completes the window of a point of its dependency in an earlier row.
pub(crate) fn completes(live: &LiveWire, point: &StoredPoint) -> bool {
    let window = match live.window {
        WindowWire::Empty => return false,
        WindowWire::One(window) => window,
        WindowWire::More(point) => point.window,
    };
    window != point.point.window
}

/// Returns the window and the latency in microseconds of a volatile field whose window has one measurement.
fn single(live: &LiveWire) -> Option<(u32, u32)> {
    match live.window {
        WindowWire::One(window) => live.latency_us.map(|us| (window, us)),
        WindowWire::Empty | WindowWire::More(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WindowWire::{Empty, One};

    fn more(window: u32) -> WindowWire {
        WindowWire::More(PointWire { window, min_us: 1, max_us: 3, mean_us: 2, count: 2 })
    }

    fn point(window: u32) -> StoredPoint {
        let point = PointWire { window, min_us: 1, max_us: 3, mean_us: 2, count: 2 };
        StoredPoint { slot: 0, point, sketch: Sketch::default() }
    }

    /// The windows of a dependency in one row, and the points in it.
    type Step<'a> = (Option<WindowWire>, &'a [u32]);

    #[test]
    fn a_window_with_one_measurement_is_a_point_once_it_is_complete() {
        let cases: [(&str, &[Step<'_>], &[u32]); 9] = [
            ("it is not complete", &[(Some(One(1)), &[])], &[]),
            ("a later window completes it", &[(Some(One(1)), &[]), (Some(One(2)), &[])], &[1]),
            ("also one with more measurements", &[(Some(One(1)), &[]), (Some(more(3)), &[])], &[1]),
            ("the same window again", &[(Some(One(1)), &[]), (Some(One(1)), &[]), (Some(One(2)), &[])], &[1]),
            (
                "a second measurement in the window",
                &[(Some(One(1)), &[]), (Some(more(1)), &[]), (Some(One(2)), &[1])],
                &[1],
            ),
            ("a second measurement between the rows", &[(Some(One(1)), &[]), (Some(One(2)), &[1])], &[1]),
            ("a missing dependency", &[(Some(One(1)), &[]), (None, &[]), (Some(One(4)), &[])], &[1]),
            (
                "a missing dependency whose point is written",
                &[(Some(One(1)), &[]), (None, &[1]), (Some(One(4)), &[])],
                &[1],
            ),
            ("no window", &[(Some(Empty), &[]), (Some(One(4)), &[])], &[]),
        ];
        for (case, rows, expected) in cases {
            let (mut singles, mut found) = (Singles::default(), Vec::new());
            for (window, points) in rows {
                let live = |window| LiveWire { slot: 0, age: 0, latency_us: Some(9), window };
                let measured = Measurements {
                    lives: vec![(7, window.map(live).into_iter().collect()), (8, vec![live(One(99))])],
                    points: points.iter().map(|window| (7, point(*window))).collect(),
                };
                singles.read(measured, |num| num == 7, |num, point| found.push((num, point.point.window)));
            }
            let expected: Vec<(i64, u32)> = expected.iter().map(|window| (7, *window)).collect();
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn a_settled_window_is_not_completed_again() {
        let mut singles = Singles::default();
        let live = LiveWire { slot: 0, age: 0, latency_us: Some(9), window: One(1) };
        let row = || Measurements { lives: vec![(7, vec![live.clone()])], points: Vec::new() };
        singles.read(row(), |_| true, |_, _| {});
        let (mut open, mut settled) = (live.clone(), live.clone());
        singles.settle(7, &mut open);
        assert!(matches!(open.window, One(1)), "its point is not written");
        singles.complete(7, &point(1));
        singles.settle(7, &mut settled);
        assert!(matches!(settled.window, Empty));
    }
}
