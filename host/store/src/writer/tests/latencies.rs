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
    /// Another target is deleted, which folds the journal.
    Fold,
    /// The target is deleted. The next one has its number.
    Forget,
    /// The host ends and starts again.
    Restart,
    /// The host is killed after its last flush, and starts again.
    Kill,
    /// Nothing happens for more than an hour.
    Pause,
}

fn step() -> impl Strategy<Value = Step> {
    let after = prop_oneof![Just(20_i64), Just(100), Just(300), Just(301), 1_i64..2_000];
    prop_oneof![
        4 => (after.clone(), prop::bool::weighted(0.8)).prop_map(|(after, both)| Step::Poll { after, both }),
        1 => after.prop_map(|after| Step::Change { after }),
        4 => Just(Step::Flush),
        1 => Just(Step::Fold),
        1 => Just(Step::Forget),
        1 => Just(Step::Restart),
        1 => Just(Step::Kill),
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
        Self { folder, store, known, waiting, now: 20 * HOUR, status: Status::Ok, expected, lost }
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
            Step::Fold => self.store.writer().forget(id("b"), at(self.now)),
            Step::Forget => {
                self.store.writer().forget(id("a"), at(self.now));
                self.known = KnownState::default();
                self.waiting = crate::Changes::default();
                self.expected.clear();
                self.lost.clear();
            }
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
        }
        changes
    }

    fn commit(&mut self, changes: crate::Changes) {
        let waiting = std::mem::take(&mut self.waiting);
        let changes = crate::Changes { points: waiting.points.into_iter().chain(changes.points).collect(), ..changes };
        self.store.writer().commit(
            Commit {
                target: id("a"),
                kind: kind(),
                at: at(self.now),
                changes,
                schedule: Some(schedule(self.now)),
                events: Vec::new(),
                alerts: Vec::new(),
                report: None,
            },
            None,
        );
    }

    fn flush(&mut self) {
        let changes = std::mem::take(&mut self.waiting);
        let progress = Progress { changes, ..progress(&self.known, self.now + 30) };
        self.store.writer().progress(vec![progress], at(self.now), true);
    }

    fn restart(&mut self, is_killed: bool) {
        let mut folder = tempfile::tempdir().unwrap();
        let gauges = self.store.writer().gauges();
        eventually("the flush is on disk", || (gauges.flushes.load(Ordering::Relaxed) == 0).then_some(()));
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
        if let Some(loaded) = &loaded {
            assert_eq!(loaded.schedule.as_ref().map(|stored| stored.schedule.due), Some(at(self.now + 30)));
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

    /// Checks that the reader finds each point once.
    fn check(&self) {
        let gauges = self.store.writer().gauges();
        eventually("all is on disk", || {
            (gauges.flushes.load(Ordering::Relaxed) + gauges.queued.load(Ordering::Relaxed) == 0).then_some(())
        });
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
            if matches!(step, Step::Flush | Step::Restart | Step::Kill) {
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
