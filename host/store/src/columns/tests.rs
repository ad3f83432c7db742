use super::*;
use crate::record::StoredSchedule;
use crate::wire::{deflated, encode, inflated, pack};
use model::{Schedule, Timestamp};
use proptest::prelude::*;

/// A time in microseconds that is its own rounded value.
fn exact() -> impl Strategy<Value = u32> {
    any::<u32>().prop_map(|us| micros_of(code(us)))
}

prop_compose! {
    fn point()(window: u32, mean in exact(), less in 0_u16..2_000, more in 0_u16..2_000, count: u32) -> PointWire {
        let min_us = micros_of(code(mean).saturating_sub(less));
        PointWire { window, min_us, max_us: micros_of((code(mean) + more).min(code(u32::MAX))), mean_us: mean, count }
    }
}

prop_compose! {
    fn stored()(slot: u32, point in point(), buckets in prop::collection::btree_map(any::<u8>(), 1_u32.., 0..5))
        -> StoredPoint
    {
        StoredPoint { slot, point, sketch: Sketch::of_buckets(buckets) }
    }
}

prop_compose! {
    fn live()(slot: u32, age: i64, latency_us in prop::option::of(exact()), window in prop_oneof![
        Just(WindowWire::Empty), any::<u32>().prop_map(WindowWire::One), point().prop_map(WindowWire::More),
    ]) -> LiveWire {
        // A window with one measurement has its latency.
        let is_odd = matches!(window, WindowWire::One(_)) && latency_us.is_none();
        LiveWire { slot, age, latency_us, window: if is_odd { WindowWire::Empty } else { window } }
    }
}

prop_compose! {
    fn state()(num: i64, due: i64, interval_ms: Option<u64>, last_success: Option<i64>, last_polled: Option<i64>,
        rates in prop::array::uniform4(0_f32..1e6), last_report: Option<i64>, identity: i64,
        before in prop::option::of(0_u64..1_000), lives in prop::collection::vec(live(), 0..5)) -> TargetState
    {
        let schedule = StoredSchedule { identity, schedule: Schedule::new(Timestamp::from_millis(0)) };
        let mut rest = ScheduleWire::from(&schedule);
        rest.split();
        let moving = Moving { due, interval_ms, last_success, last_polled, rates };
        let rest = before.map_or(Rest::New(rest), Rest::Of);
        TargetState { num, moving, last_report, rest, lives }
    }
}

proptest! {
    #[test]
    fn points_are_restored_with_three_digits(points in prop::collection::vec(stored(), 0..20)) {
        let packed = pack(&points.iter().collect::<BlockColumns>()).unwrap();
        let restored = block(&packed).unwrap();
        prop_assert_eq!(format!("{restored:?}"), format!("{points:?}"));
    }

    #[test]
    fn a_row_is_restored(
        states in prop::collection::vec((state(), any::<bool>()), 0..5),
        points in prop::collection::vec((any::<i64>(), stored()), 0..5),
        first in 1_000_u64..1 << 40,
        at: i64,
    ) {
        let mut row = Row { at, first, ..Row::default() };
        for (state, completes) in states {
            row.push(state, |_| completes);
        }
        row.latencies.points = points;
        let latencies = deflated(&LatencyColumns::from(&row.latencies)).unwrap();
        let states = deflated(&StateColumns::from(&row)).unwrap();
        let columns = || inflated::<LatencyColumns>(&latencies).unwrap();
        let restored = columns().latencies(|_| true);
        let targets = inflated::<StateColumns>(&states).unwrap().states((at, first), &restored.singles);
        prop_assert_eq!(format!("{targets:?}"), format!("{:?}", row.targets));
        prop_assert_eq!(format!("{restored:?}"), format!("{:?}", row.latencies));
        // Those of one target are the same with and without the others.
        if let Some(num) = row.targets.first().map(|state| state.num) {
            let of_one = columns().latencies(|of| of == num);
            let singles: Vec<Single> = restored.singles.into_iter().filter(|single| single.num == num).collect();
            prop_assert_eq!(of_one.singles, singles);
        }
    }

    #[test]
    fn damaged_bytes_are_no_points_or_fewer(points in prop::collection::vec(stored(), 1..5), cut: prop::sample::Index) {
        // Columns of different lengths, as in a file that another program changed.
        let mut columns = points.iter().collect::<BlockColumns>();
        columns.counts.truncate(cut.index(points.len()));
        prop_assert_eq!(columns.points().count(), cut.index(points.len()));
        let packed = pack(&points.iter().collect::<BlockColumns>()).unwrap();
        prop_assert!(block(&packed[..packed.len() - 1]).is_none());
        prop_assert!(block(&encode(&points.len()).unwrap()).is_none_or(|points| points.is_empty()));
    }
}
