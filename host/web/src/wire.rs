//! The JSON format of views: camelCase names, except where Pulse defines the name.

use crate::host::Host;
use crate::status::TargetStatus;
use crate::totals::Totals;
use model::{
    BreakerState, DependencyState, Explanation, LoopState, PluginState, PollFailure, Setting, Status, TargetId,
    TargetState, Timestamp,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most dead letters in Pulse's list.
const DEAD_LETTERS: usize = 25;

/// Formats a time as RFC 3339 in UTC with milliseconds.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.as_millis()) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => "1970-01-01T00:00:00.000Z".to_owned(),
    }
}

fn times(at: Option<Timestamp>) -> Option<String> {
    at.map(time)
}

/// A dependency's id for URLs: the first 16 hex digits of the SHA-256 of target id, NUL, name.
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
    pub(crate) fn new(target: &'a TargetState, dependency: &'a DependencyState) -> Self {
        let (record, volatile) = (&*dependency.record, &dependency.volatile);
        let reported = &record.reported;
        let raw = |json: &Option<model::Json>| {
            json.as_ref().and_then(|json| RawValue::from_string(json.as_str().to_owned()).ok())
        };
        // The last status of a stale or missing dependency may be out of date.
        let is_current = !target.is_stale() && record.missing_since.is_none();
        Self {
            id: dependency_id(&target.info.id, &reported.name),
            target: target.info.id.as_str(),
            name: &reported.name,
            canonical_name: record.canonical.as_deref(),
            title: reported.title.as_deref(),
            kind: &reported.kind,
            status: reported.status.as_str(),
            healthy: reported.status.healthy().filter(|_| is_current),
            stale: target.is_stale(),
            missing: record.missing_since.is_some(),
            skipped: reported.skipped,
            code: reported.code,
            latency_ms: volatile.latency_ms,
            description: reported.description.as_deref(),
            impact: reported.impact.as_deref(),
            error: raw(&reported.error),
            error_message: reported.error_message.as_deref(),
            contact: raw(&reported.contact),
            check_details: raw(&reported.check_details),
            parent: reported.parent.as_deref(),
            checked_at: time(volatile.checked_at),
            last_status_change: times(record.last_status_change),
            stale_since: times(target.observed.stale_since),
            missing_since: times(record.missing_since),
        }
    }
}

/// A page of dependencies. Serialized directly: converting to [`Value`] would parse the plugins' JSON again.
#[derive(Serialize)]
pub(crate) struct Dependencies<'a> {
    /// The number of matching dependencies on all pages.
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
    source: &'static str,
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

/// The state of an unreachable target's dependencies, whatever their last status was.
pub(crate) const STALE: &str = "stale";

impl<'a> Target<'a> {
    pub(crate) fn new(target: &'a TargetState) -> Self {
        let stale = target.is_stale();
        let words = [(STALE, 0), ("missing", 0), ("total", 0)];
        let mut dependencies: BTreeMap<&'static str, usize> =
            Status::ALL.into_iter().map(|status| (status.as_str(), 0)).chain(words).collect();
        for dependency in &target.observed.dependencies {
            let word = match dependency.record.missing_since {
                Some(_) => "missing",
                None if stale => STALE,
                None => dependency.record.reported.status.as_str(),
            };
            *dependencies.entry(word).or_default() += 1;
            *dependencies.entry("total").or_default() += 1;
        }
        let (info, schedule, observed) = (&*target.info, &target.schedule, &*target.observed);
        Self {
            id: info.id.as_str(),
            name: &info.name,
            kind: info.kind.as_str(),
            url: &info.url,
            labels: info.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            source: info.source.as_str(),
            enabled: target.enabled,
            status: TargetStatus::of(target).as_str(),
            state: target.place.as_str(),
            cadence: target.cadence.as_str(),
            interval_ms: schedule.interval.map(|interval| interval.as_millis() as u64),
            next_run: times(target.next_run()),
            last_polled: times(schedule.last_polled),
            last_success: times(schedule.last_success),
            last_error: observed.failure.as_ref().map(poll_error),
            consecutive_failures: schedule.failures,
            stale_since: times(observed.stale_since),
            breaker: json!({
                "state": target.breaker_state().as_str(),
                "since": times(schedule.breaker.since),
                "retryAt": times(target.retry_at()),
            }),
            dead_letter: schedule.dead.as_ref().map(|dead| {
                json!({
                    "reason": dead.reason.as_str(),
                    "since": time(dead.since),
                    "lastAttempt": time(dead.last_attempt),
                    "retryCount": dead.retries,
                })
            }),
            warnings: &observed.warnings,
            dependencies,
        }
    }
}

/// A target with its settings that can be changed while the host runs.
pub(crate) fn target_with_settings(target: &TargetState, settings: &[Setting]) -> Value {
    let mut shown = serde_json::to_value(Target::new(target)).unwrap_or_default();
    shown["settings"] = settings.iter().map(setting).collect();
    shown
}

fn poll_error(error: &PollFailure) -> Value {
    json!({
        "at": time(error.at), "category": error.category.as_str(), "code": error.code, "message": error.message,
    })
}

/// A plugin as JSON.
pub fn plugin_json(plugin: &PluginState) -> Value {
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let served = plugin.served.as_ref().ok();
    let usage = served.map(|served| served.usage.clone()).unwrap_or_default();
    json!({
        "kind": served.map(|served| served.kind.as_str()),
        "version": served.map(|served| &served.version),
        "source": plugin.source,
        "refusal": plugin.served.as_ref().err(),
        "sha256": served.map(|served| &served.digest),
        "quarantinedUntil": times(served.and_then(|served| served.quarantined_until)),
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

/// RedFlag's statistics with RedFlag's names. Adds the reasons for held-back polls, the targets by status, the driver's
/// loop, and the reason if the host is not ready.
pub(crate) fn scheduler_stats(host: &dyn Host) -> Value {
    let (all, state) = (host.targets(), host.scheduler());
    let totals = Totals::of(&all, host.now(), state.overdue_after);
    let mut targets: BTreeMap<&str, usize> = TargetStatus::ALL.map(|status| (status.as_str(), 0)).into();
    for target in &all {
        *targets.entry(TargetStatus::of(target).as_str()).or_default() += 1;
    }
    let counters = state.counters;
    let held: BTreeMap<&str, u64> = [
        ("maxInFlight", counters.held_in_flight),
        ("ratePerSecond", counters.held_by_rate),
        ("maxPerHost", counters.held_by_hosts),
        ("unwrittenResults", counters.skipped_unwritten),
        ("noInstanceSlot", counters.skipped_no_slot),
    ]
    .into();
    let in_flight: usize = state.in_flight.values().sum();
    let oldest = state.next.as_ref().and_then(|(id, at)| {
        let (target, at) = (host.target(id)?, time(*at));
        let clock = at.get(11..19).unwrap_or(&at).to_owned();
        let interval = target.schedule.interval.map_or_else(|| "-".to_owned(), |i| format!("{}s", i.as_secs()));
        Some(format!("[{id}/{}] next_run={clock} interval={interval}", target.info.kind))
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "startedAt": time(host.started()),
        "targets": targets,
        "notReady": host.readiness().err(),
        "scheduler": {
            "JobsProcessed": counters.started,
            "JobsSkipped": held.values().sum::<u64>(),
            "CommandsCreated": counters.succeeded,
            "CommandsFailed": counters.failed,
            "BackpressureSkips": counters.skipped_unwritten,
            "LastProcessedAt": times(state.last_start),
            "QueueSize": totals.depth,
            "WorkerPoolUtilized": in_flight,
            "AverageProcessingMS": (state.mean_poll.as_secs_f64() * 100_000.0).round() / 100.0,
        },
        "queue": {
            "Size": totals.depth,
            "NextRunAt": state.next.as_ref().map(|(_, at)| time(*at)),
            "OldestJob": oldest,
            "JobsBySubsystem": by_kind(&totals.depth_by_kind),
        },
        "held": held,
        "loop": loop_json(&state.turns),
    })
}

/// The state of the driver's loop; times are in milliseconds.
fn loop_json(turns: &LoopState) -> Value {
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let mean = turns.busy.checked_div(u32::try_from(turns.turns).unwrap_or(u32::MAX)).unwrap_or_default();
    json!({
        "turns": turns.turns,
        "meanTurnMs": milliseconds(mean),
        "longestTurnMs": milliseconds(turns.longest),
        "messagesHandled": turns.handled,
        "messages": turns.messages,
        "mostMessages": turns.most_messages,
        "capacity": turns.capacity,
        "oldestMessageMs": milliseconds(turns.oldest),
        "oldestMessageEverMs": milliseconds(turns.oldest_ever),
    })
}

fn by_kind(counts: &BTreeMap<model::Kind, usize>) -> BTreeMap<&str, usize> {
    counts.iter().map(|(kind, count)| (kind.as_str(), *count)).collect()
}

pub(crate) fn explanation(explanation: &Explanation<Timestamp>) -> Value {
    let terms = explanation.terms.iter();
    let terms: Vec<Value> =
        terms.map(|term| json!({ "name": term.name, "value": term.value, "meaning": term.meaning })).collect();
    json!({
        "target": explanation.target.as_str(), "state": explanation.place.as_str(), "nextRun": times(explanation.due),
        "summary": explanation.summary, "terms": terms,
    })
}

/// A target's dead letter; `None` if it has none, or if the target is disabled (the dead letter was dropped).
pub(crate) fn dead_letter(target: &TargetState) -> Option<Value> {
    let (info, schedule) = (&target.info, &target.schedule);
    let dead = schedule.dead.as_ref().filter(|_| target.enabled)?;
    Some(json!({
        "target": info.id.as_str(), "kind": info.kind.as_str(), "reason": dead.reason.as_str(),
        "since": time(dead.since), "lastAttempt": time(dead.last_attempt), "retryCount": dead.retries,
        "nextRun": times(target.next_run()), "consecutiveFailures": schedule.failures,
        "lastError": target.observed.failure.as_ref().map(poll_error),
    }))
}

/// Whether a target's breaker is not closed or counts failures.
pub(crate) fn has_unusual_breaker(target: &TargetState) -> bool {
    target.breaker_state() != BreakerState::Closed || target.schedule.failures > 0
}

/// A target's breaker; `None` if it is closed and counts no failures.
pub(crate) fn breaker(target: &TargetState) -> Option<Value> {
    has_unusual_breaker(target).then(|| {
        json!({
            "target": target.info.id.as_str(), "kind": target.info.kind.as_str(),
            "state": target.breaker_state().as_str(), "since": times(target.schedule.breaker.since),
            "retryAt": times(target.retry_at()), "failures": target.schedule.failures,
        })
    })
}

pub(crate) fn setting(setting: &Setting) -> Value {
    json!({
        "key": setting.key, "value": setting.value, "source": setting.source.as_str(),
        "from": setting.source.to_string(),
    })
}

pub(crate) fn settings(host: &dyn Host) -> Value {
    json!({
        "file": host.settings_file(), "problems": host.problems(),
        "settings": host.settings().iter().map(setting).collect::<Vec<_>>(),
    })
}

/// Removes `null` members, because Pulse omits unset values.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

/// Pulse's `/api/monitoring/scheduler/health` with Pulse's names; arrays are never null.
pub(crate) fn scheduler_health(host: &dyn Host) -> Value {
    let (targets, state, now) = (host.targets(), host.scheduler(), host.now());
    let totals = Totals::of(&targets, now, state.overdue_after);
    // Exclude disabled targets: their dead letters were dropped.
    let polled = targets.iter().filter(|target| target.enabled);
    let mut dead: Vec<_> = polled.filter_map(|target| Some((target, target.schedule.dead?))).collect();
    dead.sort_by_key(|(_, dead)| std::cmp::Reverse(dead.last_attempt));
    let count = dead.len();
    let named = |target: &Arc<TargetState>| (target.info.id.to_string(), target.info.kind.to_string());
    let failure = |target: &Arc<TargetState>| target.observed.failure.as_ref().map(|failure| failure.message.clone());
    let tasks: Vec<Value> = (dead.iter().take(DEAD_LETTERS))
        .map(|(target, _)| {
            let (instance, kind) = named(target);
            without_nulls(json!({
                "instance": instance, "type": kind, "nextRun": times(target.next_run()),
                "lastError": failure(target), "failures": target.schedule.failures,
            }))
        })
        .collect();
    let breakers: Vec<Value> = (targets.iter().filter(|target| has_unusual_breaker(target)))
        .map(|target| {
            let (instance, kind) = named(target);
            without_nulls(json!({
                "instance": instance, "type": kind, "state": target.breaker_state().as_str(),
                "failures": target.schedule.failures, "retryAt": times(target.retry_at()),
            }))
        })
        .collect();
    let staleness: Vec<Value> = (targets.iter())
        .map(|target| {
            let (instance, kind) = named(target);
            without_nulls(json!({
                "instance": instance, "type": kind, "score": target.staleness(now),
                "lastSuccess": times(target.schedule.last_success),
                "lastError": target.observed.failure.as_ref().map(|failure| time(failure.at)),
            }))
        })
        .collect();
    let mut by_key: Vec<&Arc<TargetState>> = targets.iter().collect();
    by_key.sort_by(|a, b| (&a.info.kind, &a.info.id).cmp(&(&b.info.kind, &b.info.id)));
    json!({
        "updatedAt": time(now),
        "enabled": state.adaptive,
        "queue": {
            "depth": totals.depth, "dueWithinSeconds": totals.due_soon, "perType": by_kind(&totals.depth_by_kind),
        },
        "deadLetter": { "count": count, "tasks": tasks },
        "breakers": breakers,
        "staleness": staleness,
        "instances": by_key.into_iter().map(|target| instance(target)).collect::<Vec<_>>(),
    })
}

fn instance(target: &TargetState) -> Value {
    let (info, schedule, observed) = (&*target.info, &target.schedule, &*target.observed);
    let last_error = observed
        .failure
        .as_ref()
        .map(|error| json!({ "at": time(error.at), "message": error.message, "category": error.category.as_str() }));
    let dead = match &schedule.dead {
        None => json!({ "present": false }),
        Some(dead) => json!({
            "present": true, "reason": dead.reason.as_str(), "firstAttempt": time(dead.since),
            "lastAttempt": time(dead.last_attempt), "retryCount": dead.retries, "nextRetry": times(target.next_run()),
        }),
    };
    json!({
        "key": format!("{}::{}", info.kind, info.id),
        "type": info.kind.as_str(),
        "displayName": info.name,
        "instance": info.id.as_str(),
        "connection": info.url,
        "pollStatus": without_nulls(json!({
            "lastSuccess": times(schedule.last_success), "lastError": last_error,
            "consecutiveFailures": schedule.failures, "firstFailureAt": times(schedule.first_failure),
        })),
        "breaker": without_nulls(json!({
            "state": target.breaker_state().as_str(), "since": times(schedule.breaker.since),
            "lastTransition": times(schedule.breaker.since), "retryAt": times(target.retry_at()),
            "failureCount": schedule.failures,
        })),
        "deadLetter": without_nulls(dead),
        "warnings": observed.warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_have_the_documented_format() {
        let target = TargetId::new("a").unwrap();
        assert_eq!(dependency_id(&target, "b").len(), 16);
        assert_ne!(dependency_id(&target, "b"), dependency_id(&target, "c"));
        assert_eq!(time(Timestamp::from_millis(1_784_578_620_000)), "2026-07-20T20:17:00.000Z");
        assert_eq!(time(Timestamp::from_millis(i64::MAX)), "1970-01-01T00:00:00.000Z");
    }
}
