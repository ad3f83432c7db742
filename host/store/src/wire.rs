//! How things look in the database: serde types of this room, with explicit conversions.

use crate::history::LatencyPoint;
use crate::known::Live;
use crate::record::{DeadRecord, Schedule};
use model::{Cause, Event, EventKind, FailureCategory, Kind, Status, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One target's progress in the journal and in its own row. Compact: times are relative to `at`, latencies in µs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Later snapshots of one target have higher versions.
    pub version: u64,
    pub schedule: ScheduleWire,
    pub last_report: Option<i64>,
    pub live: Vec<LiveWire>,
}

impl Snapshot {
    /// Of a target's own row and the journal either may be newer: the row's schedule is written with every change, what
    /// merely continues only with the journal.
    pub(crate) fn merged(own: Option<Self>, journaled: Option<&Self>) -> Option<Self> {
        match (own, journaled) {
            (Some(own), Some(journaled)) if own.version > journaled.version => {
                Some(Self { live: journaled.live.clone(), last_report: journaled.last_report, ..own })
            }
            (_, Some(journaled)) => Some(journaled.clone()),
            (own, None) => own,
        }
    }
}

/// A row of the journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// When it was written; milliseconds since the epoch.
    pub at: i64,
    /// Whether the host ended properly with this row: nothing happened after it.
    pub ended: bool,
    pub snapshots: Vec<(i64, Snapshot)>,
    /// Target number, slot, point.
    pub points: Vec<(i64, u32, PointWire)>,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LiveWire {
    slot: u32,
    /// Milliseconds before the report.
    age: i64,
    latency_us: Option<u32>,
    window: WindowWire,
}

/// A latency window under way. A quiet target has one measurement in each, which is its latency again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum WindowWire {
    Empty,
    /// Begun in this window, with the latency beside it as its only measurement.
    One(u32),
    More(PointWire),
}

/// A latency point; a window is counted in five-minute steps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PointWire {
    window: u32,
    min_us: u32,
    max_us: u32,
    mean_us: u32,
    count: u32,
}

fn micros(ms: f64) -> u32 {
    (ms * 1000.0).round().clamp(0.0, u32::MAX.into()) as u32
}

impl From<LatencyPoint> for PointWire {
    fn from(point: LatencyPoint) -> Self {
        Self {
            window: (point.start.as_millis() / crate::WINDOW.as_millis() as i64).clamp(0, u32::MAX.into()) as u32,
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
            start: Timestamp::from_millis(i64::from(wire.window) * crate::WINDOW.as_millis() as i64),
            min: ms(wire.min_us),
            max: ms(wire.max_us),
            sum: ms(wire.mean_us) * wire.count as f32,
            count: wire.count,
        }
    }
}

impl PointWire {
    /// Which hour since the epoch it lies in.
    pub(crate) fn hour(&self) -> i64 {
        i64::from(self.window) / 12
    }
}

impl LiveWire {
    pub(crate) fn new(slot: u32, live: &Live, report: Timestamp) -> Self {
        Self {
            slot,
            age: report.as_millis() - live.checked_at.as_millis(),
            latency_us: live.latency_ms.map(micros),
            window: match live.window.map(PointWire::from) {
                None => WindowWire::Empty,
                Some(point) if point.count == 1 && Some(point.mean_us) == live.latency_ms.map(micros) => {
                    WindowWire::One(point.window)
                }
                Some(point) => WindowWire::More(point),
            },
        }
    }

    pub(crate) fn restore(&self, report: Timestamp) -> (u32, Live) {
        let us = self.latency_us.unwrap_or_default();
        let window = match self.window {
            WindowWire::Empty => None,
            WindowWire::One(window) => Some(PointWire { window, min_us: us, max_us: us, mean_us: us, count: 1 }),
            WindowWire::More(point) => Some(point),
        };
        let live = Live {
            checked_at: Timestamp::from_millis(report.as_millis() - self.age),
            latency_ms: self.latency_us.map(|us| f64::from(us) / 1000.0),
            window: window.map(LatencyPoint::from),
        };
        (self.slot, live)
    }
}

impl From<&Schedule> for ScheduleWire {
    fn from(s: &Schedule) -> Self {
        let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        let span = |duration: Option<Duration>| duration.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        Self {
            identity: s.identity,
            due: s.due.as_millis(),
            interval_ms: span(s.interval),
            failures: s.failures,
            first_failure: ms(s.first_failure),
            unreachable: s.last_cause.map(|cause| cause == Cause::Unreachable),
            plugin_faults: s.plugin_faults,
            breaker_open: s.breaker_open,
            breaker_since: ms(s.breaker_since),
            open_for_ms: span(s.open_for),
            dead: (s.dead.as_ref())
                .map(|d| (d.reason.clone(), d.since.as_millis(), d.last_attempt.as_millis(), d.retries)),
            revived: s.revived,
            last_success: ms(s.last_success),
            last_polled: ms(s.last_polled),
            last_change: ms(s.last_change),
            critical: s.critical,
            rates: s.rates,
        }
    }
}

impl From<&ScheduleWire> for Schedule {
    fn from(w: &ScheduleWire) -> Self {
        let at = Timestamp::from_millis;
        let cause = |unreachable| if unreachable { Cause::Unreachable } else { Cause::Other };
        Self {
            identity: w.identity,
            due: at(w.due),
            interval: w.interval_ms.map(Duration::from_millis),
            failures: w.failures,
            first_failure: w.first_failure.map(at),
            last_cause: w.unreachable.map(cause),
            plugin_faults: w.plugin_faults,
            breaker_open: w.breaker_open,
            breaker_since: w.breaker_since.map(at),
            open_for: w.open_for_ms.map(Duration::from_millis),
            dead: w.dead.as_ref().map(|(reason, since, last_attempt, retries)| DeadRecord {
                reason: reason.clone(),
                since: at(*since),
                last_attempt: at(*last_attempt),
                retries: *retries,
            }),
            revived: w.revived,
            last_success: w.last_success.map(at),
            last_polled: w.last_polled.map(at),
            last_change: w.last_change.map(at),
            critical: w.critical,
            rates: w.rates,
        }
    }
}

/// An event's fields, as JSON in its row.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event")]
pub(crate) enum EventWire {
    StatusChange { target: String, dependency: String, previous: String, current: String },
    DependencyMissing { target: String, dependency: String },
    PollError { target: String, category: String, code: String, message: String },
    Unreachable { target: String, code: String, message: String },
    Reachable { target: String, failures: u32 },
    ServiceStarted { target: String },
    ServiceStopped { target: String },
    CircuitOpen { target: String, failures: u32 },
    CircuitClose { target: String },
    DeadLetter { target: String, reason: String },
    Revived { target: String },
    PluginLoaded { plugin: String, version: String },
    PluginRefused { file: String, reason: String },
    PluginQuarantined { plugin: String, targets: u32 },
    SettingsChanged { what: String, value: Option<String> },
}

impl EventWire {
    /// Nothing for an event that is never stored.
    pub(crate) fn of(event: &EventKind) -> Option<Self> {
        let text = |target: &TargetId| target.to_string();
        Some(match event {
            EventKind::PollComplete { .. } => return None,
            EventKind::StatusChange { target, dependency, previous, current } => Self::StatusChange {
                target: text(target),
                dependency: dependency.clone(),
                previous: previous.as_str().to_owned(),
                current: current.as_str().to_owned(),
            },
            EventKind::DependencyMissing { target, dependency } => {
                Self::DependencyMissing { target: text(target), dependency: dependency.clone() }
            }
            EventKind::PollError { target, category, code, message } => Self::PollError {
                target: text(target),
                category: category.as_str().to_owned(),
                code: code.clone(),
                message: message.clone(),
            },
            EventKind::Unreachable { target, code, message } => {
                Self::Unreachable { target: text(target), code: code.clone(), message: message.clone() }
            }
            EventKind::Reachable { target, failures } => Self::Reachable { target: text(target), failures: *failures },
            EventKind::ServiceStarted { target } => Self::ServiceStarted { target: text(target) },
            EventKind::ServiceStopped { target } => Self::ServiceStopped { target: text(target) },
            EventKind::CircuitOpen { target, failures } => {
                Self::CircuitOpen { target: text(target), failures: *failures }
            }
            EventKind::CircuitClose { target } => Self::CircuitClose { target: text(target) },
            EventKind::DeadLetter { target, reason } => {
                Self::DeadLetter { target: text(target), reason: (*reason).to_owned() }
            }
            EventKind::Revived { target } => Self::Revived { target: text(target) },
            EventKind::PluginLoaded { plugin, version } => {
                Self::PluginLoaded { plugin: plugin.to_string(), version: version.clone() }
            }
            EventKind::PluginQuarantined { plugin, targets } => {
                Self::PluginQuarantined { plugin: plugin.to_string(), targets: *targets }
            }
            EventKind::PluginRefused { file, reason } => {
                Self::PluginRefused { file: file.clone(), reason: reason.clone() }
            }
            EventKind::SettingsChanged { what, value } => {
                Self::SettingsChanged { what: what.clone(), value: value.clone() }
            }
        })
    }

    /// Nothing for a row that another version wrote and this one cannot read.
    pub(crate) fn restore(self, at: Timestamp) -> Option<Event> {
        let id = |text: String| TargetId::new(&text).ok();
        let kind = match self {
            Self::StatusChange { target, dependency, previous, current } => EventKind::StatusChange {
                target: id(target)?,
                dependency,
                previous: Status::from_word(&previous)?,
                current: Status::from_word(&current)?,
            },
            Self::DependencyMissing { target, dependency } => {
                EventKind::DependencyMissing { target: id(target)?, dependency }
            }
            Self::PollError { target, category, code, message } => EventKind::PollError {
                target: id(target)?,
                category: FailureCategory::from_word(&category)?,
                code,
                message,
            },
            Self::Unreachable { target, code, message } => {
                EventKind::Unreachable { target: id(target)?, code, message }
            }
            Self::Reachable { target, failures } => EventKind::Reachable { target: id(target)?, failures },
            Self::ServiceStarted { target } => EventKind::ServiceStarted { target: id(target)? },
            Self::ServiceStopped { target } => EventKind::ServiceStopped { target: id(target)? },
            Self::CircuitOpen { target, failures } => EventKind::CircuitOpen { target: id(target)?, failures },
            Self::CircuitClose { target } => EventKind::CircuitClose { target: id(target)? },
            Self::DeadLetter { target, reason } => EventKind::DeadLetter {
                target: id(target)?,
                reason: ["permanent_failure", "max_retry_attempts"].into_iter().find(|known| *known == reason)?,
            },
            Self::Revived { target } => EventKind::Revived { target: id(target)? },
            Self::PluginLoaded { plugin, version } => {
                EventKind::PluginLoaded { plugin: Kind::new(&plugin).ok()?, version }
            }
            Self::PluginQuarantined { plugin, targets } => {
                EventKind::PluginQuarantined { plugin: Kind::new(&plugin).ok()?, targets }
            }
            Self::PluginRefused { file, reason } => EventKind::PluginRefused { file, reason },
            Self::SettingsChanged { what, value } => EventKind::SettingsChanged { what, value },
        };
        Some(Event { at, kind })
    }
}
