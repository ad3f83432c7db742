use super::*;
use crate::open::{Config, Store};
use crate::reader::Reader;
use crate::tables::target;
use crate::wire::PointWire;
use model::{Kind, LatencySummary, Sketch, TargetId};
use rusqlite::Connection;

const DAY: i64 = 86_400_000;
const BEGIN: i64 = 20_000;
const SLOTS: u32 = 3;

/// A database with two targets, and its reader.
struct Host {
    _folder: tempfile::TempDir,
    connection: Connection,
    reader: Reader,
    targets: [(TargetId, i64); 2],
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.db");
        let config = Config { path: path.clone(), history_days: 400, history_rows: 1_000, history_bytes: 1 << 30 };
        let now = Timestamp::from_millis(BEGIN * DAY);
        Store::lock(&config).and_then(|locked| locked.open(now, Box::new(drop))).unwrap().store.close(now);
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "synchronous", "OFF").unwrap();
        let kind = Kind::new("http").unwrap();
        let targets = [(1, "a"), (2, "b")].map(|(num, name)| {
            let id = TargetId::new(name).unwrap();
            (id.clone(), target::number(&connection, num, &id, &kind).unwrap())
        });
        Self { _folder: folder, connection, reader: Reader::new(path), targets }
    }

    /// Writes the blocks of a day: one point for each `every` windows, dependency and target.
    fn measure(&self, day: i64, every: usize) {
        self.connection.execute_batch("BEGIN").unwrap();
        for (_, num) in &self.targets {
            for hour in day * 24..(day + 1) * 24 {
                let windows = (hour * 12..(hour + 1) * 12).step_by(every);
                let points = windows.flat_map(|window| (0..SLOTS).map(move |slot| point(window, slot)));
                latency::append(&self.connection, *num, hour, points.collect()).unwrap();
            }
        }
        self.connection.execute_batch("COMMIT").unwrap();
    }

    /// Runs steps until nothing is due at the beginning of an hour of a day. Returns the number of steps.
    fn roll(&mut self, day: i64, hour: i64) -> usize {
        let now = Timestamp::from_millis(day * DAY + hour * 3_600_000);
        let limits = Limits { days: 400, rows: 1_000, bytes: 1 << 30 };
        let mut steps = 0;
        loop {
            let before = self.connection.total_changes();
            let transaction = self.connection.transaction().unwrap();
            step(&transaction, limits, now).unwrap();
            transaction.commit().unwrap();
            if self.connection.total_changes() == before {
                return steps;
            }
            steps += 1;
        }
    }

    fn latencies(&self, since: i64, hours: bool) -> Vec<LatencySummary> {
        let of = (Timestamp::from_millis(since * DAY), Some(1));
        self.reader.latencies(&self.targets[1].0, of, hours).unwrap().remove(&1).unwrap_or_default()
    }

    fn pages(&self) -> i64 {
        self.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap()
    }
}

/// A point of two measurements: one of 1 ms, and one of 3 ms more for each slot.
fn point(window: i64, slot: u32) -> StoredPoint {
    let high = 1_000 + 3_000 * slot;
    let mut sketch = Sketch::default();
    sketch.add(1.0, 1);
    sketch.add(f64::from(high) / 1000.0, 1);
    let window = u32::try_from(window).unwrap();
    let point = PointWire { window, min_us: 1_000, max_us: high, mean_us: u32::midpoint(1_000, high), count: 2 };
    StoredPoint { slot, point, sketch }
}

#[test]
fn points_become_coarser_with_age_and_none_is_lost() {
    let mut host = Host::new();
    for day in BEGIN..BEGIN + 200 {
        host.measure(day, 12);
        host.roll(day + 1, LATE_HOURS);
    }
    let today = BEGIN + 200;
    let fine = host.latencies(BEGIN, false);
    assert_eq!(fine.len() as i64, WINDOW_DAYS * 24, "points of five minutes are kept for 14 days");
    let all = host.latencies(BEGIN, true);
    assert_eq!(all.iter().map(|summary| i64::from(summary.count)).sum::<i64>(), 200 * 24 * 2, "each measurement");
    for summary in all.iter().chain(&fine) {
        assert_eq!((summary.min, summary.mean, summary.max), (1.0, 2.5, 4.0));
        assert!((3.8..=4.0).contains(&summary.p95), "{summary:?}");
    }
    let days = all.windows(2).filter(|pair| pair[1].start.since(pair[0].start).as_secs() == 86_400).count() as i64;
    let block = Tier::Day.block(today - HOUR_DAYS);
    assert_eq!(days, block - BEGIN, "days before the hours");
    let recent = host.latencies(today - 10, true);
    assert_eq!(recent.len(), 240, "hours of the last days");
}

#[test]
fn a_late_point_joins_its_day_and_a_day_is_rolled_up_only_when_it_is_over() {
    let mut host = Host::new();
    host.measure(BEGIN, 12);
    assert_eq!(host.roll(BEGIN + 1, LATE_HOURS - 1), 0, "windows may still be open");
    assert!(host.roll(BEGIN + 1, LATE_HOURS) > 0);
    latency::append(&host.connection, host.targets[1].1, BEGIN * 24, vec![point(BEGIN * 288 + 3, 1)]).unwrap();
    assert_eq!(host.latencies(BEGIN, true).len(), 24, "read from both places, as one hour");
    assert_eq!(host.roll(BEGIN + 1, LATE_HOURS), 1);
    let hours = host.latencies(BEGIN, true);
    assert_eq!((hours.len(), hours[0].count, hours[1].count), (24, 4, 2));
    assert_eq!(host.latencies(BEGIN, false).len(), 25);
    // A late point of a day whose hours have become days.
    host.roll(BEGIN + 200, 0);
    latency::append(&host.connection, host.targets[1].1, BEGIN * 24, vec![point(BEGIN * 288 + 4, 1)]).unwrap();
    host.roll(BEGIN + 200, 0);
    let days = host.latencies(BEGIN, true);
    assert_eq!((days.len(), days[0].count), (1, 52));
}

#[test]
fn the_file_does_not_grow_once_all_tiers_are_full() {
    let mut host = Host::new();
    let mut sizes = Vec::new();
    for day in BEGIN..BEGIN + 2 * 440 {
        host.measure(day, 12);
        host.roll(day + 1, LATE_HOURS);
        if day >= BEGIN + 440 && (day - BEGIN) % 32 == 0 {
            sizes.push(host.pages());
        }
    }
    let (first, second) = sizes.split_at(sizes.len() / 2);
    assert!(second.iter().max() <= first.iter().max(), "pages of the file in the second year: {sizes:?}");
    let oldest = host.latencies(BEGIN, true)[0].start.as_millis() / DAY;
    let age = BEGIN + 2 * 440 - oldest;
    assert!((400..400 + 33).contains(&age), "the oldest day is {age} days old");
}

#[test]
fn a_deleted_target_leaves_no_points_and_a_deleted_dependency_leaves_its_slot_unused() {
    let mut host = Host::new();
    for day in [BEGIN, BEGIN + 1, BEGIN + 150] {
        host.measure(day, 12);
    }
    host.roll(BEGIN + 151, LATE_HOURS);
    target::delete(&host.connection, &host.targets[1].0).unwrap();
    let count = |sql| host.connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    for tier in Tier::ALL {
        let count = |target: usize| {
            let mut points = 0;
            tier::read(&host.connection, tier, (host.targets[target].1, None, 0), |_| points += 1).unwrap();
            points
        };
        assert!(count(0) > 0 && count(1) == 0, "{tier:?}");
    }
    host.connection
        .execute(
            "INSERT INTO dependency (target, slot, name, type, status, skipped, first_seen)
             VALUES (1, 7, 'x', 'other', 'ok', 0, 0)",
            [],
        )
        .unwrap();
    target::keep_slot(&host.connection, 1, "x").unwrap();
    target::keep_slot(&host.connection, 1, "unknown").unwrap();
    assert_eq!(count("SELECT next_slot FROM target WHERE num = 1"), 8);
}

#[test]
fn a_step_is_bounded() {
    const SLOTS_OF_MANY: u32 = POINTS as u32 * 3 / 5;
    let mut host = Host::new();
    let points = |hour: i64| (0..SLOTS_OF_MANY).map(move |slot| point(hour * 12, slot)).collect();
    for hour in 0..4 {
        latency::append(&host.connection, host.targets[0].1, BEGIN * 24 + hour, points(BEGIN * 24 + hour)).unwrap();
    }
    assert_eq!(host.roll(BEGIN + 1, LATE_HOURS), 2, "two blocks exceed the points of one step");
    let sum = |tier: Tier| {
        let mut count = 0;
        tier::read(&host.connection, tier, (host.targets[0].1, None, 0), |point| count += point.point.count).unwrap();
        count
    };
    assert_eq!((sum(Tier::Window), sum(Tier::Hour)), (8 * SLOTS_OF_MANY, 8 * SLOTS_OF_MANY));
}
