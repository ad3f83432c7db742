//! Programs' view: JSON.

use crate::host::{CommandError, Overview};
use crate::server::Shared;
use crate::wire::{self, Dependency, Target};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use model::{Status, TargetId};
use serde::Deserialize;
use serde_json::json;

/// Entries of one answer.
const PAGE: usize = 1000;

/// An answer that says what is wrong.
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(field) = self.field {
            error["field"] = field.into();
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NoTarget(_) => Self::new(StatusCode::NOT_FOUND, "not_found", error.to_string()),
            CommandError::Conflict(_) => Self::new(StatusCode::CONFLICT, "conflict", error.to_string()),
        }
    }
}

pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

pub(crate) async fn readyz(State(shared): State<Shared>) -> Response {
    match shared.host.readiness() {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

pub(crate) async fn scheduler_health(State(shared): State<Shared>) -> Response {
    Json(wire::scheduler_health(&shared.host.overview().await)).into_response()
}

/// Which part of a list is wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    target: Option<String>,
    status: Option<String>,
    limit: Option<usize>,
    offset: Option<usize>,
}

impl ListQuery {
    fn page(&self) -> (usize, usize) {
        (self.offset.unwrap_or(0), self.limit.unwrap_or(PAGE).min(PAGE))
    }

    fn status(&self) -> Result<Option<Status>, ApiError> {
        let Some(word) = &self.status else { return Ok(None) };
        let status = Status::from_word(word).ok_or_else(|| ApiError {
            field: Some("status"),
            ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "status is one of ok, warning, unknown, critical")
        })?;
        Ok(Some(status))
    }
}

pub(crate) type Queried = Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>;

fn queried(query: Queried) -> Result<ListQuery, ApiError> {
    query.map(|Query(query)| query).map_err(|error| {
        let why = error.body_text();
        let why = why.rsplit_once("query string: ").map_or(why.as_str(), |(_, why)| why);
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", format!("the query is wrong: {why}"))
    })
}

pub(crate) async fn targets(State(shared): State<Shared>, query: Queried) -> Result<Response, ApiError> {
    let query = queried(query)?;
    let (offset, limit) = query.page();
    let status = query.status()?;
    let Overview { targets, .. } = shared.host.overview().await;
    let matching: Vec<_> = targets.iter().filter(|t| status.is_none_or(|status| wire::worst(t) == status)).collect();
    let page: Vec<_> = matching.iter().skip(offset).take(limit).map(|target| Target::new(target)).collect();
    Ok(Json(json!({ "total": matching.len(), "targets": page })).into_response())
}

pub(crate) async fn target(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let Overview { targets, .. } = shared.host.overview().await;
    match targets.iter().find(|target| target.id.as_str() == id) {
        Some(target) => Ok(Json(Target::new(target)).into_response()),
        None => Err(CommandError::NoTarget(id).into()),
    }
}

pub(crate) async fn dependencies(State(shared): State<Shared>, query: Queried) -> Result<Response, ApiError> {
    let query = queried(query)?;
    let (offset, limit) = query.page();
    let status = query.status()?;
    let Overview { targets, .. } = shared.host.overview().await;
    let wanted = targets.iter().filter(|target| query.target.as_deref().is_none_or(|id| target.id.as_str() == id));
    let all: Vec<_> = wanted
        .flat_map(|target| target.dependencies.iter().map(move |dependency| (target, dependency)))
        .filter(|(_, dependency)| status.is_none_or(|status| dependency.status == status))
        .collect();
    let page: Vec<_> = all.iter().skip(offset).take(limit).map(|(t, d)| Dependency::new(t, d)).collect();
    Ok(Json(json!({ "total": all.len(), "dependencies": page })).into_response())
}

pub(crate) async fn plugins(State(shared): State<Shared>) -> Response {
    let plugins: Vec<_> = shared.host.plugins().iter().map(wire::plugin).collect();
    Json(json!({ "plugins": plugins })).into_response()
}

pub(crate) async fn poll_now(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let target = TargetId::new(&id).map_err(|_| CommandError::NoTarget(id))?;
    shared.host.poll_now(&target).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "accepted": true }))).into_response())
}

pub(crate) async fn events(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let Shared { host, announcer, ending, .. } = shared;
    crate::events::stream(host, announcer, last, ending).await.into_response()
}

pub(crate) async fn not_this_way() -> ApiError {
    let message = "this path does not take this method: GET reads, and POST only asks for a poll";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

pub(crate) async fn nothing_here() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is nothing at this path: see / for the pages and /api/v1/targets for the API",
    )
}
