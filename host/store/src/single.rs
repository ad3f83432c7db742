//! Windows with one measurement, whose points need not be written: the latency in the row is the point.
//!
//! A dependency that is polled once in a window of five minutes has its latency in one row of the journal, and the next
//! one in a later row, which says whether the point of the earlier one is complete. If there were more measurements, or
//! if the later row has no such window, the point is written.

use crate::wire::{Latencies, PointWire, Single, StoredPoint};
use model::Sketch;
use std::collections::HashMap;

/// The last window with one measurement of each dependency in the rows that were read, by the target's number and the
/// slot.
#[derive(Debug, Default)]
pub(crate) struct Singles(HashMap<(i64, u32), Single>);

impl Singles {
    /// Reads the latencies of the next row. Calls `found` with its points, and with those that it completes.
    pub(crate) fn read(&mut self, latencies: Latencies, mut found: impl FnMut(i64, StoredPoint)) {
        latencies.points.into_iter().for_each(|(num, point)| found(num, point));
        for single in latencies.singles {
            let before = self.0.insert((single.num, single.slot), single);
            if let Some(Single { num, slot, window, us, .. }) = before.filter(|_| single.completes) {
                let point = PointWire { window, min_us: us, max_us: us, mean_us: us, count: 1 };
                found(num, StoredPoint { slot, point, sketch: Sketch::default() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The single window of a dependency in one row, whether it completes the one before, and the points in the row.
    type Step<'a> = (Option<(u32, bool)>, &'a [u32]);

    #[test]
    fn a_window_with_one_measurement_is_a_point_if_a_later_row_says_so() {
        let cases: [(&str, &[Step<'_>], &[u32]); 6] = [
            ("it is not complete", &[(Some((1, false)), &[])], &[]),
            ("a later window completes it", &[(Some((1, false)), &[]), (Some((2, true)), &[])], &[1]),
            ("its point is written", &[(Some((1, false)), &[]), (Some((2, false)), &[1])], &[1]),
            ("its point is written later", &[(Some((1, false)), &[]), (Some((2, false)), &[]), (None, &[1])], &[1]),
            ("the row before is lost", &[(Some((2, true)), &[])], &[]),
            ("two in a row", &[(Some((1, false)), &[]), (Some((2, true)), &[]), (Some((3, true)), &[])], &[1, 2]),
        ];
        for (case, rows, expected) in cases {
            let (mut singles, mut found) = (Singles::default(), Vec::new());
            for (single, points) in rows {
                let single = single.map(|(window, completes)| Single { num: 7, slot: 3, window, us: 9, completes });
                let other = Single { num: 8, slot: 3, window: 99, us: 9, completes: false };
                let point = |window: &u32| {
                    let point = PointWire { window: *window, min_us: 1, max_us: 3, mean_us: 2, count: 2 };
                    (7, StoredPoint { slot: 3, point, sketch: Sketch::default() })
                };
                let points = points.iter().map(point).collect();
                let latencies = Latencies { singles: single.into_iter().chain([other]).collect(), points };
                singles.read(latencies, |num, point| found.push((num, point.point.window)));
            }
            let expected: Vec<(i64, u32)> = expected.iter().map(|window| (7, *window)).collect();
            assert_eq!(found, expected, "{case}");
        }
    }
}
