//! How views look as JSON: camelCase, but where Pulse's own names come first.

use crate::host::{
    DependencyView, ExplanationView, Overview, PluginView, PollErrorView, SettingView, SettingsView, TargetView,
};
use crate::status::TargetStatus;
use model::{Event, EventKind, Status, TargetId, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Pulse lists this many dead letters.
const DEAD_LETTERS: usize = 25;

/// RFC 3339, UTC, with milliseconds.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.as_millis()) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "1970-01-01T00:00:00.000Z".to_owned(),
    }
}

fn times(at: Option<Timestamp>) -> Option<String> {
    at.map(time)
}

/// A dependency in a URL: the first 16 hex digits of SHA-256 of target id, NUL, name.
pub fn dependency_id(target: &TargetId, name: &str) -> String {
    let digest = Sha256::new().chain_update(target.as_str()).chain_update([0]).chain_update(name).finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Dependency<'a> {
    id: String,
    target: &'a str,
    name: &'a str,
    canonical_name: Option<&'a str>,
    title: Option<&'a str>,
    kind: &'a str,
    status: &'static str,
    healthy: Option<bool>,
    stale: bool,
    missing: bool,
    skipped: bool,
    code: Option<i32>,
    latency_ms: Option<f64>,
    description: Option<&'a str>,
    impact: Option<&'a str>,
    error: Option<Box<RawValue>>,
    error_message: Option<&'a str>,
    contact: Option<Box<RawValue>>,
    check_details: Option<Box<RawValue>>,
    parent: Option<&'a str>,
    checked_at: String,
    last_status_change: Option<String>,
    stale_since: Option<String>,
    missing_since: Option<String>,
}

impl<'a> Dependency<'a> {
    pub(crate) fn new(target: &'a TargetView, dependency: &'a DependencyView) -> Self {
        let raw = |json: &Option<model::Json>| {
            json.as_ref().and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok())
        };
        // What was known last says nothing of now.
        let seen = !target.is_stale() && dependency.missing_since.is_none();
        Self {
            id: dependency_id(&target.id, &dependency.name),
            target: target.id.as_str(),
            name: &dependency.name,
            canonical_name: dependency.canonical.as_deref(),
            title: dependency.title.as_deref(),
            kind: &dependency.kind,
            status: dependency.status.as_str(),
            healthy: dependency.status.healthy().filter(|_| seen),
            stale: target.is_stale(),
            missing: dependency.missing_since.is_some(),
            skipped: dependency.skipped,
            code: dependency.code,
            latency_ms: dependency.latency_ms,
            description: dependency.description.as_deref(),
            impact: dependency.impact.as_deref(),
            error: raw(&dependency.error),
            error_message: dependency.error_message.as_deref(),
            contact: raw(&dependency.contact),
            check_details: raw(&dependency.check_details),
            parent: dependency.parent.as_deref(),
            checked_at: time(dependency.checked_at),
            last_status_change: times(dependency.last_status_change),
            stale_since: times(target.stale_since),
            missing_since: times(dependency.missing_since),
        }
    }
}

/// A page of dependencies. Written as it is: going through [`Value`] would parse the JSON that plugins report again.
#[derive(Serialize)]
pub(crate) struct Dependencies<'a> {
    /// All that match, on this page or not.
    pub total: usize,
    pub dependencies: Vec<Dependency<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Target<'a> {
    id: &'a str,
    name: &'a str,
    kind: &'a str,
    url: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    enabled: bool,
    status: &'static str,
    state: &'static str,
    cadence: &'static str,
    interval_ms: Option<u64>,
    next_run: Option<String>,
    last_polled: Option<String>,
    last_success: Option<String>,
    last_error: Option<Value>,
    consecutive_failures: u32,
    stale_since: Option<String>,
    breaker: Value,
    dead_letter: Option<Value>,
    warnings: &'a [String],
    dependencies: BTreeMap<&'static str, usize>,
}

/// How dependencies are of a target that cannot be polled: what they were says nothing of now.
pub(crate) const STALE: &str = "stale";

impl<'a> Target<'a> {
    pub(crate) fn new(target: &'a TargetView) -> Self {
        let stale = target.is_stale();
        let words = [(STALE, 0), ("missing", 0), ("total", 0)];
        let mut dependencies: BTreeMap<&'static str, usize> =
            Status::ALL.into_iter().map(|status| (status.as_str(), 0)).chain(words).collect();
        for dependency in &target.dependencies {
            let word = match dependency.missing_since {
                Some(_) => "missing",
                None if stale => STALE,
                None => dependency.status.as_str(),
            };
            *dependencies.entry(word).or_default() += 1;
            *dependencies.entry("total").or_default() += 1;
        }
        Self {
            id: target.id.as_str(),
            name: &target.name,
            kind: target.kind.as_str(),
            url: &target.url,
            labels: target.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            enabled: target.enabled,
            status: target.status().as_str(),
            state: target.place,
            cadence: target.cadence,
            interval_ms: target.interval.map(|interval| interval.as_millis() as u64),
            next_run: times(target.next_run),
            last_polled: times(target.last_polled),
            last_success: times(target.last_success),
            last_error: target.last_error.as_ref().map(poll_error),
            consecutive_failures: target.failures,
            stale_since: times(target.stale_since),
            breaker: json!({
                "state": target.breaker.state,
                "since": times(target.breaker.since),
                "retryAt": times(target.breaker.retry_at),
            }),
            dead_letter: target.dead.as_ref().map(|dead| {
                json!({
                    "reason": dead.reason,
                    "since": time(dead.since),
                    "lastAttempt": time(dead.last_attempt),
                    "retryCount": dead.retries,
                })
            }),
            warnings: &target.warnings,
            dependencies,
        }
    }
}

/// A target with what of it can be changed while the host runs, and where that comes from.
pub(crate) fn target_with_settings(target: &TargetView, settings: &[&SettingView]) -> Value {
    let mut shown = serde_json::to_value(Target::new(target)).unwrap_or_default();
    shown["settings"] = settings.iter().map(|of_target| setting(of_target)).collect();
    shown
}

fn poll_error(error: &PollErrorView) -> Value {
    json!({
        "at": time(error.at), "category": error.category.as_str(), "code": error.code, "message": error.message,
    })
}

/// A plugin, as the API shows it.
pub fn plugin_json(plugin: &PluginView) -> Value {
    let usage = &plugin.usage;
    let milliseconds = |time: std::time::Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    json!({
        "kind": plugin.kind.as_ref().map(model::Kind::as_str),
        "version": plugin.version,
        "source": plugin.source,
        "refusal": plugin.refusal,
        "sha256": plugin.digest,
        "quarantinedUntil": plugin.quarantined_until.map(time),
        "polls": usage.polls,
        "faults": usage.faults,
        "faultsByReason": usage.faults_by_reason,
        "cpuMs": milliseconds(usage.cpu),
        "wallMs": milliseconds(usage.wall),
        "peakMemoryBytes": usage.peak_memory,
        "requests": usage.requests,
        "bodyBytes": usage.bytes,
        "logLines": usage.log_lines,
        "secrets": usage.secrets,
    })
}

/// RedFlag's stats, name for name, and beside them why polls were held back, how many targets are how, and why the host does
/// not work as it should.
pub(crate) fn scheduler_stats(overview: &Overview, not_ready: Option<&str>) -> Value {
    let mut targets: BTreeMap<&str, usize> = TargetStatus::ALL.map(|status| (status.as_str(), 0)).into();
    for target in &overview.targets {
        *targets.entry(target.status().as_str()).or_default() += 1;
    }
    let stats = &overview.scheduler;
    let held: BTreeMap<&str, u64> = stats.held.iter().copied().collect();
    let kinds: BTreeMap<&str, usize> = overview.depth_by_kind.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    let in_flight: usize = overview.in_flight.values().sum();
    let oldest = stats.next.as_ref().map(|(target, kind, at, interval)| {
        let at = time(*at);
        let clock = at.get(11..19).unwrap_or(&at).to_owned();
        let interval = interval.map_or_else(|| "-".to_owned(), |interval| format!("{}s", interval.as_secs()));
        format!("[{target}/{kind}] next_run={clock} interval={interval}")
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "startedAt": times(overview.process.started),
        "targets": targets,
        "notReady": not_ready,
        "scheduler": {
            "JobsProcessed": stats.started,
            "JobsSkipped": held.values().sum::<u64>(),
            "CommandsCreated": stats.succeeded,
            "CommandsFailed": stats.failed,
            "BackpressureSkips": stats.skipped_unwritten,
            "LastProcessedAt": times(stats.last_start),
            "QueueSize": overview.depth,
            "WorkerPoolUtilized": in_flight,
            "AverageProcessingMS": (stats.mean_poll.as_secs_f64() * 100_000.0).round() / 100.0,
        },
        "queue": {
            "Size": overview.depth,
            "NextRunAt": stats.next.as_ref().map(|(_, _, at, _)| time(*at)),
            "OldestJob": oldest,
            "JobsBySubsystem": kinds,
        },
        "held": held,
    })
}

pub(crate) fn explanation(target: &TargetId, explanation: &ExplanationView) -> Value {
    let terms = explanation.terms.iter();
    let terms: Vec<Value> =
        terms.map(|(name, value, meaning)| json!({ "name": name, "value": value, "meaning": meaning })).collect();
    json!({
        "target": target.as_str(), "state": explanation.place, "nextRun": times(explanation.next_run),
        "summary": explanation.summary, "terms": terms,
    })
}

/// A dead letter that is still looked at; one whose target is disabled was dropped.
pub(crate) fn dead_letter(target: &TargetView) -> Option<Value> {
    let dead = target.dead.as_ref().filter(|_| target.enabled)?;
    Some(json!({
        "target": target.id.as_str(), "kind": target.kind.as_str(), "reason": dead.reason, "since": time(dead.since),
        "lastAttempt": time(dead.last_attempt), "retryCount": dead.retries, "nextRun": times(target.next_run),
        "consecutiveFailures": target.failures, "lastError": target.last_error.as_ref().map(poll_error),
    }))
}

/// A breaker that is not closed, or counts failures.
pub(crate) fn breaker(target: &TargetView) -> Option<Value> {
    let unusual = target.breaker.state != "closed" || target.failures > 0;
    unusual.then(|| {
        json!({
            "target": target.id.as_str(), "kind": target.kind.as_str(), "state": target.breaker.state,
            "since": times(target.breaker.since), "retryAt": times(target.breaker.retry_at), "failures": target.failures,
        })
    })
}

pub(crate) fn setting(setting: &SettingView) -> Value {
    json!({ "key": setting.key, "value": setting.value, "source": setting.source, "from": setting.from })
}

pub(crate) fn settings(settings: &SettingsView) -> Value {
    json!({
        "file": settings.file, "problems": settings.problems,
        "settings": settings.settings.iter().map(setting).collect::<Vec<_>>(),
    })
}

/// `null` members left out, as Pulse leaves out what is unset.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

/// Pulse's `/api/monitoring/scheduler/health`, name for name; arrays are never null.
pub(crate) fn scheduler_health(overview: &Overview) -> Value {
    // A target that is disabled is looked at no more: its dead letter was dropped.
    let looked_at = overview.targets.iter().filter(|target| target.enabled);
    let mut dead: Vec<_> = looked_at.filter_map(|t| Some((t, t.dead.as_ref()?))).collect();
    dead.sort_by_key(|(_, dead)| std::cmp::Reverse(dead.last_attempt));
    let count = dead.len();
    let tasks: Vec<Value> = (dead.iter().take(DEAD_LETTERS))
        .map(|(target, _)| {
            without_nulls(json!({
                "instance": target.id.as_str(), "type": target.kind.as_str(), "nextRun": times(target.next_run),
                "lastError": target.last_error.as_ref().map(|error| &error.message), "failures": target.failures,
            }))
        })
        .collect();
    let unusual = |target: &&TargetView| target.breaker.state != "closed" || target.failures > 0;
    let breakers: Vec<Value> = (overview.targets.iter().filter(unusual))
        .map(|target| {
            without_nulls(json!({
                "instance": target.id.as_str(), "type": target.kind.as_str(), "state": target.breaker.state,
                "failures": target.failures, "retryAt": times(target.breaker.retry_at),
            }))
        })
        .collect();
    let staleness: Vec<Value> = (overview.targets.iter())
        .map(|target| {
            without_nulls(json!({
                "instance": target.id.as_str(), "type": target.kind.as_str(), "score": target.staleness,
                "lastSuccess": times(target.last_success),
                "lastError": target.last_error.as_ref().map(|error| time(error.at)),
            }))
        })
        .collect();
    let kinds: BTreeMap<&str, usize> = overview.depth_by_kind.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    let mut by_key: Vec<&TargetView> = overview.targets.iter().collect();
    by_key.sort_by(|a, b| (&a.kind, &a.id).cmp(&(&b.kind, &b.id)));
    json!({
        "updatedAt": time(overview.at),
        "enabled": overview.adaptive,
        "queue": { "depth": overview.depth, "dueWithinSeconds": overview.due_soon, "perType": kinds },
        "deadLetter": { "count": count, "tasks": tasks },
        "breakers": breakers,
        "staleness": staleness,
        "instances": by_key.into_iter().map(instance).collect::<Vec<_>>(),
    })
}

fn instance(target: &TargetView) -> Value {
    let last_error = target
        .last_error
        .as_ref()
        .map(|error| json!({ "at": time(error.at), "message": error.message, "category": error.category.as_str() }));
    let dead = match &target.dead {
        None => json!({ "present": false }),
        Some(dead) => json!({
            "present": true, "reason": dead.reason, "firstAttempt": time(dead.since),
            "lastAttempt": time(dead.last_attempt), "retryCount": dead.retries, "nextRetry": times(target.next_run),
        }),
    };
    json!({
        "key": format!("{}::{}", target.kind, target.id),
        "type": target.kind.as_str(),
        "displayName": target.name,
        "instance": target.id.as_str(),
        "connection": target.url,
        "pollStatus": without_nulls(json!({
            "lastSuccess": times(target.last_success), "lastError": last_error,
            "consecutiveFailures": target.failures, "firstFailureAt": times(target.first_failure),
        })),
        "breaker": without_nulls(json!({
            "state": target.breaker.state, "since": times(target.breaker.since),
            "lastTransition": times(target.breaker.since), "retryAt": times(target.breaker.retry_at),
            "failureCount": target.failures,
        })),
        "deadLetter": without_nulls(dead),
        "warnings": target.warnings,
    })
}

/// An event with Depsera's payload fields.
pub fn event_json(event: &Event, name_of: impl Fn(&TargetId) -> Option<String>) -> Value {
    let service = |target: &TargetId| {
        let name = name_of(target).unwrap_or_else(|| target.to_string());
        json!({ "serviceId": target.as_str(), "serviceName": name })
    };
    let (about, more) = match &event.kind {
        EventKind::StatusChange { target, dependency, previous, current } => (
            service(target),
            json!({
                "dependencyName": dependency, "previousHealthy": previous.healthy(), "currentHealthy": current.healthy(),
                "previousStatus": previous.as_str(), "currentStatus": current.as_str(),
            }),
        ),
        EventKind::DependencyMissing { target, dependency } => {
            (service(target), json!({ "dependencyName": dependency }))
        }
        EventKind::PollComplete { target, success, dependencies, transitions, latency_ms, error, warnings } => (
            service(target),
            json!({
                "success": success, "dependenciesUpdated": dependencies, "statusChanges": transitions, "error": error,
                "warnings": warnings, "latencyMs": latency_ms,
            }),
        ),
        EventKind::PollError { target, category, code, message } => {
            (service(target), json!({ "error": message, "code": code, "category": category.as_str() }))
        }
        EventKind::Unreachable { target, code, message } => {
            (service(target), json!({ "error": message, "code": code }))
        }
        EventKind::Reachable { target, failures } => (service(target), json!({ "failures": failures })),
        EventKind::CircuitOpen { target, failures } => (service(target), json!({ "failures": failures })),
        EventKind::DeadLetter { target, reason } => (service(target), json!({ "reason": reason })),
        EventKind::ServiceStarted { target }
        | EventKind::ServiceStopped { target }
        | EventKind::CircuitClose { target }
        | EventKind::Revived { target } => (service(target), json!({})),
        EventKind::PluginLoaded { plugin, version } => {
            (json!({ "plugin": plugin.as_str() }), json!({ "version": version }))
        }
        EventKind::PluginQuarantined { plugin, targets } => {
            (json!({ "plugin": plugin.as_str() }), json!({ "targets": targets }))
        }
        EventKind::PluginRefused { file, reason } => (json!({ "file": file }), json!({ "reason": reason })),
        EventKind::SettingsChanged { what, value } => (json!({ "setting": what }), json!({ "value": value })),
    };
    let mut payload = json!({ "event": event.kind.name(), "timestamp": time(event.at) });
    if let Value::Object(members) = &mut payload {
        for part in [about, more] {
            if let Value::Object(part) = part {
                members.extend(part);
            }
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_look_as_documented() {
        let target = TargetId::new("a").unwrap();
        assert_eq!(dependency_id(&target, "b").len(), 16);
        assert_ne!(dependency_id(&target, "b"), dependency_id(&target, "c"));
        assert_eq!(time(Timestamp::from_millis(1_784_578_620_000)), "2026-07-20T20:17:00.000Z");
        assert_eq!(time(Timestamp::from_millis(i64::MAX)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn events_carry_the_documented_fields() {
        let target = TargetId::new("a").unwrap();
        let kind = EventKind::StatusChange {
            target,
            dependency: "db".to_owned(),
            previous: Status::Ok,
            current: Status::Unknown,
        };
        let payload = event_json(&Event { at: Timestamp::from_millis(0), kind }, |_| Some("A".to_owned()));
        let expected = json!({
            "event": "status:change", "timestamp": "1970-01-01T00:00:00.000Z", "serviceId": "a", "serviceName": "A",
            "dependencyName": "db", "previousHealthy": true, "currentHealthy": null, "previousStatus": "ok",
            "currentStatus": "unknown",
        });
        assert_eq!(payload, expected);
    }
}
