use super::*;
use crate::load::Loaded;
use crate::open::{Config, OpenError, Store};
use crate::record::StoredSchedule;
use crate::{Aliases, KnownState};
use model::{
    Breaker, BreakerState, DeadLetter, DeadReason, EventKind, Kind, Outcome, Rate, Rates, Report, Schedule, Status,
    StatusChange,
};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

mod latencies;
mod sabotage;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn id(name: &str) -> TargetId {
    TargetId::new(name).unwrap()
}

fn kind() -> Kind {
    Kind::new("http").unwrap()
}

fn open(folder: &Path) -> (Store, HashMap<TargetId, Loaded>, Receiver<Vec<SequencedEvent>>) {
    let config = Config { path: folder.join("p.db"), history_days: 365, history_rows: 50, history_bytes: 1 << 20 };
    let (sender, receiver) = channel();
    let announce = Box::new(move |events| drop(sender.send(events)));
    let opened = Store::lock(&config).and_then(|locked| locked.open(at(0), announce)).unwrap();
    (opened.store, opened.targets, receiver)
}

fn schedule(due: i64) -> StoredSchedule {
    let rate = |changes, seconds| Rate { changes, seconds };
    let schedule = Schedule {
        due: at(due),
        interval: Some(Duration::from_secs(30)),
        failures: 2,
        first_failure: Some(at(1)),
        last_cause: Some(model::Cause::Unreachable),
        plugin_faults: 1,
        breaker: Breaker { state: BreakerState::Open, open_for: Some(Duration::from_secs(40)), since: Some(at(2)) },
        dead: Some(DeadLetter { reason: DeadReason::Permanent, since: at(3), last_attempt: at(4), retries: 5 }),
        revived: true,
        last_success: Some(at(6)),
        last_polled: Some(at(7)),
        last_change: None,
        critical: true,
        rates: Rates { quiet: rate(1.0, 2.0), trouble: rate(3.0, 4.0) },
    };
    StoredSchedule { identity: -7, schedule }
}

fn report(status: Status, latency: f64) -> Outcome {
    let dependency = model::Dependency { latency_ms: Some(latency), ..model::Dependency::new("db", status) };
    Outcome::Success(Report { dependencies: vec![dependency], warnings: vec!["w".to_owned()], ..Report::default() })
}

fn commit(known: &mut KnownState, outcome: Outcome, seconds: i64) -> Commit {
    let changes = known.merge(outcome, at(seconds), &Aliases::new());
    let events = changes.transitions.iter().map(|t| Event {
        at: at(seconds),
        kind: EventKind::StatusChange {
            target: id("a"),
            dependency: t.dependency.clone(),
            previous: t.previous,
            current: t.current,
        },
    });
    Commit {
        target: id("a"),
        kind: kind(),
        at: at(seconds),
        events: events.collect(),
        schedule: Some(schedule(seconds)),
        changes,
        alerts: Vec::new(),
        report: None,
    }
}

fn progress(known: &KnownState, due: i64) -> Progress {
    Progress::of(id("a"), kind(), schedule(due), known)
}

/// Waits for the writer, for up to two minutes, as the machine may be busy. Panics if `read` returns nothing so long.
fn eventually<T>(expected: &str, mut read: impl FnMut() -> Option<T>) -> T {
    let found = (0..24_000).find_map(|_| {
        thread::park_timeout(Duration::from_millis(5));
        read()
    });
    found.unwrap_or_else(|| panic!("not within two minutes: {expected}"))
}

#[test]
fn what_a_plugin_stores_lasts_until_its_target_is_forgotten_or_is_of_another_kind() {
    let folder = tempfile::tempdir().unwrap();
    let values = |text: &str| Arc::new([("key".to_owned(), text.as_bytes().to_vec())].into());
    let stored = |kind: Kind| {
        let (store, loaded, _) = open(folder.path());
        store.close(at(900));
        loaded.get(&id("a")).map(|loaded| (loaded.kind == kind, loaded.known.values.get("key").cloned()))
    };
    let (store, _, acknowledged) = open(folder.path());
    let mut known = KnownState::default();
    let mut first = commit(&mut known, report(Status::Ok, 4.0), 10);
    known.keep_values(values("one"), &mut first.changes);
    assert!(!crate::Changes { values: Some(values("one")), ..Default::default() }.is_urgent(), "they wait for others");
    store.writer().commit(first, None);
    acknowledged.recv().unwrap();
    store.close(at(20));
    assert_eq!(stored(kind()), Some((true, Some(b"one".to_vec()))));
    // With a flush.
    let (store, _, _) = open(folder.path());
    let mut later = progress(&known, 30);
    known.keep_values(values("two"), &mut later.changes);
    store.writer().progress(vec![later], at(40), true);
    store.close(at(50));
    assert_eq!(stored(kind()), Some((true, Some(b"two".to_vec()))));
    let (store, _, _) = open(folder.path());
    store.writer().forget(id("a"));
    store.close(at(60));
    assert_eq!(stored(kind()), None);
    let count = "SELECT count(*) FROM plugin_value";
    let connection = Connection::open(folder.path().join("p.db")).unwrap();
    assert_eq!(connection.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[test]
fn committed_state_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (store, loaded, acknowledged) = open(folder.path());
    assert!(loaded.is_empty());
    let mut known = KnownState::default();
    store.writer().commit(commit(&mut known, report(Status::Ok, 4.0), 10), None);
    store.writer().commit(commit(&mut known, report(Status::Critical, 5.0), 20), None);
    assert_eq!(acknowledged.recv().unwrap(), []);
    assert_eq!(acknowledged.recv().unwrap()[0].sequence, Some(1));
    store.writer().progress(vec![progress(&known, 50)], at(30), true);
    let gauges = store.writer().gauges();
    eventually("no flush is counted as queued", || (gauges.flushes.load(Ordering::Relaxed) == 0).then_some(()));
    store.close(at(1_000_000));

    let (store, mut loaded, _) = open(folder.path());
    let loaded = loaded.remove(&id("a")).unwrap();
    assert_eq!(loaded.schedule, Some(schedule(50)));
    assert_eq!(loaded.known.dependencies, known.dependencies);
    assert_eq!((loaded.known.warnings, loaded.known.last_report), (known.warnings, Some(at(20))));
    let history = store.reader().history(&id("a"), at(0)).unwrap();
    let (previous, current) = (Status::Ok, Status::Critical);
    assert_eq!(history.statuses, [StatusChange { dependency: "db".to_owned(), previous, current, at: at(20) }]);
    assert_eq!(history.errors[0].message.as_deref(), Some("Unhealthy"));
}

#[test]
fn a_kill_loses_only_progress_that_was_not_queued() {
    let folder = tempfile::tempdir().unwrap();
    let killed = tempfile::tempdir().unwrap();
    let (store, _, acknowledged) = open(folder.path());
    let mut known = KnownState::default();
    store.writer().commit(commit(&mut known, report(Status::Ok, 4.0), 10), None);
    store.writer().progress(vec![progress(&known, 40)], at(30), true);
    // A later urgent change of the schedule takes precedence over the journal.
    store.writer().commit(commit(&mut known, report(Status::Warning, 4.0), 45), None);
    acknowledged.recv().unwrap();
    acknowledged.recv().unwrap();
    // The state after a kill: database and WAL, neither folded nor closed.
    for file in ["p.db", "p.db-wal"] {
        std::fs::copy(folder.path().join(file), killed.path().join(file)).unwrap();
    }
    let (_store, mut loaded, _) = open(killed.path());
    let loaded = loaded.remove(&id("a")).unwrap();
    assert_eq!(loaded.schedule, Some(schedule(45)));
    let db = loaded.known.get("db").unwrap();
    assert_eq!((db.record.reported.status, db.volatile.latency_ms), (Status::Warning, Some(4.0)));
    assert_eq!(loaded.known.last_report, Some(at(10)), "progress comes from the journal");
}

#[test]
fn the_event_sequence_continues_after_all_events_were_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _, acknowledged) = open(folder.path());
    for n in 0..200 {
        store.writer().event(Event { at: at(n), kind: EventKind::ServiceStarted { target: id("a") } });
    }
    for _ in 0..200 {
        acknowledged.recv().unwrap();
    }
    for n in 0..i64::from(FOLD) {
        store.writer().progress(vec![], at(n), true);
    }
    store.close(at(1_000_000));
    let (store, _, acknowledged) = open(folder.path());
    assert_eq!(store.reader().event_bounds().unwrap(), (151, 200), "the newest 50 are kept");
    assert_eq!(store.reader().events_after(198, 10).unwrap().len(), 2);
    store.writer().progress(vec![], at(400 * 24 * 3600), true);
    store.close(at(1_000_000));
    let (store, _, _) = open(folder.path());
    store.writer().event(Event { at: at(1), kind: EventKind::ServiceStopped { target: id("a") } });
    store.close(at(1_000_000));
    drop(acknowledged);
    let (store, _, _) = open(folder.path());
    assert_eq!(store.reader().event_bounds().unwrap(), (201, 201), "all events were too old; the sequence continues");
}

#[test]
fn latency_points_are_folded_into_blocks_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _, _) = open(folder.path());
    let mut known = KnownState::default();
    store.writer().commit(commit(&mut known, report(Status::Ok, 4.0), 0), None);
    for step in 1..40 {
        let changes = known.merge(report(Status::Ok, f64::from(step)), at(i64::from(step) * 150), &Aliases::new());
        store.writer().progress(vec![Progress { changes, ..progress(&known, 0) }], at(i64::from(step) * 150), true);
    }
    store.close(at(1_000_000));
    let (store, loaded, _) = open(folder.path());
    let slot = loaded[&id("a")].known.dependencies[0].record.slot;
    let points = store.reader().latencies(&id("a"), (at(300), None), false).unwrap().remove(&slot).unwrap();
    assert_eq!(points.len(), 18);
    assert_eq!((points[0].start, points[0].min, points[0].max, points[0].count), (at(300), 2.0, 3.0, 2));
    assert!(points.windows(2).all(|pair| pair[0].start < pair[1].start));
}

#[test]
fn a_forgotten_target_is_deleted_and_can_be_added_again() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _, _) = open(folder.path());
    store.writer().commit(commit(&mut KnownState::default(), report(Status::Critical, 4.0), 10), None);
    store.writer().forget(id("a"));
    store.writer().commit(commit(&mut KnownState::default(), report(Status::Ok, 4.0), 20), None);
    store.close(at(1_000_000));
    let (store, loaded, _) = open(folder.path());
    assert_eq!(loaded[&id("a")].known.dependencies[0].record.first_seen, at(20));
    assert!(store.reader().history(&id("a"), at(0)).unwrap().errors.is_empty());
    store.writer().forget(id("a"));
    store.close(at(1_000_000));
    assert!(open(folder.path()).1.is_empty());
}

#[test]
fn a_second_host_cannot_open_a_database_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, _, _) = open(folder.path());
    let config = Config { path: folder.path().join("p.db"), history_days: 1, history_rows: 1, history_bytes: 1 << 20 };
    let error = Store::lock(&config).and_then(|locked| locked.open(at(0), Box::new(drop))).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let config = Config { path: folder.path().join("broken.db"), ..config };
    std::fs::write(&config.path, "this is no database, although it is long enough to look like a file of one").unwrap();
    let error = Store::lock(&config).and_then(|locked| locked.open(at(0), Box::new(drop))).err().unwrap();
    assert!(error.to_string().contains("broken.db"), "{error}");
}

#[test]
fn a_failed_commit_is_retried_and_acknowledged_only_on_success() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _, acknowledged) = open(folder.path());
    let rival = Connection::open(folder.path().join("p.db")).unwrap();
    rival.execute_batch("DROP TABLE transition").unwrap();
    let mut known = KnownState::default();
    store.writer().commit(commit(&mut known, report(Status::Ok, 4.0), 10), None);
    acknowledged.recv().unwrap();
    store.writer().commit(commit(&mut known, report(Status::Critical, 4.0), 20), None);
    let gauges = store.writer().gauges();
    eventually("a failure is counted", || (gauges.failures.load(Ordering::Relaxed) > 0).then_some(()));
    assert!(acknowledged.try_recv().is_err(), "not acknowledged before it is on disk");
    rival
        .execute_batch("CREATE TABLE transition (id INTEGER PRIMARY KEY, target, dependency, previous, current, at)")
        .unwrap();
    assert_eq!(acknowledged.recv().unwrap().len(), 1);
}

#[test]
fn the_next_start_detects_a_kill_but_not_a_proper_end() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { path: folder.path().join("p.db"), history_days: 1, history_rows: 1, history_bytes: 1 << 20 };
    let open = |now| Store::lock(&config).and_then(|locked| locked.open(at(now), Box::new(drop))).unwrap();
    let first = open(100);
    assert_eq!(first.forgotten_until, None);
    first.store.writer().progress(vec![], at(120), true);
    drop(first);
    let second = open(200);
    assert_eq!(second.forgotten_until, Some(at(150)), "30 s after the last flush");
    drop(second);
    let third = open(300);
    assert_eq!(third.forgotten_until, Some(at(230)), "30 s after a start without a flush");
    third.store.close(at(310));
    assert_eq!(open(400).forgotten_until, None);
}
