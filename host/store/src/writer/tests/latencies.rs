//! The journal as a place of latencies: each point is read once, whatever was flushed, folded or killed meanwhile.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const HOUR: i64 = 3_600;

/// A step of a test. Times are seconds after the last step.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A poll that reports both dependencies, or only the first.
    Poll {
        after: i64,
        both: bool,
    },
    /// A poll with a change, which is committed at once.
    Change {
        after: i64,
    },
    Flush,
    /// A flush without the target.
    Others,
    /// The journal is folded two hours later, without the target.
    Fold,
    /// The target is deleted, and known again with its next poll.
    Forget,
    /// The state is copied for a flush after a poll changed it, and before the changes of the poll are known.
    Early {
        after: i64,
    },
    /// The host ends and starts again.
    Restart,
    /// The host is killed after its last flush, and starts again.
    Kill,
    /// The host is killed, and starts again.
    Crash,
    /// Nothing happens for more than an hour.
    Pause,
}

fn step() -> impl Strategy<Value = Step> {
    let after = prop_oneof![Just(20_i64), Just(100), Just(300), Just(301), 1_i64..2_000];
    prop_oneof![
        4 => (after.clone(), prop::bool::weighted(0.8)).prop_map(|(after, both)| Step::Poll { after, both }),
        1 => after.clone().prop_map(|after| Step::Change { after }),
        1 => after.prop_map(|after| Step::Early { after }),
        4 => Just(Step::Flush),
        1 => Just(Step::Others),
        1 => Just(Step::Fold),
        1 => Just(Step::Forget),
        1 => Just(Step::Restart),
        1 => Just(Step::Kill),
        1 => Just(Step::Crash),
        1 => Just(Step::Pause),
    ]
}

/// A host with one target, and what its database must have.
struct Host {
    folder: tempfile::TempDir,
    store: Store,
    known: KnownState,
    /// Changes since the last flush.
    waiting: crate::Changes,
    now: i64,
    status: Status,
    /// The schedule that was written last.
    stored: Option<StoredSchedule>,
    /// The points since the last flush.
    recent: Vec<(u32, i64)>,
    /// The points of completed windows by dependency and start: the number of measurements.
    expected: BTreeMap<(u32, i64), u32>,
    /// Windows of missing dependencies that were not complete when the host ended. It does not restore them, but the
    /// journal may have their points.
    lost: BTreeSet<(u32, i64)>,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, _) = open(folder.path());
        let (waiting, known) = (crate::Changes::default(), KnownState::default());
        let (expected, lost) = (BTreeMap::new(), BTreeSet::new());
        let (stored, recent) = (None, Vec::new());
        Self { folder, store, known, waiting, now: 20 * HOUR, status: Status::Ok, stored, recent, expected, lost }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Poll { after, both } => {
                let changes = self.poll(after, both);
                // A missing dependency and one that is back are committed, as the host does it.
                if changes.is_urgent() {
                    self.commit(changes);
                } else {
                    self.waiting.points.extend(changes.points);
                }
            }
            Step::Change { after } => {
                self.status = if self.status == Status::Ok { Status::Warning } else { Status::Ok };
                let changes = self.poll(after, true);
                self.commit(changes);
            }
            Step::Flush => self.flush(),
            Step::Others => self.store.writer().progress(vec![], at(self.now), true),
            Step::Fold => {
                self.now += 2 * HOUR;
                self.store.writer().progress(vec![], at(self.now), true);
            }
            Step::Forget => {
                self.store.writer().forget(id("a"));
                self.known = KnownState::default();
                self.waiting = crate::Changes::default();
                self.stored = None;
                self.recent.clear();
                self.expected.clear();
                self.lost.clear();
            }
            Step::Early { after } => {
                let changes = self.poll(after, true);
                self.flush();
                if changes.is_urgent() {
                    self.commit(changes);
                } else {
                    self.waiting.points.extend(changes.points);
                }
                self.flush();
            }
            Step::Crash => self.restart(true),
            Step::Restart | Step::Kill => {
                self.flush();
                self.restart(matches!(step, Step::Kill));
            }
            Step::Pause => self.now += HOUR + 1_000,
        }
    }

    fn poll(&mut self, after: i64, both: bool) -> crate::Changes {
        self.now += after;
        let latency = 1.0 + (self.now % 97) as f64;
        let dependency =
            |name: &str| model::Dependency { latency_ms: Some(latency), ..model::Dependency::new(name, self.status) };
        let names = if both { &["db", "queue"][..] } else { &["db"] };
        let dependencies = names.iter().map(|name| dependency(name)).collect();
        let outcome = Outcome::Success(Report { dependencies, ..Report::default() });
        let changes = self.known.merge(outcome, at(self.now), &Aliases::new());
        for (slot, window) in &changes.points {
            let before = self.expected.insert((*slot, window.point.start.as_millis()), window.point.count);
            assert_eq!(before, None, "a window is completed once");
            self.recent.push((*slot, window.point.start.as_millis()));
        }
        changes
    }

    fn schedule(&mut self) -> StoredSchedule {
        let mut stored = schedule(self.now + 30);
        stored.schedule.failures = if self.status == Status::Ok { 0 } else { 2 };
        self.stored = Some(stored.clone());
        stored
    }

    fn commit(&mut self, changes: crate::Changes) {
        let waiting = std::mem::take(&mut self.waiting);
        let changes = crate::Changes { points: waiting.points.into_iter().chain(changes.points).collect(), ..changes };
        let schedule = self.schedule();
        self.store.writer().commit(
            Commit {
                target: id("a"),
                kind: kind(),
                at: at(self.now),
                changes,
                schedule: Some(schedule),
                events: Vec::new(),
                alerts: Vec::new(),
                report: None,
            },
            None,
        );
    }

    fn flush(&mut self) {
        let changes = std::mem::take(&mut self.waiting);
        let progress = Progress::of(id("a"), kind(), self.schedule(), &self.known);
        let progress = Progress { changes, ..progress };
        self.recent.clear();
        self.store.writer().progress(vec![progress], at(self.now), true);
    }

    fn restart(&mut self, is_killed: bool) {
        let mut folder = tempfile::tempdir().unwrap();
        self.settled();
        if is_killed {
            for file in ["p.db", "p.db-wal"] {
                std::fs::copy(self.folder.path().join(file), folder.path().join(file)).unwrap();
            }
            // The old one is deleted once the killed host is gone.
            std::mem::swap(&mut self.folder, &mut folder);
        } else {
            self.store.close(at(self.now));
        }
        let (store, mut targets, _) = open(self.folder.path());
        self.store = store;
        let loaded = targets.remove(&id("a"));
        assert_eq!(loaded.as_ref().and_then(|loaded| loaded.schedule.clone()), self.stored);
        // Points since the last flush may be lost, if their windows are not restored.
        self.waiting = crate::Changes::default();
        for point in self.recent.drain(..) {
            self.expected.remove(&point);
            self.lost.insert(point);
        }
        let known = loaded.map(|loaded| loaded.known).unwrap_or_default();
        let windows = |known: &KnownState| -> BTreeSet<(u32, i64)> {
            let window = |state: &model::DependencyState| {
                state.volatile.window.map(|window| (state.record.slot, window.start.as_millis()))
            };
            known.dependencies.iter().filter_map(window).collect()
        };
        self.lost.extend(windows(&self.known).difference(&windows(&known)).copied());
        self.known = known;
    }

    /// Waits until the writer has written all that is queued.
    fn settled(&self) {
        let (sender, written) = channel();
        self.store.writer().publish(Box::new(move |_| sender.send(()).unwrap()));
        written.recv().unwrap();
    }

    /// Checks that the reader finds each point once.
    fn check(&self) {
        self.settled();
        let read = self.store.reader().latencies(&id("a"), (at(0), None), false).unwrap();
        let points = read.iter().flat_map(|(slot, points)| points.iter().map(move |point| (slot, point)));
        let found = points.map(|(slot, point)| ((*slot, point.start.as_millis()), point.count));
        let is_expected =
            |point: &((u32, i64), u32)| self.expected.contains_key(&point.0) || !self.lost.contains(&point.0);
        let mut found: Vec<((u32, i64), u32)> = found.filter(is_expected).collect();
        found.sort_unstable();
        assert_eq!(found, self.expected.clone().into_iter().collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn each_point_is_read_once(steps in prop::collection::vec(step(), 1..50)) {
        let mut host = Host::new();
        for step in steps {
            host.run(step);
            if matches!(step, Step::Flush | Step::Early { .. } | Step::Restart | Step::Kill) {
                host.check();
            }
        }
        host.flush();
        host.check();
        host.restart(false);
        host.check();
    }
}

#[test]
fn a_flush_without_changes_writes_one_page_and_the_file_does_not_grow() {
    let mut host = Host::new();
    let path = host.folder.path().join("p.db");
    let pages = |connection: &Connection| -> (i64, i64) {
        let count = |name| connection.pragma_query_value(None, name, |row| row.get(0)).unwrap();
        (count("page_count"), count("freelist_count"))
    };
    let log = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    let hour = |host: &mut Host| {
        let mut written = Vec::new();
        for _ in 0..12 {
            host.run(Step::Poll { after: 300, both: true });
            let before = log();
            host.run(Step::Flush);
            host.check();
            written.push(log() - before);
        }
        written
    };
    // Two hours, so that the first row has its size and the blocks have theirs.
    hour(&mut host);
    hour(&mut host);
    let rival = Connection::open(&path).unwrap();
    let before = pages(&rival);
    let written = hour(&mut host);
    // A page and the 24 bytes of its header in the log.
    let single = written.iter().filter(|bytes| **bytes == 2_048 + 24).count();
    assert_eq!(single, 11, "all but the fold of the hour: {written:?}");
    let after = pages(&rival);
    assert!(after.0 - before.0 <= 2 && after.1 == before.1, "only latency blocks are new: {before:?} {after:?}");
}

#[test]
fn a_window_whose_point_was_written_is_not_restored() {
    let (poll, change) = (Step::Poll { after: 300, both: true }, Step::Change { after: 300 });
    // The point of the first window is written with a flush of others, or folded, before the target's next flush.
    for writes in [Step::Others, Step::Fold] {
        let mut host = Host::new();
        for step in [poll, Step::Flush, change, writes, Step::Crash, poll, poll, Step::Flush] {
            host.run(step);
            // Each step in a transaction.
            host.settled();
        }
        host.check();
    }
}

/// Overwrites the row of the journal at a place.
fn damage(host: &Host, place: u32) {
    let sql = "UPDATE journal SET body = CAST(x'00ff' || randomblob(2005) AS BLOB) WHERE sequence = ?1";
    assert_eq!(Connection::open(host.folder.path().join("p.db")).unwrap().execute(sql, [place]).unwrap(), 1);
}

#[test]
fn a_damaged_row_costs_no_later_state_and_doubles_no_point() {
    let (poll, flush) = (Step::Poll { after: 300, both: true }, Step::Flush);
    let mut host = Host::new();
    // Nothing is folded, and the rows of the three flushes are at places 1 to 3.
    host.now += 900;
    for step in [poll, flush, poll, flush, poll, flush] {
        host.run(step);
        host.settled();
    }
    damage(&host, 2);
    // The schedule of the third row is restored, although it refers to that of the first.
    host.restart(true);
    host.run(poll);
    host.flush();
    let second = *host.expected.keys().nth(1).unwrap();
    assert!(host.expected.remove(&(0, second.1)).is_some() && host.expected.remove(&(1, second.1)).is_some());
    host.check();
}

#[test]
fn leftovers_stay_leftovers_if_the_newest_states_are_damaged() {
    let poll = Step::Poll { after: 300, both: true };
    let mut host = Host::new();
    for _ in 0..5 {
        host.run(poll);
        host.flush();
        host.settled();
    }
    host.store.close(at(host.now));
    damage(&host, 0);
    let (store, targets, _) = open(host.folder.path());
    host.store = store;
    assert_eq!(targets[&id("a")].known.last_report, Some(at(20 * HOUR + 300)), "the time of the first report");
    host.check();
}

#[test]
fn a_target_whose_row_cannot_be_read_keeps_its_number() {
    let host = Host::new();
    let path = host.folder.path().join("p.db");
    host.store.close(at(host.now));
    let sql = "INSERT INTO target (num, id, kind) VALUES (7, 'Not An Id', 'http')";
    Connection::open(&path).unwrap().execute(sql, []).unwrap();
    let mut host = Host { store: open(host.folder.path()).0, ..host };
    host.run(Step::Poll { after: 300, both: true });
    host.flush();
    host.settled();
    let num: i64 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT num FROM target WHERE id = 'a'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(num, 8);
}
