//! The simulated past of the demo's targets, which `run --demo --history` stores before the first poll.
//!
//! Each target is polled once, without storing the result, to know its dependencies. Its past has incidents of one
//! dependency, outages of the target, and latencies with a rhythm of a day. The same targets have the same past.

use anyhow::Context;
use catalog::PluginSet;
use egress::Tape;
use engine::{Clock, RuntimeTarget, Targets};
use model::{
    Cause, Dependency, Event, EventKind, Failure, FailureCategory, Json, LatencyPoint, LatencyWindow, Outcome, Report,
    Schedule, Sketch, Status, Timestamp,
};
use rand::Rng;
use rand_pcg::Pcg32;
use sandbox::Sandbox;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Aliases, Changes, Commit, KnownState, Loaded, Opened, Progress, Store, StoredSchedule};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Days at the end with a latency for every five minutes; before, there is one for every hour.
const FINE_DAYS: i64 = 14;
/// The measurements of an hour.
const HOURLY: i64 = 12;

/// A target and its simulated past.
struct Life {
    target: Arc<RuntimeTarget>,
    /// The first report, with every dependency healthy; `None` if the target could not be polled.
    report: Option<Report>,
    known: KnownState,
    incidents: Vec<Incident>,
    random: Pcg32,
}

/// A time in which something is wrong.
struct Incident {
    from: i64,
    to: i64,
    /// The place of a dependency in the report and its status; `None` if the target does not answer.
    of: Option<(usize, Status)>,
}

/// Stores a past of `days` days of these targets in an empty database.
///
/// # Errors
/// If the database does not take it.
pub(crate) async fn simulate(
    opened: &mut Opened,
    (targets, plugins, sandbox): (&Targets, &PluginSet, &Sandbox),
    (clock, days): (&Clock, i64),
) -> anyhow::Result<()> {
    let now = clock.wall();
    let begin = (now.as_millis() / DAY - days) * DAY;
    let polls = targets.values().filter_map(|target| {
        let served = plugins.get(&target.config.kind)?;
        let job = target.job(&served.plugin, now, Tape::Off);
        Some(async move { (target.clone(), sandbox.poll(job).await.outcome) })
    });
    let polled = futures_util::future::join_all(polls).await;
    let lives = polled.into_iter().enumerate().map(|(number, (target, outcome))| {
        let report = match outcome {
            Outcome::Success(report) => Some(healthy(report)),
            Outcome::Failure(_) | Outcome::Skipped => None,
        };
        let mut random = Pcg32::new(number as u64 + 1, 1);
        let count = report.as_ref().map_or(0, |report| report.dependencies.len());
        let incidents = incidents(&mut random, (begin, now.as_millis()), count);
        Life { target, report, known: KnownState::default(), incidents, random }
    });
    let mut lives: Vec<Life> = lives.collect();
    let store = &opened.store;
    for day in 0..=days {
        let start = begin + day * DAY;
        for (at, life, outcome) in steps(&lives, begin, (start, start + DAY)) {
            commit(store, &mut lives[life], at, outcome);
        }
        let fine = day > days - FINE_DAYS;
        let end = (start + DAY).min(now.as_millis());
        let progress = lives.iter_mut().map(|life| {
            let changes = Changes { points: latencies(life, (start, end), fine), ..Changes::default() };
            let (id, kind) = (life.target.id().clone(), life.target.config.kind.clone());
            Progress { changes, ..Progress::of(id, kind, schedule(&life.target, end), &life.known) }
        });
        store.writer().progress(progress.collect(), Timestamp::from_millis(end), true);
        written(store).await?;
    }
    opened.targets = lives
        .into_iter()
        .map(|life| {
            let loaded = Loaded { kind: life.target.config.kind.clone(), known: life.known, schedule: None };
            (life.target.id().clone(), loaded)
        })
        .collect();
    Ok(())
}

/// The report with every dependency healthy, and without latencies, which the past has separately.
fn healthy(mut report: Report) -> Report {
    for dependency in &mut report.dependencies {
        let Dependency { status, error, error_message, latency_ms, checked_at, .. } = dependency;
        (*status, *error, *error_message, *latency_ms, *checked_at) = (Status::Ok, None, None, None, None);
    }
    report
}

/// Incidents one after the other: a few minutes to some hours long, days apart.
fn incidents(random: &mut Pcg32, (begin, end): (i64, i64), dependencies: usize) -> Vec<Incident> {
    let between = random.random_range(8..30) * DAY;
    let (mut found, mut at) = (Vec::new(), begin);
    loop {
        at += random.random_range(between / 8..between * 2);
        let length = 2.0_f64.powf(random.random_range(1.0..8.5)) * MINUTE as f64;
        let to = at + length as i64;
        if to >= end {
            return found;
        }
        let is_outage = dependencies == 0 || random.random_range(0..5) == 0;
        let status = if random.random_range(0..3) == 0 { Status::Critical } else { Status::Warning };
        let of = (!is_outage).then(|| (random.random_range(0..dependencies), status));
        found.push(Incident { from: at, to, of });
        at = to;
    }
}

/// The outcomes of all targets in a span, in the order of time: of the first poll, and of those that changed something.
fn steps(lives: &[Life], begin: i64, (from, to): (i64, i64)) -> Vec<(i64, usize, Outcome)> {
    let mut steps = Vec::new();
    for (place, life) in lives.iter().enumerate() {
        let good = || life.report.clone().map_or_else(|| outage("unauthorized"), Outcome::Success);
        steps.push((begin, place, good()));
        for incident in life.incidents.iter().filter(|_| life.report.is_some()) {
            let bad = match incident.of {
                None => outage("connection_refused"),
                Some((which, status)) => Outcome::Success(impaired(life.report.as_ref(), which, status)),
            };
            steps.push((incident.from, place, bad));
            steps.push((incident.to, place, good()));
        }
    }
    steps.retain(|(at, ..)| (from..to).contains(at));
    steps.sort_by_key(|(at, place, _)| (*at, *place));
    steps
}

fn outage(code: &str) -> Outcome {
    let (category, message) = match code {
        "unauthorized" => {
            (FailureCategory::Permanent, "the server answered 401 Unauthorized: check the target's secret")
        }
        _ => (FailureCategory::Transient, "nothing listened there: check the port and whether the service runs"),
    };
    Outcome::Failure(Failure {
        category,
        code: code.to_owned(),
        cause: Cause::Other,
        message: message.to_owned(),
        retry_after: None,
    })
}

fn impaired(report: Option<&Report>, which: usize, status: Status) -> Report {
    let mut report = report.cloned().unwrap_or_default();
    if let Some(dependency) = report.dependencies.get_mut(which) {
        dependency.status = status;
        dependency.error = Some(Json::checked(r#""simulated""#));
        dependency.error_message = Some(match status {
            Status::Critical => "it did not answer (simulated)".to_owned(),
            _ => "it answered slowly (simulated)".to_owned(),
        });
    }
    report
}

fn commit(store: &Store, life: &mut Life, at: i64, outcome: Outcome) {
    let (at, target) = (Timestamp::from_millis(at), life.target.id().clone());
    let was_stale = life.known.stale_since.is_some();
    let failure = match &outcome {
        Outcome::Failure(failure) => Some((failure.code.clone(), failure.message.clone())),
        Outcome::Success(_) | Outcome::Skipped => None,
    };
    let changes = life.known.merge(outcome, at, &Aliases::new());
    let change = |change: &store::Transition| EventKind::StatusChange {
        target: target.clone(),
        dependency: change.dependency.clone(),
        previous: change.previous,
        current: change.current,
    };
    let mut kinds: Vec<EventKind> = changes.transitions.iter().map(change).collect();
    match failure {
        Some((code, message)) => kinds.push(EventKind::Unreachable { target: target.clone(), code, message }),
        None if was_stale => kinds.push(EventKind::Reachable { target: target.clone(), failures: 2 }),
        None => {}
    }
    let events = kinds.into_iter().map(|kind| Event { at, kind }).collect();
    let schedule = Some(schedule(&life.target, at.as_millis()));
    let kind = life.target.config.kind.clone();
    store
        .writer()
        .commit(Commit { target, kind, at, changes, schedule, events, alerts: Vec::new(), report: None }, None);
}

fn schedule(target: &RuntimeTarget, at: i64) -> StoredSchedule {
    StoredSchedule { identity: target.identity, schedule: Schedule::new(Timestamp::from_millis(at)) }
}

/// The latencies of a target's dependencies in a span: higher at noon than at night, and in an incident.
fn latencies(life: &mut Life, (from, to): (i64, i64), fine: bool) -> Vec<(u32, LatencyWindow)> {
    let Life { report: Some(report), known, incidents, random, .. } = life else { return Vec::new() };
    let step = if fine { HOUR / HOURLY } else { HOUR };
    let mut points = Vec::new();
    for at in (from..to).step_by(step as usize) {
        let incident = incidents.iter().find(|incident| (incident.from..incident.to).contains(&at));
        let noon = 1.0 - 0.4 * (at as f64 / DAY as f64 * std::f64::consts::TAU).cos();
        for (place, dependency) in report.dependencies.iter().enumerate() {
            let factor = match incident.map(|incident| incident.of) {
                Some(None) => continue,
                Some(Some((which, _))) if which == place => 6.0,
                _ => 1.0,
            };
            let Some(state) = known.get(&dependency.name).filter(|_| !dependency.skipped) else { continue };
            let usual = 4.0 * (place % 7 + 1) as f64 * noon * factor;
            let mut measure = || usual * random.random_range(0.8..1.4);
            let mut window = LatencyWindow {
                point: LatencyPoint::first(Timestamp::from_millis(at), measure()),
                sketch: Sketch::default(),
            };
            window.sketch.add(window.point.mean().into(), 1);
            for _ in 1..if fine { 3 } else { HOURLY } {
                let ms = measure();
                window.point.add(Timestamp::from_millis(at), ms);
                window.sketch.add(ms, 1);
            }
            points.push((state.record.slot, window));
        }
    }
    points
}

/// Waits until the day is on disk.
async fn written(store: &Store) -> anyhow::Result<()> {
    const PAUSE: Duration = Duration::from_millis(1);
    let gauges = store.writer().gauges();
    while gauges.flushes.load(Ordering::Relaxed) + gauges.queued.load(Ordering::Relaxed) > 0 {
        if let Some(trouble) = store.writer().trouble() {
            return Err(anyhow::anyhow!(trouble)).context("the simulated past cannot be stored");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
