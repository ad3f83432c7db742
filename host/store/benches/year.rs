//! The size of the database after 400 days (or more, which shows whether it still grows), and the time to read a chart
//! from it: `cargo bench -p store --bench year -- [TARGETS] [DAYS]`.
//!
//! Each target has 10 dependencies that never change. They are measured every five minutes, and every hour (with the
//! count of twelve measurements) before the last 20 days, of which points of five minutes are no longer stored.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use model::{Dependency, Kind, LatencyPoint, LatencyWindow, Outcome, Report, Schedule, Sketch, Status};
use model::{TargetId, Timestamp};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;
use store::{Aliases, Changes, Commit, Config, KnownState, Progress, Store, StoredSchedule};

const DEPENDENCIES: u32 = 10;
/// Days at the end with points of five minutes.
const FINE_DAYS: i64 = 20;
const HOUR: i64 = 3_600_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u32>().ok());
    let (targets, days) = (numbers.next().unwrap_or(200) as usize, i64::from(numbers.next().unwrap_or(400)));
    // Next to the target directory, because a temporary directory may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = folder.path().join("polliwog.db");
    let config = Config { path: path.clone(), history_days: 400, history_rows: 1_000_000, history_bytes: 2 << 30 };
    println!("{targets} targets with {DEPENDENCIES} dependencies, {days} days");
    let begin = 1_784_016_000_000;
    let store = Store::lock(&config).and_then(|locked| locked.open(at(begin), Box::new(drop)))?.store;
    let mut known: Vec<KnownState> = (0..targets).map(|_| KnownState::default()).collect();
    for (n, known) in known.iter_mut().enumerate() {
        let changes = known.merge(report(), at(begin), &Aliases::new());
        let schedule = Some(schedule(begin));
        let commit = Commit {
            target: id(n)?,
            kind: kind()?,
            at: at(begin),
            changes,
            schedule,
            events: Vec::new(),
            alerts: Vec::new(),
            report: None,
        };
        store.writer().commit(commit, None);
    }
    let mut random = Random(7);
    for hour in 0..days * 24 {
        let start = begin + hour * HOUR;
        let every = if hour / 24 >= days - FINE_DAYS { 12 } else { 1 };
        let mut progress = Vec::with_capacity(targets);
        for (n, known) in known.iter().enumerate() {
            let points = (0..every).flat_map(|step| (0..DEPENDENCIES).map(move |slot| (step, slot)));
            let points =
                points.map(|(step, slot)| (slot, random.window(start + step * HOUR / every, 12 / every as u32)));
            let changes = Changes { points: points.collect(), ..Changes::default() };
            progress.push(Progress { changes, ..Progress::of(id(n)?, kind()?, schedule(start), known) });
        }
        // After the hour, when the host folds the journal.
        store.writer().progress(progress, at(start + HOUR + HOUR / 4), true);
        wait(&store);
        if hour % (24 * 40) == 0 {
            println!("day {:3}: {:8.1} MB", hour / 24, size(&path));
        }
    }
    let end = at(begin + days * 24 * HOUR);
    println!("day {days}: {:8.1} MB, log {:.1} MB", size(&path), size(&folder.path().join("polliwog.db-wal")));
    for (length, hours) in [(1, false), (7, false), (30, true), (90, true), (400, true)] {
        let since = Timestamp::from_millis(end.as_millis() - length * 24 * HOUR);
        let (mut times, mut points) = (Vec::new(), 0);
        for n in 0..20 {
            let started = Instant::now();
            let read = store.reader().latencies(&id(n * targets / 20)?, (since, Some(3)), hours)?;
            times.push(started.elapsed());
            points = read.values().map(Vec::len).sum();
        }
        times.sort_unstable();
        println!("chart of {length:3} days: {points:4} points, median {:?}, slowest {:?}", times[10], times[19]);
    }
    Ok(())
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn id(n: usize) -> Result<TargetId, model::InvalidId> {
    TargetId::new(&format!("target-{n}"))
}

fn kind() -> Result<Kind, model::InvalidId> {
    Kind::new("proactive-deps")
}

fn report() -> Outcome {
    let dependency = |n| Dependency::new(format!("dependency-{n}"), Status::Ok);
    Outcome::Success(Report { dependencies: (0..DEPENDENCIES).map(dependency).collect(), ..Report::default() })
}

fn schedule(now: i64) -> StoredSchedule {
    StoredSchedule { identity: 1, schedule: Schedule::new(at(now)) }
}

/// Waits until the flush is on disk.
fn wait(store: &Store) {
    let gauges = store.writer().gauges();
    while gauges.flushes.load(Ordering::Relaxed) + gauges.queued.load(Ordering::Relaxed) > 0 {
        std::thread::yield_now();
    }
}

fn size(path: &Path) -> f64 {
    std::fs::metadata(path).map_or(0.0, |found| found.len() as f64 / 1e6)
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    /// Returns a latency between 8 and 12 ms.
    fn latency(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        8.0 + 4.0 * (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a window with a number of measurements.
    fn window(&mut self, start: i64, count: u32) -> LatencyWindow {
        let mut point = LatencyPoint::first(at(start), self.latency());
        let mut sketch = Sketch::default();
        for n in 1..count {
            let ms = self.latency();
            if n == 1 {
                sketch.add(point.mean().into(), 1);
            }
            sketch.add(ms, 1);
            point.add(at(start), ms);
        }
        LatencyWindow { point, sketch }
    }
}
