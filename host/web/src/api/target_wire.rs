//! A target in responses.

use super::words;
use crate::status::TargetStatus;
use crate::wire::{Time, times};
use model::{PollFailure, Status, TargetState};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A target.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Target)]
pub(crate) struct TargetWire<'a> {
    id: &'a str,
    name: &'a str,
    kind: &'a str,
    url: &'a str,
    #[schema(value_type = BTreeMap<String, String>)]
    labels: BTreeMap<&'a str, &'a str>,
    /// The source of its definition.
    #[schema(schema_with = words::target_source)]
    source: &'static str,
    enabled: bool,
    #[schema(schema_with = words::target_status)]
    status: &'static str,
    /// Its state in the scheduler.
    #[schema(schema_with = words::place)]
    state: &'static str,
    #[schema(schema_with = words::cadence)]
    cadence: &'static str,
    /// The current interval.
    interval_ms: Option<u64>,
    next_run: Option<Time>,
    last_polled: Option<Time>,
    last_success: Option<Time>,
    /// Null after a success.
    last_error: Option<FailureWire<'a>>,
    consecutive_failures: u32,
    /// Null after a success.
    stale_since: Option<Time>,
    breaker: BreakerWire,
    dead_letter: Option<DeadWire>,
    warnings: &'a [String],
    dependencies: CountsWire,
}

/// The failure of a poll.
#[derive(Serialize, ToSchema)]
#[schema(as = PollFailure)]
pub(crate) struct FailureWire<'a> {
    at: Time,
    #[schema(schema_with = words::category)]
    category: &'static str,
    code: &'a str,
    message: &'a str,
}

impl<'a> FailureWire<'a> {
    pub(crate) fn new(failure: &'a PollFailure) -> Self {
        let PollFailure { at, category, code, message, .. } = failure;
        Self { at: Time::new(*at), category: category.as_str(), code, message }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TargetBreaker)]
struct BreakerWire {
    #[schema(schema_with = words::breaker)]
    state: &'static str,
    since: Option<Time>,
    /// The time of the next probe.
    retry_at: Option<Time>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TargetDeadLetter)]
struct DeadWire {
    #[schema(schema_with = words::dead_reason)]
    reason: &'static str,
    since: Time,
    last_attempt: Time,
    retry_count: u32,
}

/// The dependencies of a target by their state.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = DependencyCounts)]
struct CountsWire {
    ok: usize,
    warning: usize,
    unknown: usize,
    critical: usize,
    /// The target is unreachable: whatever their last status was.
    stale: usize,
    /// No longer reported.
    missing: usize,
    total: usize,
}

impl CountsWire {
    fn of(target: &TargetState) -> Self {
        let mut counts = Self::default();
        for dependency in target.observed.dependencies.iter() {
            let count = match (dependency.record.missing_since, dependency.record.reported.status) {
                (Some(_), _) => &mut counts.missing,
                (None, _) if target.is_stale_in(dependency) => &mut counts.stale,
                (None, Status::Ok) => &mut counts.ok,
                (None, Status::Warning) => &mut counts.warning,
                (None, Status::Unknown) => &mut counts.unknown,
                (None, Status::Critical) => &mut counts.critical,
            };
            *count += 1;
            counts.total += 1;
        }
        counts
    }
}

impl<'a> TargetWire<'a> {
    pub(crate) fn new(target: &'a TargetState) -> Self {
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
            last_error: observed.failure.as_ref().map(FailureWire::new),
            consecutive_failures: schedule.failures,
            stale_since: times(observed.stale_since),
            breaker: BreakerWire {
                state: target.breaker_state().as_str(),
                since: times(schedule.breaker.since),
                retry_at: times(target.retry_at()),
            },
            dead_letter: schedule.dead.as_ref().map(|dead| DeadWire {
                reason: dead.reason.as_str(),
                since: Time::new(dead.since),
                last_attempt: Time::new(dead.last_attempt),
                retry_count: dead.retries,
            }),
            warnings: &observed.warnings,
            dependencies: CountsWire::of(target),
        }
    }
}
