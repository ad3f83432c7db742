use super::*;
use crate::record::StoredSchedule;
use crate::wire::{deflated, encode, inflated, pack};
use model::{Schedule, Timestamp};
use proptest::prelude::*;

/// A time in microseconds that is its own rounded value.
fn exact() -> impl Strategy<Value = u32> {
    any::<u32>().prop_map(|us| micros(code(us)))
}

prop_compose! {
    fn point()(window: u32, mean in exact(), less in 0_u16..2_000, more in 0_u16..2_000, count: u32) -> PointWire {
        let min_us = micros(code(mean).saturating_sub(less));
        PointWire { window, min_us, max_us: micros((code(mean) + more).min(code(u32::MAX))), mean_us: mean, count }
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
        LiveWire { slot, age, latency_us, window }
    }
}

prop_compose! {
    fn entry()(due: i64, interval_ms: Option<u64>, last_success: Option<i64>, last_polled: Option<i64>,
        rates in prop::array::uniform4(0_f32..1e6), last_report: Option<i64>, identity: i64, is_new: bool)
        -> ScheduleEntry
    {
        let schedule = StoredSchedule { identity, schedule: Schedule::new(Timestamp::from_millis(0)) };
        let mut rest = ScheduleWire::from(&schedule);
        rest.split();
        let moving = Moving { due, interval_ms, last_success, last_polled, rates };
        ScheduleEntry { moving, last_report, rest: is_new.then_some(rest) }
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
    fn latencies_of_a_row_are_restored(
        lives in prop::collection::vec((any::<i64>(), prop::collection::vec(live(), 0..5)), 0..5),
        points in prop::collection::vec((any::<i64>(), stored()), 0..5),
    ) {
        let measured = Measurements { lives, points };
        let packed = deflated(&MeasurementColumns::from(&measured)).unwrap();
        let restored = Measurements::from(inflated::<MeasurementColumns>(&packed).unwrap());
        prop_assert_eq!(format!("{restored:?}"), format!("{measured:?}"));
    }

    #[test]
    fn schedules_of_a_row_are_restored(entries in prop::collection::vec(entry(), 0..5), at: i64) {
        let packed = deflated(&ScheduleColumns::new(entries.clone(), at)).unwrap();
        let restored = inflated::<ScheduleColumns>(&packed).unwrap().entries(at).collect::<Vec<_>>();
        prop_assert_eq!(format!("{restored:?}"), format!("{entries:?}"));
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
