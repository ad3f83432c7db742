//! Breakers: listed and reset.

use super::commands::{AcceptedWire, ask};
use super::query::{PageQuery, Queried, TargetPath, page, queried};
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use crate::status::has_unusual_breaker;
use crate::wire::{Time, times};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use model::{Ask, TargetState};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(reset))
}

/// The breaker of a target.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Breaker)]
struct BreakerWire<'a> {
    target: &'a str,
    kind: &'a str,
    #[schema(schema_with = words::breaker)]
    state: &'static str,
    since: Option<Time>,
    /// The time of the next probe.
    retry_at: Option<Time>,
    failures: u32,
}

impl<'a> BreakerWire<'a> {
    fn new(target: &'a TargetState) -> Self {
        Self {
            target: target.info.id.as_str(),
            kind: target.info.kind.as_str(),
            state: target.breaker_state().as_str(),
            since: times(target.schedule.breaker.since),
            retry_at: times(target.retry_at()),
            failures: target.schedule.failures,
        }
    }
}

/// A page of breakers that are not closed or count failures, in the order of their targets' ids.
#[derive(Serialize, ToSchema)]
#[schema(as = Breakers)]
struct BreakersWire<'a> {
    /// The number of such breakers on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    breakers: Vec<BreakerWire<'a>>,
}

/// Lists the breakers that are not closed or count failures.
#[utoipa::path(
    get, path = "/api/v1/breakers", tag = "breakers", params(PageQuery),
    responses((status = 200, body = BreakersWire<'_>, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<PageQuery>) -> Result<Response, ApiError> {
    let PageQuery { limit, cursor } = queried(query)?;
    let targets = shared.host.targets();
    let unusual: Vec<&Arc<TargetState>> = targets.iter().filter(|target| has_unusual_breaker(target)).collect();
    let id = |target: &&Arc<TargetState>| target.info.id.to_string();
    let found = page(unusual, id, (id, cursor), limit)?;
    let breakers = found.entries.into_iter().map(|target| BreakerWire::new(target)).collect();
    Ok(Json(BreakersWire { total: found.total, next: found.next, breakers }).into_response())
}

/// Closes a breaker, resets its count of failures and polls the target now.
#[utoipa::path(
    post, path = "/api/v1/breakers/{id}/reset", tag = "breakers", params(TargetPath),
    responses((status = 202, body = AcceptedWire, description = "It is closed."))
)]
async fn reset(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    ask(&shared, id, Ask::ResetBreaker).await
}
