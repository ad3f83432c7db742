//! Pulse's `/api/monitoring/scheduler/health`, with Pulse's names: it omits unset values, and arrays are never null.

use super::scheduler::by_kind;
use super::words;
use crate::host::Host;
use crate::state::Shared;
use crate::status::has_unusual_breaker;
use crate::totals::Totals;
use crate::wire::{Time, times};
use axum::Json;
use axum::extract::State;
use model::TargetState;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Most dead letters in Pulse's list.
const DEAD_LETTERS: usize = 25;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(health))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseHealth)]
struct HealthWire {
    updated_at: Time,
    /// Whether the cadence is adaptive.
    enabled: bool,
    queue: QueueWire,
    dead_letter: DeadLettersWire,
    breakers: Vec<BreakerWire>,
    staleness: Vec<StalenessWire>,
    instances: Vec<InstanceWire>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseQueue)]
struct QueueWire {
    depth: usize,
    due_within_seconds: usize,
    per_type: BTreeMap<String, usize>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PulseDeadLetters)]
struct DeadLettersWire {
    count: usize,
    /// The most recent ones.
    tasks: Vec<TaskWire>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseTask)]
struct TaskWire {
    instance: String,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    failures: u32,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseBreaker)]
struct BreakerWire {
    instance: String,
    r#type: String,
    #[schema(schema_with = words::breaker)]
    state: &'static str,
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Time>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseStaleness)]
struct StalenessWire {
    instance: String,
    r#type: String,
    /// From 0 to 1.
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<Time>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseInstance)]
struct InstanceWire {
    key: String,
    r#type: String,
    display_name: String,
    instance: String,
    connection: String,
    poll_status: PollStatusWire,
    breaker: InstanceBreakerWire,
    dead_letter: InstanceDeadLetterWire,
    warnings: Vec<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulsePollStatus)]
struct PollStatusWire {
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<ErrorWire>,
    consecutive_failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure_at: Option<Time>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PulseError)]
struct ErrorWire {
    at: Time,
    message: String,
    #[schema(schema_with = words::category)]
    category: &'static str,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseInstanceBreaker)]
struct InstanceBreakerWire {
    #[schema(schema_with = words::breaker)]
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transition: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Time>,
    failure_count: u32,
}

#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PulseInstanceDeadLetter)]
struct InstanceDeadLetterWire {
    present: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_attempt: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_retry: Option<Time>,
}

/// The scheduler's health, with Pulse's names.
#[utoipa::path(
    get, path = "/api/monitoring/scheduler/health", tag = "scheduler",
    responses((status = 200, body = HealthWire, description = "The health."))
)]
async fn health(State(shared): State<Shared>) -> Json<HealthWire> {
    Json(health_of(&*shared.host))
}

fn health_of(host: &dyn Host) -> HealthWire {
    let (targets, state, now) = (host.targets(), host.scheduler(), host.now());
    let totals = Totals::of(&targets, now, state.overdue_after);
    // Exclude disabled targets: their dead letters were dropped.
    let polled = targets.iter().filter(|target| target.enabled);
    let mut dead: Vec<_> = polled.filter_map(|target| Some((target, target.schedule.dead?))).collect();
    dead.sort_by_key(|(_, dead)| std::cmp::Reverse(dead.last_attempt));
    let count = dead.len();
    let mut by_key: Vec<_> = targets.iter().collect();
    by_key.sort_by(|a, b| (&a.info.kind, &a.info.id).cmp(&(&b.info.kind, &b.info.id)));
    HealthWire {
        updated_at: Time::new(now),
        enabled: state.adaptive,
        queue: QueueWire {
            depth: totals.depth,
            due_within_seconds: totals.due_soon,
            per_type: by_kind(&totals.depth_by_kind),
        },
        dead_letter: DeadLettersWire {
            count,
            tasks: dead.iter().take(DEAD_LETTERS).map(|(target, _)| task(target)).collect(),
        },
        breakers: targets.iter().filter(|target| has_unusual_breaker(target)).map(|target| breaker(target)).collect(),
        staleness: (targets.iter())
            .map(|target| StalenessWire {
                instance: target.info.id.to_string(),
                r#type: target.info.kind.to_string(),
                score: target.staleness(now),
                last_success: times(target.schedule.last_success),
                last_error: times(target.observed.failure.as_ref().map(|failure| failure.at)),
            })
            .collect(),
        instances: by_key.into_iter().map(|target| instance(target)).collect(),
    }
}

fn task(target: &TargetState) -> TaskWire {
    TaskWire {
        instance: target.info.id.to_string(),
        r#type: target.info.kind.to_string(),
        next_run: times(target.next_run()),
        last_error: target.observed.failure.as_ref().map(|failure| failure.message.clone()),
        failures: target.schedule.failures,
    }
}

fn breaker(target: &TargetState) -> BreakerWire {
    BreakerWire {
        instance: target.info.id.to_string(),
        r#type: target.info.kind.to_string(),
        state: target.breaker_state().as_str(),
        failures: target.schedule.failures,
        retry_at: times(target.retry_at()),
    }
}

fn instance(target: &TargetState) -> InstanceWire {
    let (info, schedule, observed) = (&*target.info, &target.schedule, &*target.observed);
    let last_error = observed.failure.as_ref().map(|error| ErrorWire {
        at: Time::new(error.at),
        message: error.message.clone(),
        category: error.category.as_str(),
    });
    let dead_letter = schedule.dead.as_ref().map(|dead| InstanceDeadLetterWire {
        present: true,
        reason: Some(dead.reason.as_str()),
        first_attempt: Some(Time::new(dead.since)),
        last_attempt: Some(Time::new(dead.last_attempt)),
        retry_count: Some(dead.retries),
        next_retry: times(target.next_run()),
    });
    InstanceWire {
        key: format!("{}::{}", info.kind, info.id),
        r#type: info.kind.to_string(),
        display_name: info.name.clone(),
        instance: info.id.to_string(),
        connection: info.url.clone(),
        poll_status: PollStatusWire {
            last_success: times(schedule.last_success),
            last_error,
            consecutive_failures: schedule.failures,
            first_failure_at: times(schedule.first_failure),
        },
        breaker: InstanceBreakerWire {
            state: target.breaker_state().as_str(),
            since: times(schedule.breaker.since),
            last_transition: times(schedule.breaker.since),
            retry_at: times(target.retry_at()),
            failure_count: schedule.failures,
        },
        dead_letter: dead_letter.unwrap_or_default(),
        warnings: observed.warnings.clone(),
    }
}
