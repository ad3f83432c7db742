use super::*;
use crate::open::{Config, Opened, Store};
use crate::record::StoredSchedule;
use crate::tables::target;
use crate::wire::encode;
use flate2::Compression;
use flate2::read::DeflateEncoder;
use model::{Kind, Schedule, TargetId, Timestamp};
use rusqlite::params;
use std::io::Read;
use std::path::Path;

/// Compresses a value as versions 4 to 12 did.
fn pack<T: Serialize>(value: &T) -> Vec<u8> {
    let mut packed = vec![COMPRESSED];
    let plain = encode(value).unwrap();
    DeflateEncoder::new(plain.as_slice(), Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

fn journal() -> Journal {
    let point = |n: u32| PointWire { window: n, min_us: 4, max_us: 9 + n, mean_us: 5, count: 2 };
    let live = |slot: u32, window: WindowWire| LiveWire { slot, age: -3, latency_us: Some(slot), window };
    let schedule = StoredSchedule { identity: -7, schedule: Schedule::new(Timestamp::from_millis(5)) };
    let snapshot = |version: u64, volatile: Vec<LiveWire>| Snapshot {
        version,
        schedule: ScheduleWire::from(&schedule),
        last_report: Some(12),
        volatile,
    };
    Journal {
        at: 1_784_000_000_000,
        ended: false,
        snapshots: vec![
            (3, snapshot(1, vec![live(0, WindowWire::One(7)), live(1, WindowWire::More(point(1)))])),
            (4, snapshot(2, Vec::new())),
            (9, snapshot(3, vec![live(5, WindowWire::Empty), live(6, WindowWire::One(8))])),
        ],
    }
}

#[test]
fn rows_of_the_journal_are_read() {
    let journal = journal();
    let owned = [(5, StoredPoint { slot: 1, point: point(), sketch: Sketch::of_buckets([(3, 1), (200, 2)]) })];
    let owned = pack(&OwnedColumns::new(&owned));
    // Not compressed until version 3, without a column of points until version 5.
    let cases = [
        (encode(&journal).unwrap(), None, 0),
        (pack(&JournalColumns::from(&journal)), None, 0),
        (pack(&JournalColumns::from(&journal)), Some(owned.as_slice()), 1),
    ];
    for (body, points, count) in cases {
        let row = row(&body, points).unwrap();
        assert_eq!((row.at, row.ended, row.first, row.last()), (journal.at, false, 1, 3));
        assert_eq!(row.latencies.points.len(), count);
        let snapshots = row.targets.into_iter().zip(1..).map(|(state, version)| {
            let TargetState { num, moving, last_report, rest: Rest::New(rest), lives } = state else { panic!() };
            (num, Snapshot { version, schedule: rest.with(moving), last_report, volatile: lives })
        });
        let restored = Journal { at: row.at, ended: row.ended, snapshots: snapshots.collect() };
        assert_eq!(encode(&restored).unwrap(), encode(&journal).unwrap());
    }
    let packed = pack(&JournalColumns::from(&journal));
    assert!(row(&packed[..packed.len() / 2], None).is_none());
    assert!(row(&[], None).is_none());
    assert_eq!(row(&packed, Some(&owned[..4])).unwrap().latencies.points.len(), 0, "damaged points are left out");
}

fn point() -> PointWire {
    PointWire { window: 7, min_us: 4, max_us: 9, mean_us: 5, count: 3 }
}

#[test]
fn blocks_are_read_with_their_distributions_and_without() {
    let sketch = Sketch::of_buckets([(3, 1), (200, 2)]);
    let points = [(1, sketch.clone()), (2, Sketch::default()), (3, sketch)];
    let points = points.map(|(slot, sketch)| StoredPoint { slot, point: point(), sketch });
    let same = |restored: &[StoredPoint], with: bool| {
        assert_eq!(restored.len(), points.len());
        for (restored, point) in restored.iter().zip(&points) {
            assert_eq!((restored.slot, restored.summary().max), (point.slot, point.summary().max));
            let sketch = if with { point.sketch.clone() } else { Sketch::default() };
            assert_eq!(restored.sketch, sketch);
        }
    };
    let packed = pack(&points.iter().collect::<BlockColumns>());
    same(&block(&packed).unwrap(), true);
    assert!(block(&packed[..packed.len() - 4]).is_none());
    let earlier = || points.iter().map(|point| (point.slot, point.point));
    same(&block(&pack(&earlier().collect::<PointColumns>())).unwrap(), false);
    same(&block(&encode(&earlier().collect::<Vec<_>>()).unwrap()).unwrap(), false);
}

fn open(path: &Path) -> Opened {
    let config = Config { path: path.to_owned(), history_days: 90, history_rows: 1_000, history_bytes: 1 << 30 };
    let now = Timestamp::from_millis(0);
    Store::lock(&config).and_then(|locked| locked.open(now, Box::new(drop))).unwrap()
}

#[test]
fn a_database_of_the_version_before_keeps_its_state_and_its_latencies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.db");
    let id = TargetId::new("a").unwrap();
    {
        let connection = crate::schema::create(&path, 12);
        let num = target::number(&connection, 1, &id, &Kind::new("http").unwrap()).unwrap();
        let Journal { at, ended, mut snapshots } = journal();
        snapshots.truncate(1);
        snapshots[0].0 = num;
        let body = pack(&JournalColumns::from(&Journal { at, ended, snapshots }));
        // One point in the journal, one in a block.
        let stored =
            |window| StoredPoint { slot: 0, point: PointWire { window, ..point() }, sketch: Sketch::default() };
        let owned = pack(&OwnedColumns::new(&[(num, stored(5))]));
        let block = pack(&[stored(4)].iter().collect::<BlockColumns>());
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| connection.execute(sql, values).unwrap();
        run("DELETE FROM journal", &[]);
        run("INSERT INTO journal (body, points) VALUES (?1, ?2)", params![body, owned]);
        run("INSERT INTO latency_recent (id, points) VALUES (?1, ?2)", params![num, block]);
    }
    // Read from the rows as they are, then as this version writes them.
    for _ in 0..3 {
        let Opened { store, targets, .. } = open(&path);
        let loaded = &targets[&id];
        assert_eq!(loaded.schedule.as_ref().unwrap().identity, -7);
        assert_eq!(loaded.known.last_report, Some(Timestamp::from_millis(12)));
        let latencies = store.reader().latencies(&id, (Timestamp::from_millis(0), Some(0)), false).unwrap();
        let windows = latencies[&0].iter().map(|summary| summary.start.as_millis() / 300_000);
        assert_eq!(windows.collect::<Vec<_>>(), [4, 5]);
        store.close(Timestamp::from_millis(0));
    }
}
