//! A past of 400 days in the database of a host that has not started yet.

use model::{Dependency, Kind, LatencyPoint, LatencyWindow, Outcome, Report, Schedule, Sketch, Status};
use model::{TargetId, Timestamp};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{Aliases, Changes, Commit, Config, KnownState, Progress, Store, StoredSchedule};

const DAYS: i64 = 400;
/// Days at the end with a latency for every five minutes; before, there is one for every hour.
const FINE_DAYS: i64 = 14;
const HOUR: i64 = 3_600_000;
const DEPENDENCIES: u32 = 10;
/// A target has an incident of an hour in each of these times.
const INCIDENT: i64 = 20 * 24 * HOUR;

/// Stores the changes of all targets, and the latencies of the first `measured` of them. Returns the size of the
/// database in bytes.
pub(crate) fn make(data: &Path, targets: usize, measured: usize) -> u64 {
    std::fs::create_dir_all(data).unwrap();
    let path = data.join("polliwog.db");
    let config = Config { path: path.clone(), history_days: 400, history_rows: 10_000_000, history_bytes: 4 << 30 };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let begin = (now / HOUR - DAYS * 24) * HOUR;
    let store = Store::lock(&config).unwrap().open(at(begin), Box::new(drop)).unwrap().store;
    let mut known: Vec<KnownState> = (0..targets).map(|_| KnownState::default()).collect();
    for day in 0..DAYS {
        for hour in day * 24..(day + 1) * 24 {
            for (n, known) in known.iter_mut().enumerate() {
                // The incidents of the targets are spread over the time.
                let since = hour * HOUR - (n as i64 * 7 * HOUR) % INCIDENT;
                let status = match since {
                    _ if hour == 0 => Status::Ok,
                    since if since % INCIDENT == 0 => Status::Critical,
                    since if since % INCIDENT == HOUR => Status::Ok,
                    _ => continue,
                };
                commit(&store, n, known, begin + hour * HOUR, status);
            }
        }
        let fine = day >= DAYS - FINE_DAYS;
        let progress = known.iter().enumerate().take(measured).map(|(n, known)| {
            let points = points(begin + day * 24 * HOUR, fine);
            let schedule = schedule(begin + day * 24 * HOUR);
            Progress {
                changes: Changes { points, ..Changes::default() },
                ..Progress::of(id(n), kind(), schedule, known)
            }
        });
        store.writer().progress(progress.collect(), at(begin + (day + 1) * 24 * HOUR), true);
        let gauges = store.writer().gauges();
        while gauges.flushes.load(Ordering::Relaxed) + gauges.queued.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    store.close(at(now));
    std::fs::metadata(path).map_or(0, |found| found.len())
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn id(n: usize) -> TargetId {
    TargetId::new(&format!("t{n}")).unwrap()
}

fn kind() -> Kind {
    Kind::new("proactive-deps").unwrap()
}

fn schedule(now: i64) -> StoredSchedule {
    StoredSchedule { identity: 1, schedule: Schedule::new(at(now)) }
}

/// A report in which the dependency of the target's number has this status.
fn commit(store: &Store, n: usize, known: &mut KnownState, time: i64, status: Status) {
    let dependency = |m: u32| {
        let status = if m as usize == n % DEPENDENCIES as usize { status } else { Status::Ok };
        Dependency::new(format!("dependency-{m}"), status)
    };
    let report = Report { dependencies: (0..DEPENDENCIES).map(dependency).collect(), ..Report::default() };
    let changes = known.merge(Outcome::Success(report), at(time), &Aliases::new());
    let schedule = Some(schedule(time));
    store.writer().commit(
        Commit {
            target: id(n),
            kind: kind(),
            at: at(time),
            changes,
            schedule,
            events: Vec::new(),
            alerts: Vec::new(),
            report: None,
        },
        None,
    );
}

fn points(day: i64, fine: bool) -> Vec<(u32, LatencyWindow)> {
    let step = if fine { HOUR / 12 } else { HOUR };
    let mut points = Vec::new();
    for start in (day..day + 24 * HOUR).step_by(step as usize) {
        for slot in 0..DEPENDENCIES {
            let ms = 5.0 + f64::from(slot) + (start / step % 7) as f64;
            let mut window = LatencyWindow { point: LatencyPoint::first(at(start), ms), sketch: Sketch::default() };
            window.sketch.add(ms, 1);
            for more in 1..12 {
                window.point.add(at(start), ms + f64::from(more) / 4.0);
                window.sketch.add(ms + f64::from(more) / 4.0, 1);
            }
            points.push((slot, window));
        }
    }
    points
}
