//! Tests of an open database whose files other programs change, and of a shutdown while the database cannot be written.

use super::*;
use crate::open::Opened;
use std::fs;

/// An open database, its folder, and the acknowledged events.
struct World {
    folder: tempfile::TempDir,
    store: Store,
    acknowledged: Receiver<Vec<SequencedEvent>>,
}

fn event(number: i64) -> Event {
    let kind = EventKind::SettingsChanged { what: number.to_string(), value: None };
    Event { at: at(number), kind }
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, acknowledged) = super::open(folder.path());
        // A kept read connection would keep the log open.
        store.reader().event_bounds().unwrap();
        Self { folder, store, acknowledged }
    }

    fn file(&self, ending: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("p.db{ending}"))
    }

    /// Writes events. Returns the last acknowledged number.
    fn write(&self, numbers: std::ops::Range<i64>) -> i64 {
        let count = numbers.end - numbers.start;
        numbers.for_each(|number| self.store.writer().event(event(number)));
        (0..count).map(|_| self.acknowledged.recv().unwrap()[0].sequence.unwrap()).last().unwrap()
    }

    fn trouble(&self) -> String {
        eventually("the writer notices the damage", || self.store.writer().trouble())
    }
}

/// The text that the error must contain, and the damage done to the file.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

/// Returns the event numbers in a closed database.
fn stored(path: &Path) -> Vec<i64> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare("SELECT sequence FROM event ORDER BY sequence").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn a_deleted_log_loses_no_acknowledged_event() {
    let world = World::new();
    world.write(0..100);
    for ending in ["-wal", "-shm"] {
        fs::remove_file(world.file(ending)).unwrap();
    }
    let last = world.write(100..200);
    // The state after a kill: only the content on disk remains.
    let copy = tempfile::tempdir().unwrap();
    for ending in ["", "-wal"] {
        fs::copy(world.file(ending), copy.path().join(format!("p.db{ending}"))).unwrap();
    }
    assert_eq!(stored(&copy.path().join("p.db")), (1..=last).collect::<Vec<_>>());
    world.store.close(at(300));
    assert_eq!(stored(&world.file("")), (1..=200).collect::<Vec<_>>());
}

#[test]
fn a_proper_end_leaves_one_file_with_all_events() {
    let world = World::new();
    let last = world.write(0..10);
    world.store.close(at(20));
    assert!(fs::metadata(world.file("-wal")).map_or(0, |wal| wal.len()) == 0, "the log is folded");
    assert_eq!(stored(&world.file("")).last(), Some(&last));
    assert!(world.store.reader().event_bounds().is_err(), "it is closed");
}

#[test]
fn a_deleted_database_is_written_again() {
    let world = World::new();
    world.write(0..10);
    for ending in ["", "-wal", "-shm"] {
        fs::remove_file(world.file(ending)).unwrap();
    }
    let last = world.write(10..20);
    assert_eq!(world.store.writer().trouble(), None);
    assert_eq!(world.store.reader().event_bounds().unwrap(), (1, last));
    world.store.close(at(30));
    assert_eq!(stored(&world.file("")), (1..=20).collect::<Vec<_>>());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(world.file("")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn results_are_written_to_a_replaced_database_at_the_next_start() {
    let world = World::new();
    world.write(0..10);
    // An operator restores an older copy.
    let copy = world.folder.path().join("copy");
    world.store.reader().event_bounds().unwrap();
    Connection::open(world.file("")).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    fs::rename(&copy, world.file("")).unwrap();
    let trouble = world.trouble();
    assert!(trouble.contains("replaced"), "{trouble}");
    world.store.writer().event(event(10));
    let mut known = KnownState::default();
    world.store.writer().commit(commit(&mut known, report(Status::Critical, 4.0), 20), None);
    world.store.writer().progress(vec![progress(&known, 50)], at(30), true);
    world.store.close(at(40));
    assert!(
        world.acknowledged.try_recv().is_err(),
        "an event is not acknowledged unless it is in the file at the path"
    );
    assert!(world.file("-spill").exists());

    let World { folder, store, .. } = world;
    drop(store);
    let (store, mut loaded, _) = super::open(folder.path());
    let loaded = loaded.remove(&id("a")).unwrap();
    assert_eq!(loaded.known.dependencies, known.dependencies);
    assert_eq!(loaded.schedule, Some(schedule(50)));
    assert_eq!(store.reader().event_bounds().unwrap(), (1, 11));
    assert!(!folder.path().join("p.db-spill").exists());
}

#[test]
fn a_truncated_or_overwritten_database_is_detected_and_reported_at_the_next_start() {
    for damage in [
        |file: &Path| fs::write(file, "garbage"),
        |file: &Path| {
            use std::os::unix::fs::FileExt;
            fs::OpenOptions::new().write(true).open(file)?.write_all_at(&[0; 4096], 0)
        },
    ] {
        let world = World::new();
        world.write(0..100);
        damage(&world.file("")).unwrap();
        let trouble = world.trouble();
        assert!(trouble.contains("overwritten"), "{trouble}");
        world.store.writer().event(event(100));
        let World { folder, store, .. } = world;
        store.close(at(200));
        drop(store);
        let config = Config { path: folder.path().join("p.db"), history_days: 1, history_rows: 1, history_bytes: 1 };
        // SQLite may recover everything from the log.
        match Store::lock(&config).and_then(|locked| locked.open(at(0), Box::new(drop))) {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("damaged") || text.contains("another program"), "{text}");
                assert!(!text.contains("SELECT") && !text.contains("column type"), "{text}");
                assert!(folder.path().join("p.db-spill").exists(), "unwritten results wait for an intact database");
            }
            Ok(Opened { store, .. }) => assert_eq!(store.reader().event_bounds().unwrap().1, 101),
        }
    }
}

#[test]
fn a_damaged_database_is_reported_at_the_start_with_its_backup() {
    let run = |sql: &'static str| {
        move |file: &Path| {
            let connection = Connection::open(file).unwrap();
            connection.pragma_update(None, "journal_mode", "WAL").unwrap();
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            connection.execute_batch(sql).unwrap();
        }
    };
    let cut = |file: &Path| {
        run("")(file);
        let half = fs::metadata(file).unwrap().len() / 2;
        fs::OpenOptions::new().write(true).open(file).unwrap().set_len(half).unwrap();
    };
    let torn = |file: &Path| {
        use std::os::unix::fs::FileExt;
        run("")(file);
        let sql = "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'event'";
        let pages = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?));
        let (page, size) = Connection::open(file).unwrap().query_row(sql, [], pages).unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(file)
            .unwrap()
            .write_all_at(&vec![0xAA; size as usize], u64::from(page - 1) * u64::from(size))
            .unwrap();
    };
    let drop_event = run("DROP TABLE event");
    let damages: [Damage<'_>; 3] = [("event", &drop_event), ("p.db", &cut), ("damaged", &torn)];
    for (named, damage) in damages {
        let World { folder, store, acknowledged } = World::new();
        (0..100).for_each(|number| store.writer().event(event(number)));
        (0..100).for_each(|_| drop(acknowledged.recv().unwrap()));
        // A killed host leaves its journal open.
        store.writer().progress(vec![], at(101), false);
        drop(store);
        fs::write(folder.path().join("p.db.v2.bak"), "").unwrap();
        damage(&folder.path().join("p.db"));
        let config = Config { path: folder.path().join("p.db"), history_days: 1, history_rows: 1, history_bytes: 1 };
        let text = match Store::lock(&config).and_then(|locked| locked.open(at(0), Box::new(drop))) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("a damaged database was opened ({named})"),
        };
        assert!(text.contains("damaged") && text.contains("p.db.v2.bak") && text.contains(named), "{text}");
    }
}

#[test]
fn the_lock_holds_after_its_file_is_deleted() {
    let world = World::new();
    fs::remove_file(world.file("-lock")).unwrap();
    let config = Config { path: world.file(""), history_days: 1, history_rows: 1, history_bytes: 1 };
    let second = Store::lock(&config).and_then(|locked| locked.open(at(0), Box::new(drop)));
    assert!(matches!(second, Err(OpenError::InUse { .. })));
}

#[test]
fn an_implausible_clock_does_not_expire_history() {
    let world = World::new();
    world.write(0..10);
    let far = 400 * 24 * 3600;
    world.store.writer().progress(vec![], at(far), false);
    world.write(far..far + 1);
    assert_eq!(world.store.reader().event_bounds().unwrap(), (1, 11));
    world.store.writer().progress(vec![], at(far), true);
    world.write(far + 1..far + 2);
    assert_eq!(world.store.reader().event_bounds().unwrap().0, 11, "a year is the limit");
}

#[test]
fn a_target_with_much_history_does_not_displace_the_history_of_others() {
    let world = World::new();
    let of = |target: &str, number: i64| Event {
        at: at(number),
        kind: EventKind::PollError {
            target: id(target),
            category: model::FailureCategory::Transient,
            code: "x".to_owned(),
            message: "m".repeat(if target == "wide" { 100_000 } else { 10 }),
        },
    };
    let writer = world.store.writer();
    for number in 0..12 {
        writer.event(of("quiet", number));
    }
    for number in 0..500 {
        writer.event(of("loud", number));
    }
    for number in 0..20 {
        writer.event(of("wide", number));
        writer.progress(vec![], at(1000), true);
    }
    world.store.close(at(2000));
    let connection = Connection::open(world.file("")).unwrap();
    let count = |target: &str| -> i64 {
        connection.query_row("SELECT count(*) FROM event WHERE target = ?1", [target], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("quiet"), 12, "a small history is kept");
    assert!(count("loud") <= 38 && count("loud") >= 10, "{}", count("loud"));
    let bytes: i64 = connection.query_row("SELECT sum(octet_length(body)) FROM event", [], |row| row.get(0)).unwrap();
    assert!(bytes <= 1 << 20 && count("wide") >= 5, "{bytes} {}", count("wide"));
    let newest: i64 =
        connection.query_row("SELECT max(at) FROM event WHERE target = 'loud'", [], |row| row.get(0)).unwrap();
    assert_eq!(newest, 499_000, "the oldest go first");
}

#[test]
fn a_shutdown_with_a_locked_database_ends_in_time_and_keeps_all_results() {
    let world = World::new();
    world.write(0..3);
    let other = Connection::open(world.file("")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for number in 3..10 {
        world.store.writer().event(event(number));
    }
    world.store.close(at(20));
    assert!(world.acknowledged.try_recv().is_err());
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    let World { folder, store, .. } = world;
    drop(store);
    let (store, _, _) = super::open(folder.path());
    assert_eq!(store.reader().event_bounds().unwrap(), (1, 10));
}
