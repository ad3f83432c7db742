//! The stored form of values: serde types of this crate with explicit conversions.

use crate::record::StoredSchedule;
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use model::{
    Breaker, BreakerState, Cause, DeadLetter, DeadReason, LATENCY_WINDOW, LatencyPoint, LatencySummary, LatencyWindow,
    Rate, Rates, Schedule, Sketch, Timestamp, Volatile,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::time::Duration;

/// The progress of one target, as the journal has it, and in its own row after a change. Latencies are in µs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Later snapshots of one target have higher versions.
    pub version: u64,
    pub schedule: ScheduleWire,
    pub last_report: Option<i64>,
    pub volatile: Vec<LiveWire>,
}

impl Snapshot {
    /// Merges the snapshots of a target's own row and of the journal, because either may be newer: the schedule in the
    /// row is written with every change, the progress only with the journal.
    pub(crate) fn merged(own: Option<Self>, journaled: Option<&Self>) -> Option<Self> {
        match (own, journaled) {
            (Some(own), Some(journaled)) if own.version > journaled.version => {
                Some(Self { volatile: journaled.volatile.clone(), last_report: journaled.last_report, ..own })
            }
            (_, Some(journaled)) => Some(journaled.clone()),
            (own, None) => own,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScheduleWire {
    identity: i64,
    due: i64,
    interval_ms: Option<u64>,
    failures: u32,
    first_failure: Option<i64>,
    unreachable: Option<bool>,
    plugin_faults: u32,
    breaker_open: bool,
    breaker_since: Option<i64>,
    open_for_ms: Option<u64>,
    dead: Option<(String, i64, i64, u32)>,
    revived: bool,
    last_success: Option<i64>,
    last_polled: Option<i64>,
    last_change: Option<i64>,
    critical: bool,
    rates: [f32; 4],
}

/// The fields of a schedule that each poll changes. Times are in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moving {
    pub due: i64,
    pub interval_ms: Option<u64>,
    pub last_success: Option<i64>,
    pub last_polled: Option<i64>,
    pub rates: [f32; 4],
}

impl ScheduleWire {
    /// Moves the fields that each poll changes out of it.
    pub(crate) fn split(&mut self) -> Moving {
        Moving {
            due: std::mem::take(&mut self.due),
            interval_ms: self.interval_ms.take(),
            last_success: self.last_success.take(),
            last_polled: self.last_polled.take(),
            rates: std::mem::take(&mut self.rates),
        }
    }

    /// Returns the schedule with other values of the fields that each poll changes.
    pub(crate) fn with(self, Moving { due, interval_ms, last_success, last_polled, rates }: Moving) -> Self {
        Self { due, interval_ms, last_success, last_polled, rates, ..self }
    }
}

/// A row of the journal.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// The time of the row, in milliseconds since the epoch.
    pub at: i64,
    /// Whether the host ended properly with this row.
    pub ended: bool,
    /// The version of the first target in it. Those of the others follow it, and those of the next row follow them.
    pub first: u64,
    pub targets: Vec<TargetState>,
    pub latencies: Latencies,
}

impl Row {
    /// Returns the last version that the row uses.
    pub(crate) fn last(&self) -> u64 {
        self.first + (self.targets.len() as u64).max(1) - 1
    }

    /// Adds a target. Those of its windows with one measurement that `completes` names complete the one before.
    pub(crate) fn push(&mut self, state: TargetState, completes: impl Fn(&LiveWire) -> bool) {
        let single = |live: &LiveWire| {
            let (window, us) = live.single()?;
            Some(Single { num: state.num, slot: live.slot, window, us, completes: completes(live) })
        };
        self.latencies.singles.extend(state.lives.iter().filter_map(single));
        self.targets.push(state);
    }
}

/// The state of a target in a row of the journal.
#[derive(Clone, Debug)]
pub(crate) struct TargetState {
    pub num: i64,
    pub moving: Moving,
    pub last_report: Option<i64>,
    pub rest: Rest,
    pub lives: Vec<LiveWire>,
}

/// The fields of a schedule that not every poll changes.
#[derive(Clone, Debug)]
pub(crate) enum Rest {
    New(ScheduleWire),
    /// Those of the target's earlier state with this version.
    Of(u64),
}

/// The latencies in a row of the journal that belong to history.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// The windows with one measurement, in the order of the targets' volatile fields.
    pub singles: Vec<Single>,
    /// Points, each with the number of its target.
    pub points: Vec<(i64, StoredPoint)>,
}

/// A window with one measurement. The latency is that of the volatile field, and the point of the window, if a later
/// row says that the window is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Single {
    pub num: i64,
    pub slot: u32,
    pub window: u32,
    /// The latency in microseconds.
    pub us: u32,
    /// Whether the dependency's single window before it is a complete point.
    pub completes: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LiveWire {
    pub slot: u32,
    /// Age at the time of the report, in milliseconds.
    pub age: i64,
    pub latency_us: Option<u32>,
    pub window: WindowWire,
}

/// An incomplete latency window. A window of a quiet target has one measurement, which equals its latency.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum WindowWire {
    Empty,
    /// Started in this window; the dependency's latency is the only measurement.
    One(u32),
    More(PointWire),
}

/// A latency point; a window is counted in five-minute steps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PointWire {
    pub window: u32,
    pub min_us: u32,
    pub max_us: u32,
    pub mean_us: u32,
    pub count: u32,
}

fn micros(ms: f64) -> u32 {
    (ms * 1000.0).round().clamp(0.0, u32::MAX.into()) as u32
}

impl From<LatencyPoint> for PointWire {
    fn from(point: LatencyPoint) -> Self {
        Self {
            window: (point.start.as_millis() / LATENCY_WINDOW.as_millis() as i64).clamp(0, u32::MAX.into()) as u32,
            min_us: micros(point.min.into()),
            max_us: micros(point.max.into()),
            mean_us: micros(point.mean().into()),
            count: point.count,
        }
    }
}

impl From<PointWire> for LatencyPoint {
    fn from(wire: PointWire) -> Self {
        let ms = |us: u32| us as f32 / 1000.0;
        Self {
            start: Timestamp::from_millis(i64::from(wire.window) * LATENCY_WINDOW.as_millis() as i64),
            min: ms(wire.min_us),
            max: ms(wire.max_us),
            sum: ms(wire.mean_us) * wire.count as f32,
            count: wire.count,
        }
    }
}

/// A latency point of the dependency with a slot, and its distribution.
#[derive(Clone, Debug)]
pub(crate) struct StoredPoint {
    pub slot: u32,
    pub point: PointWire,
    /// Empty if it is not known, or if there was one measurement.
    pub sketch: Sketch,
}

impl StoredPoint {
    pub(crate) fn new(slot: u32, window: &LatencyWindow) -> Self {
        Self { slot, point: window.point.into(), sketch: window.sketch.clone() }
    }

    /// Returns the hour of its start since the epoch.
    pub(crate) fn hour(&self) -> i64 {
        i64::from(self.point.window) / 12
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        LatencySummary::of(&self.point.into(), &self.sketch)
    }

    /// Adds the measurements of another point of the dependency.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.sketch.buckets().is_empty() {
            self.sketch.merge(&self.point.into(), &Sketch::default());
        }
        self.sketch.merge(&other.point.into(), &other.sketch);
        let (own, more) = (&mut self.point, &other.point);
        let sum = u64::from(own.mean_us) * u64::from(own.count) + u64::from(more.mean_us) * u64::from(more.count);
        let count = own.count.saturating_add(more.count);
        own.mean_us = u32::try_from(sum / u64::from(count.max(1))).unwrap_or(u32::MAX);
        (own.min_us, own.max_us) = (own.min_us.min(more.min_us), own.max_us.max(more.max_us));
        own.count = count;
    }
}

impl LiveWire {
    /// Returns the window and the latency in microseconds if the window has one measurement.
    pub(crate) fn single(&self) -> Option<(u32, u32)> {
        match self.window {
            WindowWire::One(window) => self.latency_us.map(|us| (window, us)),
            WindowWire::Empty | WindowWire::More(_) => None,
        }
    }

    /// Returns the incomplete window.
    pub(crate) fn window(&self) -> Option<u32> {
        match self.window {
            WindowWire::Empty => None,
            WindowWire::One(window) => Some(window),
            WindowWire::More(point) => Some(point.window),
        }
    }

    pub(crate) fn new(slot: u32, volatile: &Volatile, report: Timestamp) -> Self {
        Self {
            slot,
            age: report.as_millis() - volatile.checked_at.as_millis(),
            latency_us: volatile.latency_ms.map(micros),
            window: match volatile.window.map(PointWire::from) {
                None => WindowWire::Empty,
                Some(point) if point.count == 1 && Some(point.mean_us) == volatile.latency_ms.map(micros) => {
                    WindowWire::One(point.window)
                }
                Some(point) => WindowWire::More(point),
            },
        }
    }

    pub(crate) fn restore(&self, report: Timestamp) -> (u32, Volatile) {
        let us = self.latency_us.unwrap_or_default();
        let window = match self.window {
            WindowWire::Empty => None,
            WindowWire::One(window) => Some(PointWire { window, min_us: us, max_us: us, mean_us: us, count: 1 }),
            WindowWire::More(point) => Some(point),
        };
        let volatile = Volatile {
            checked_at: Timestamp::from_millis(report.as_millis() - self.age),
            latency_ms: self.latency_us.map(|us| f64::from(us) / 1000.0),
            window: window.map(LatencyPoint::from),
            ..Volatile::default()
        };
        (self.slot, volatile)
    }
}

impl From<&StoredSchedule> for ScheduleWire {
    fn from(StoredSchedule { identity, schedule: s }: &StoredSchedule) -> Self {
        let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        let span = |duration: Option<Duration>| duration.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        Self {
            identity: *identity,
            due: s.due.as_millis(),
            interval_ms: span(s.interval),
            failures: s.failures,
            first_failure: ms(s.first_failure),
            unreachable: s.last_cause.map(|cause| cause == Cause::Unreachable),
            plugin_faults: s.plugin_faults,
            // After a restart, a probe in flight has ended without an outcome.
            breaker_open: s.breaker.state != BreakerState::Closed,
            breaker_since: ms(s.breaker.since),
            open_for_ms: span(s.breaker.open_for),
            dead: (s.dead.as_ref())
                .map(|d| (d.reason.as_str().to_owned(), d.since.as_millis(), d.last_attempt.as_millis(), d.retries)),
            revived: s.revived,
            last_success: ms(s.last_success),
            last_polled: ms(s.last_polled),
            last_change: ms(s.last_change),
            critical: s.critical,
            rates: [s.rates.quiet.changes, s.rates.quiet.seconds, s.rates.trouble.changes, s.rates.trouble.seconds],
        }
    }
}

impl From<&ScheduleWire> for StoredSchedule {
    fn from(w: &ScheduleWire) -> Self {
        let at = Timestamp::from_millis;
        let cause = |unreachable| if unreachable { Cause::Unreachable } else { Cause::Other };
        // A damaged file must not yield rates that are negative or not finite.
        let [a, b, c, d] = w.rates.map(|number| if number.is_finite() { number.max(0.0) } else { 0.0 });
        let schedule = Schedule {
            due: at(w.due),
            interval: w.interval_ms.map(Duration::from_millis),
            failures: w.failures,
            first_failure: w.first_failure.map(at),
            last_cause: w.unreachable.map(cause),
            plugin_faults: w.plugin_faults,
            breaker: Breaker {
                state: if w.breaker_open { BreakerState::Open } else { BreakerState::Closed },
                open_for: w.open_for_ms.map(Duration::from_millis),
                since: w.breaker_since.map(at),
            },
            dead: w.dead.as_ref().map(|(reason, since, last_attempt, retries)| DeadLetter {
                reason: DeadReason::from_word(reason).unwrap_or(DeadReason::Retries),
                since: at(*since),
                last_attempt: at(*last_attempt),
                retries: *retries,
            }),
            revived: w.revived,
            last_success: w.last_success.map(at),
            last_polled: w.last_polled.map(at),
            last_change: w.last_change.map(at),
            critical: w.critical,
            rates: Rates { quiet: Rate { changes: a, seconds: b }, trouble: Rate { changes: c, seconds: d } },
        };
        Self { identity: w.identity, schedule }
    }
}

/// The beginning of a compressed value of this version. Those of earlier versions, which have a module of their own,
/// begin with a 0 and a deflate stream, and none of those begins with 255.
pub(crate) const COMPRESSED: [u8; 2] = [0, 0xff];
/// The maximum size of a value in bytes, so that a damaged file cannot fill the memory.
const MAX_BYTES: u64 = 256 << 20;

/// Encodes a large value for the database. Compressed, because most of its bytes repeat, and each byte is written
/// several times: to the log, by a checkpoint, and when it is folded.
pub(crate) fn pack<T: Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    Ok([&COMPRESSED, deflated(value)?.as_slice()].concat())
}

/// Decodes a value that [`pack`] encoded: `None` if it is of an earlier version, `Some(None)` if it is damaged.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Option<Option<T>> {
    bytes.strip_prefix(&COMPRESSED).map(inflated)
}

/// Encodes and compresses a value.
pub(crate) fn deflated<T: Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    let failed = |error: std::io::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    let mut packed = Vec::new();
    DeflateEncoder::new(encode(value)?.as_slice(), Compression::default()).read_to_end(&mut packed).map_err(failed)?;
    Ok(packed)
}

/// Decodes a value that [`deflated`] encoded; `None` if it is damaged.
pub(crate) fn inflated<T: DeserializeOwned>(packed: &[u8]) -> Option<T> {
    postcard::from_bytes(&plain_bytes(packed)?).ok()
}

/// Returns the bytes that a deflate stream has; `None` if it is damaged.
pub(crate) fn plain_bytes(packed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    DeflateDecoder::new(packed).take(MAX_BYTES).read_to_end(&mut plain).ok()?;
    Some(plain)
}

/// Encodes a value for the database.
pub(crate) fn encode<T: Serialize>(value: &T) -> rusqlite::Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
