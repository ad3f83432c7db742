//! The bytes that the database writes on a day on which nothing changes.
//!
//! `cargo bench -p store --bench day` lets 1,000 targets with 10 dependencies each report every 5 minutes for a day,
//! with a flush every 25 s, as a host with the default cadence does. It prints the bytes that the process wrote, with
//! the write-ahead log and its checkpoints, from `/proc/self/io`, and the size of the files.

use model::{
    Breaker, BreakerState, Dependency, Kind, Outcome, Rate, Rates, Report, Schedule, Status, TargetId, Timestamp,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Aliases, Commit, Config, KnownState, Progress, Store, StoredSchedule};

const TARGETS: usize = 1_000;
const DEPENDENCIES: usize = 10;
/// Seconds between the polls of a target.
const INTERVAL: i64 = 300;
/// Seconds between flushes.
const FLUSH: i64 = 25;
const DAY: i64 = 86_400;

fn main() -> Result<(), Box<dyn Error>> {
    // Next to the target directory, because a temporary directory may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = folder.path().join("polliwog.db");
    let config = Config { path: path.clone(), history_days: 90, history_rows: 1_000_000, history_bytes: 4 << 30 };
    let begin = 1_784_000_000;
    let store = Store::lock(&config).and_then(|locked| locked.open(at(begin), Box::new(drop)))?.store;
    let mut random = Random(7);
    let mut known: Vec<KnownState> = (0..TARGETS).map(|_| KnownState::default()).collect();
    // The first report of each target, before the measurement: new dependencies are committed at once.
    for (n, known) in known.iter_mut().enumerate() {
        let changes = known.merge(report(&mut random), at(begin), &Aliases::new());
        let schedule = Some(schedule(n, at(begin), at(begin)));
        store.writer().commit(
            Commit {
                target: id(n),
                kind: kind(),
                at: at(begin),
                changes,
                schedule,
                events: Vec::new(),
                alerts: Vec::new(),
                report: None,
            },
            None,
        );
    }
    wait(&store);
    let before = written()?;
    for flush in 1..=DAY / FLUSH {
        let (from, to) = (begin + (flush - 1) * FLUSH, begin + flush * FLUSH);
        let mut gathered: BTreeMap<usize, Progress> = BTreeMap::new();
        for second in from..to {
            let due = (0..TARGETS).filter(|n| (second - begin) % INTERVAL == (*n as i64 * INTERVAL) / TARGETS as i64);
            for n in due {
                // Within the second, as a real target is due at any time.
                let polled = Timestamp::from_millis(second * 1000 + (random.next() * 1000.0) as i64);
                let reported = polled.after(Duration::from_millis(1 + (random.next() * 20.0) as u64));
                let changes = known[n].merge(report(&mut random), reported, &Aliases::new());
                assert!(!changes.is_urgent(), "a report without changes");
                let progress = Progress::of(id(n), kind(), schedule(n, polled, reported), &known[n]);
                gathered.insert(n, Progress { changes, ..progress });
            }
        }
        store.writer().progress(gathered.into_values().collect(), at(to), true);
        wait(&store);
    }
    let bytes = written()? - before;
    println!("written in a day:      {:6.1} MB", bytes as f64 / 1e6);
    println!("database, log:         {:6.1} MB, {:.1} MB", size(&path), size(&folder.path().join("polliwog.db-wal")));
    Ok(())
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn id(n: usize) -> TargetId {
    TargetId::new(&format!("target-{n}")).expect("an id")
}

fn kind() -> Kind {
    Kind::new("proactive-deps").expect("a kind")
}

/// A report of healthy dependencies with latencies that vary.
fn report(random: &mut Random) -> Outcome {
    let dependency = |n: usize| {
        let latency = 5.0 * (n + 1) as f64 * (0.8 + 0.4 * random.next());
        Dependency { latency_ms: Some(latency), ..Dependency::new(format!("dependency-{n}"), Status::Ok) }
    };
    Outcome::Success(Report { dependencies: (0..DEPENDENCIES).map(dependency).collect(), ..Report::default() })
}

fn schedule(n: usize, polled: Timestamp, reported: Timestamp) -> StoredSchedule {
    let schedule = Schedule {
        due: polled.after(Duration::from_secs(INTERVAL as u64)),
        interval: Some(Duration::from_secs(INTERVAL as u64)),
        failures: 0,
        first_failure: None,
        last_cause: None,
        plugin_faults: 0,
        breaker: Breaker { state: BreakerState::Closed, open_for: None, since: None },
        dead: None,
        revived: false,
        last_success: Some(reported),
        last_polled: Some(polled),
        last_change: Some(Timestamp::from_millis(1_784_000_000_000 + n as i64)),
        critical: false,
        rates: Rates {
            quiet: Rate { changes: 0.5, seconds: (polled.as_millis() as f64 / 1000.0 % 1e6) as f32 },
            trouble: Rate { changes: 1.0, seconds: 60.0 },
        },
    };
    StoredSchedule { identity: 0x5851_f42d_4c95_7f2d_i64.wrapping_mul(n as i64 + 1), schedule }
}

/// Waits until the flush is on disk.
fn wait(store: &Store) {
    let gauges = store.writer().gauges();
    while gauges.flushes.load(Ordering::Relaxed) + gauges.queued.load(Ordering::Relaxed) > 0 {
        std::thread::yield_now();
    }
}

/// Bytes that this process caused to be written to storage.
fn written() -> Result<u64, Box<dyn Error>> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("the kernel does not count the bytes of processes")?.trim().parse()?)
}

fn size(path: &Path) -> f64 {
    std::fs::metadata(path).map_or(0.0, |found| found.len() as f64 / 1e6)
}

/// Numbers from 0 to 1 that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
