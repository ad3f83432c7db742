//! Dead letters: listed, retried, dropped.

use super::commands::{AcceptedWire, ask};
use super::query::{PageQuery, Queried, TargetPath, named, page, queried};
use super::target_wire::FailureWire;
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, times};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{Ask, CommandError, TargetState};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(retry_all)).routes(routes!(drop)).routes(routes!(retry))
}

/// A target that is polled rarely, because it failed permanently or for too long.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetter)]
struct DeadLetterWire<'a> {
    target: &'a str,
    kind: &'a str,
    #[schema(schema_with = words::dead_reason)]
    reason: &'static str,
    since: Time,
    last_attempt: Time,
    retry_count: u32,
    next_run: Option<Time>,
    consecutive_failures: u32,
    last_error: Option<FailureWire<'a>>,
}

impl<'a> DeadLetterWire<'a> {
    /// A target's dead letter; `None` if it has none, or if the target is disabled (the dead letter was dropped).
    fn of(target: &'a TargetState) -> Option<Self> {
        let (info, schedule) = (&target.info, &target.schedule);
        let dead = schedule.dead.as_ref().filter(|_| target.enabled)?;
        Some(Self {
            target: info.id.as_str(),
            kind: info.kind.as_str(),
            reason: dead.reason.as_str(),
            since: Time::new(dead.since),
            last_attempt: Time::new(dead.last_attempt),
            retry_count: dead.retries,
            next_run: times(target.next_run()),
            consecutive_failures: schedule.failures,
            last_error: target.observed.failure.as_ref().map(FailureWire::new),
        })
    }
}

fn is_dead_letter(target: &TargetState) -> bool {
    target.enabled && target.schedule.dead.is_some()
}

/// A page of dead letters, in the order of their targets' ids.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeadLetters)]
struct DeadLettersWire<'a> {
    /// The number of dead letters on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    dead_letters: Vec<DeadLetterWire<'a>>,
}

/// Lists dead letters.
#[utoipa::path(
    get, path = "/api/v1/dead-letters", tag = "dead letters", params(PageQuery),
    responses((status = 200, body = DeadLettersWire<'_>, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<PageQuery>) -> Result<Response, ApiError> {
    let PageQuery { limit, cursor } = queried(query)?;
    let targets = shared.host.targets();
    let dead: Vec<&Arc<TargetState>> = targets.iter().filter(|target| is_dead_letter(target)).collect();
    let id = |target: &&Arc<TargetState>| target.info.id.to_string();
    let found = page(dead, id, (id, cursor), limit)?;
    let dead_letters = found.entries.into_iter().filter_map(|target| DeadLetterWire::of(target)).collect();
    Ok(Json(DeadLettersWire { total: found.total, next: found.next, dead_letters }).into_response())
}

/// Polls the target of a dead letter now.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/{id}/retry", tag = "dead letters", params(TargetPath),
    responses((status = 202, body = AcceptedWire, description = "It is polled."))
)]
async fn retry(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    ask(&shared, id, Ask::Retry).await
}

#[derive(Serialize, ToSchema)]
#[schema(as = Retried)]
struct RetriedWire {
    /// The ids of the targets that are polled.
    retried: Vec<String>,
}

/// Polls the targets of all dead letters now. A target that has recovered in the meantime is skipped.
#[utoipa::path(
    post, path = "/api/v1/dead-letters/retry", tag = "dead letters",
    responses((status = 202, body = RetriedWire, description = "They are polled."))
)]
async fn retry_all(State(shared): State<Shared>) -> (StatusCode, Json<RetriedWire>) {
    let targets = shared.host.targets();
    let mut retried = Vec::new();
    for target in targets.iter().filter(|target| is_dead_letter(target)) {
        if shared.host.ask(&target.info.id, Ask::Retry).await.is_ok() {
            retried.push(target.info.id.to_string());
        }
    }
    (StatusCode::ACCEPTED, Json(RetriedWire { retried }))
}

#[derive(Serialize, ToSchema)]
#[schema(as = Dropped)]
struct DroppedWire {
    /// The id of the target.
    dropped: String,
}

/// Drops a dead letter: disables its target until an operator enables it.
#[utoipa::path(
    delete, path = "/api/v1/dead-letters/{id}", tag = "dead letters", params(TargetPath),
    responses((status = 200, body = DroppedWire, description = "The target is disabled."))
)]
async fn drop(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<DroppedWire>, ApiError> {
    let target = named(id)?;
    let state = shared.host.target(&target).ok_or_else(|| CommandError::NoTarget(target.to_string()))?;
    if !is_dead_letter(&state) {
        return Err(CommandError::Conflict(format!("target {target} is not a dead letter")).into());
    }
    shared.host.set(vec![(format!("target.{target}.enabled"), Some("false".to_owned()))]).await?;
    Ok(Json(DroppedWire { dropped: target.to_string() }))
}
