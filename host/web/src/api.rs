//! The JSON API's handlers.

use crate::error::ApiError;
use crate::filter::{Filter, Words};
use crate::pauses::WithPauses as _;
use crate::state::Shared;
use crate::status::TargetStatus;
use crate::wire::{self, Dependency, Target};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use model::{Ask, CommandError, Status, TargetId, TargetState};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for the scheduling loop to answer a ping. A loop that works answers within milliseconds.
const ANSWERED: Duration = Duration::from_secs(2);
/// Most list entries in one response.
const PAGE: usize = 1000;

pub(crate) async fn healthz(State(shared): State<Shared>) -> Response {
    match shared.host.health() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => unavailable(&why),
    }
}

pub(crate) async fn readyz(State(shared): State<Shared>) -> Response {
    if let Err(why) = shared.host.readiness() {
        return unavailable(&why);
    }
    if !timeout(ANSWERED, shared.host.loop_answers()).await.unwrap_or(false) {
        return unavailable("the scheduling thread does not answer: polls may have stopped");
    }
    let mut answer = "ready\n".to_owned();
    // The caller is not authenticated, and a problem may quote the configuration: give the count only.
    match shared.host.problems().len() {
        0 => {}
        count => answer.push_str(&format!(
            "but not all of the configuration is active: {}; see the log or `polliwog status`\n",
            if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") }
        )),
    }
    let targets = shared.host.targets();
    let unserved = targets.iter().filter(|target| TargetStatus::of(target) == TargetStatus::NoPlugin);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    unserved.for_each(|target| *kinds.entry(target.info.kind.as_str()).or_default() += 1);
    for (kind, count) in kinds {
        let targets = if count == 1 { "target is" } else { "targets are" };
        answer.push_str(&format!(
            "but {count} {targets} not polled: no plugin serves kind {kind}, or it is in quarantine\n"
        ));
    }
    answer.into_response()
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

pub(crate) async fn scheduler_health(State(shared): State<Shared>) -> Response {
    Json(wire::scheduler_health(&*shared.host)).into_response()
}

/// The query parameters of a list: filters and the page.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    target: Option<String>,
    text: Option<String>,
    status: Option<String>,
    kind: Option<String>,
    label: Option<String>,
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
            ..ApiError::new(
                StatusCode::BAD_REQUEST,
                "bad_request",
                "the status of a dependency must be one of ok, warning, unknown, critical",
            )
        })?;
        Ok(Some(status))
    }

    fn filter(&self) -> Result<Filter, ApiError> {
        let Self { text, status, kind, label, .. } = self;
        let (text, status) = (text.as_deref(), status.as_deref());
        Filter::new(Words { text, status, kind: kind.as_deref(), label: label.as_deref() })
    }
}

pub(crate) type Queried = Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>;

fn queried(query: Queried) -> Result<ListQuery, ApiError> {
    query.map(|Query(query)| query).map_err(|error| {
        let why = error.body_text();
        let why = why.rsplit_once("query string: ").map_or(why.as_str(), |(_, why)| why);
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", format!("invalid query: {why}"))
    })
}

pub(crate) async fn targets(State(shared): State<Shared>, query: Queried) -> Result<Response, ApiError> {
    let query = queried(query)?;
    let (offset, limit) = query.page();
    let (filter, targets) = (query.filter()?, shared.host.targets());
    let matches =
        |target: &TargetState| filter.matches_besides_status(target) && filter.has_status(TargetStatus::of(target));
    let matching: Vec<_> = targets.iter().with_pauses().filter(|target| matches(target)).collect();
    let page: Vec<_> =
        matching.iter().skip(offset).take(limit).with_pauses().map(|target| Target::new(target)).collect();
    Ok(Json(json!({ "total": matching.len(), "targets": page })).into_response())
}

pub(crate) async fn target(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = named(id)?;
    let target = shared.host.target(&id).ok_or_else(|| CommandError::NoTarget(id.to_string()))?;
    Ok(Json(wire::target_with_settings(&target, &shared.host.settings_of(&id))).into_response())
}

pub(crate) async fn dependencies(State(shared): State<Shared>, query: Queried) -> Result<Response, ApiError> {
    let query = queried(query)?;
    let (offset, limit) = query.page();
    let status = query.status()?;
    let targets = match query.target.as_deref() {
        Some(id) => TargetId::new(id).ok().and_then(|id| shared.host.target(&id)).into_iter().collect(),
        None => shared.host.targets(),
    };
    let all: Vec<_> = (targets.iter())
        .flat_map(|target| target.observed.dependencies.iter().map(move |dependency| (target, dependency)))
        .filter(|(_, dependency)| status.is_none_or(|status| dependency.record.reported.status == status))
        .collect();
    let dependencies = all.iter().skip(offset).take(limit).map(|(t, d)| Dependency::new(t, d)).collect();
    Ok(Json(wire::Dependencies { total: all.len(), dependencies }).into_response())
}

pub(crate) async fn plugins(State(shared): State<Shared>) -> Response {
    let plugins: Vec<_> = shared.host.plugins().iter().map(wire::plugin_json).collect();
    Json(json!({ "plugins": plugins })).into_response()
}

/// Parses a target id from a path. Fails if it is not a valid id.
pub(crate) fn named(id: String) -> Result<TargetId, ApiError> {
    TargetId::new(&id).map_err(|_| CommandError::NoTarget(id).into())
}

async fn ask(shared: &Shared, id: String, ask: Ask) -> Result<Response, ApiError> {
    shared.host.ask(&named(id)?, ask).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "accepted": true }))).into_response())
}

pub(crate) async fn poll_now(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    ask(&shared, id, Ask::PollNow).await
}

pub(crate) async fn scheduler_stats(State(shared): State<Shared>) -> Response {
    Json(wire::scheduler_stats(&*shared.host)).into_response()
}

pub(crate) async fn explain(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let target = named(id)?;
    let explanation = shared.host.explain(&target).await?;
    Ok(Json(wire::explanation(&explanation)).into_response())
}

pub(crate) async fn dead_letters(State(shared): State<Shared>) -> Response {
    let dead: Vec<_> = shared.host.targets().iter().filter_map(|target| wire::dead_letter(target)).collect();
    Json(json!({ "total": dead.len(), "deadLetters": dead })).into_response()
}

pub(crate) async fn retry(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    ask(&shared, id, Ask::Retry).await
}

/// Retries every dead letter. A target that has recovered in the meantime is skipped.
pub(crate) async fn retry_all(State(shared): State<Shared>) -> Response {
    let targets = shared.host.targets();
    let mut retried = Vec::new();
    for target in targets.iter().filter(|target| wire::dead_letter(target).is_some()) {
        if shared.host.ask(&target.info.id, Ask::Retry).await.is_ok() {
            retried.push(target.info.id.as_str());
        }
    }
    (StatusCode::ACCEPTED, Json(json!({ "retried": retried }))).into_response()
}

/// The body of a dismiss request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dismissal {
    /// The name of a dependency; `None` dismisses all missing dependencies.
    dependency: Option<String>,
}

/// Forgets missing dependencies that an operator removed on purpose.
pub(crate) async fn dismiss(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let target = named(id)?;
    let wrong = |error: serde_json::Error| {
        let message = format!("the body must be {{\"dependency\": NAME}} or empty: {error}");
        ApiError::new(StatusCode::BAD_REQUEST, "bad_body", message)
    };
    let wanted =
        if body.is_empty() { None } else { serde_json::from_slice::<Dismissal>(&body).map_err(wrong)?.dependency };
    let dismissed = shared.host.dismiss(&target, wanted).await?;
    Ok(Json(json!({ "dismissed": dismissed })).into_response())
}

/// Drops a dead letter: disables its target until an operator enables it.
pub(crate) async fn drop_dead_letter(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let target = named(id)?;
    let state = shared.host.target(&target).ok_or_else(|| CommandError::NoTarget(target.to_string()))?;
    if wire::dead_letter(&state).is_none() {
        return Err(CommandError::Conflict(format!("target {target} is not a dead letter")).into());
    }
    shared.host.set(vec![(format!("target.{target}.enabled"), Some("false".to_owned()))]).await?;
    Ok(Json(json!({ "dropped": target.as_str() })).into_response())
}

pub(crate) async fn breakers(State(shared): State<Shared>) -> Response {
    let unusual: Vec<_> = shared.host.targets().iter().filter_map(|target| wire::breaker(target)).collect();
    Json(json!({ "total": unusual.len(), "breakers": unusual })).into_response()
}

pub(crate) async fn reset_breaker(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    ask(&shared, id, Ask::ResetBreaker).await
}

pub(crate) async fn settings(State(shared): State<Shared>) -> Response {
    Json(wire::settings(&*shared.host)).into_response()
}

pub(crate) async fn setting(State(shared): State<Shared>, Path(key): Path<String>) -> Result<Response, ApiError> {
    match shared.host.setting(&key) {
        Some(setting) => Ok(Json(wire::setting(&setting)).into_response()),
        None => {
            Err(CommandError::NoSetting(format!("unknown setting {key:?}: GET /api/v1/settings lists all settings"))
                .into())
        }
    }
}

/// Parses a request's body as a JSON object, whatever its content type.
fn sent(body: &Bytes) -> Result<serde_json::Map<String, serde_json::Value>, ApiError> {
    let wrong = |why: String| ApiError::new(StatusCode::BAD_REQUEST, "bad_request", why);
    match serde_json::from_slice(body) {
        Ok(serde_json::Value::Object(members)) => Ok(members),
        Ok(_) => Err(wrong("the body must be a JSON object".to_owned())),
        Err(error) => Err(wrong(format!("the body must be a JSON object: {error}"))),
    }
}

/// Returns a value as it is written in the file. Numbers and booleans may be sent as JSON numbers and booleans.
fn written(field: &'static str, value: &serde_json::Value) -> Result<String, ApiError> {
    match value {
        serde_json::Value::String(text) => Ok(text.clone()),
        serde_json::Value::Number(_) | serde_json::Value::Bool(_) => Ok(value.to_string()),
        _ => Err(ApiError {
            field: Some(field),
            ..ApiError::new(
                StatusCode::BAD_REQUEST,
                "bad_request",
                format!("{field} must be a string, a number or a boolean"),
            )
        }),
    }
}

pub(crate) async fn put_setting(
    State(shared): State<Shared>,
    Path(key): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let members = sent(&body)?;
    let value = members.get("value").filter(|_| members.len() == 1).ok_or_else(|| {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "the body must be {\"value\": \"…\"} and nothing else")
    })?;
    shared.host.set(vec![(key.clone(), Some(written("value", value)?))]).await?;
    setting(State(shared), Path(key)).await
}

pub(crate) async fn unset(State(shared): State<Shared>, Path(key): Path<String>) -> Result<Response, ApiError> {
    shared.host.set(vec![(key.clone(), None)]).await?;
    // An override for a removed target no longer names a setting.
    match setting(State(shared), Path(key)).await {
        Ok(found) => Ok(found),
        Err(_) => Ok(Json(json!({ "forgotten": true })).into_response()),
    }
}

/// Changes `enabled`, `interval` and `cadence` of a target while the host runs; null reverts a change.
pub(crate) async fn patch_target(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    const CHANGEABLE: [&str; 3] = ["enabled", "interval", "cadence"];
    let target = named(id)?;
    let members = sent(&body)?;
    if shared.host.target(&target).is_none() {
        return Err(CommandError::NoTarget(target.to_string()).into());
    }
    if let Some(other) = members.keys().find(|key| !CHANGEABLE.contains(&key.as_str())) {
        const DEFINED: [&str; 12] = [
            "id",
            "name",
            "kind",
            "url",
            "also",
            "tls",
            "timeout",
            "secrets",
            "labels",
            "settings",
            "min_interval",
            "max_interval",
        ];
        if !DEFINED.contains(&other.as_str()) {
            let message =
                format!("unknown target setting {other:?}: this request can change enabled, interval and cadence");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message));
        }
        if shared.host.definition(&target).is_some() {
            let message = format!("this request can change enabled, interval and cadence: PUT replaces {other}");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message));
        }
        let message = format!(
            "{target} is defined in the configuration file: change {other} there; this request can change enabled, \
             interval and cadence"
        );
        return Err(CommandError::InFile(message).into());
    }
    let mut changes = Vec::new();
    for field in CHANGEABLE {
        match members.get(field) {
            None => {}
            Some(serde_json::Value::Null) => changes.push((format!("target.{target}.{field}"), None)),
            Some(value) => changes.push((format!("target.{target}.{field}"), Some(written(field, value)?))),
        }
    }
    shared.host.set(changes).await?;
    self::target(State(shared), Path(target.to_string())).await
}

pub(crate) async fn events(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let Shared { host, ending, .. } = shared;
    crate::events::stream(host, last, ending).await.into_response()
}

pub(crate) async fn not_this_way() -> ApiError {
    let message = "this path does not support this method: use GET to read; POST, PUT, PATCH and DELETE to change";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

pub(crate) async fn nothing_here(path: Uri) -> ApiError {
    let message = match path.path().strip_suffix('/') {
        Some(_) => "this path does not exist: remove the slash at its end",
        None => "this path does not exist: the pages start at /, the API at /api/v1/targets",
    };
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// Replaces axum's plain-text response for a body that is too long with the API's JSON.
pub(crate) async fn in_words(response: Response) -> Response {
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let message = "the request's body is longer than the limit of 2 MiB";
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).into_response();
    }
    response
}
