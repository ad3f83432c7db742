//! Targets: listed, shown, polled, paused, explained.

use super::commands::{AcceptedWire, ask};
use super::query::{Queried, TargetPath, named, object, page, queried, wrong};
use super::settings::SettingWire;
use super::target_wire::TargetWire;
use super::words;
use crate::compression::compressed;
use crate::error::ApiError;
use crate::filter::{Filter, Words};
use crate::pauses::WithPauses as _;
use crate::state::Shared;
use crate::status::TargetStatus;
use crate::wire::{Time, times};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{Ask, CommandError, Explanation, TargetId, TargetState, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list, super::definitions::create).layer(compressed()))
        .routes(routes!(show, change, super::definitions::replace, super::definitions::delete))
        .routes(routes!(explain))
        .routes(routes!(poll))
        .routes(routes!(dismiss))
}

/// The choice of targets, with the words of the pages.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TargetsQuery {
    /// Part of the id, name, kind or URL, of a label, or of the name of a dependency.
    text: Option<String>,
    /// One or several statuses, separated by commas.
    #[param(
        pattern = "^\\s*((unreachable|critical|no_plugin|warning|unknown|pending|ok|disabled)\\s*)?(,\\s*((unreachable|critical|no_plugin|warning|unknown|pending|ok|disabled)\\s*)?)*$"
    )]
    status: Option<String>,
    kind: Option<String>,
    /// `NAME` or `NAME=VALUE`.
    label: Option<String>,
    /// The maximum number of entries; the default is 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// A page of targets, in the order of their ids.
#[derive(Serialize, ToSchema)]
#[schema(as = Targets)]
struct TargetsWire<'a> {
    /// The number of matching targets on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    targets: Vec<TargetWire<'a>>,
}

/// Lists targets.
#[utoipa::path(
    get, path = "/api/v1/targets", tag = "targets", params(TargetsQuery),
    responses((status = 200, body = TargetsWire<'_>, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<TargetsQuery>) -> Result<Response, ApiError> {
    let TargetsQuery { text, status, kind, label, limit, cursor } = queried(query)?;
    let words =
        Words { text: text.as_deref(), status: status.as_deref(), kind: kind.as_deref(), label: label.as_deref() };
    let (filter, targets) = (Filter::new(words)?, shared.host.targets());
    let matches =
        |target: &TargetState| filter.matches_besides_status(target) && filter.has_status(TargetStatus::of(target));
    let matching: Vec<_> = targets.iter().with_pauses().filter(|target| matches(target)).collect();
    let id = |target: &&std::sync::Arc<TargetState>| target.info.id.to_string();
    let found = page(matching, id, (id, cursor), limit)?;
    let targets = found.entries.into_iter().with_pauses().map(|target| TargetWire::new(target)).collect();
    Ok(Json(TargetsWire { total: found.total, next: found.next, targets }).into_response())
}

/// A target with its settings that can be changed while the host runs.
#[derive(Serialize, ToSchema)]
#[schema(as = TargetWithSettings)]
struct ShownWire<'a> {
    #[serde(flatten)]
    target: TargetWire<'a>,
    settings: Vec<SettingWire>,
}

fn shown(shared: &Shared, id: &TargetId) -> Result<Response, ApiError> {
    let target = shared.host.target(id).ok_or_else(|| CommandError::NoTarget(id.to_string()))?;
    let settings = shared.host.settings_of(id).into_iter().map(SettingWire::from).collect();
    Ok(Json(ShownWire { target: TargetWire::new(&target), settings }).into_response())
}

/// Returns one target with its settings.
#[utoipa::path(
    get, path = "/api/v1/targets/{id}", tag = "targets", params(TargetPath),
    responses((status = 200, body = ShownWire<'_>, description = "The target."))
)]
async fn show(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    shown(&shared, &named(id)?)
}

/// The changes of a target: null reverts a change, an absent member changes nothing.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TargetChanges)]
#[expect(dead_code, reason = "describes the body")]
struct Changes {
    enabled: Option<bool>,
    /// A duration such as `20s`.
    interval: Option<String>,
    #[schema(schema_with = words::cadence_or_null)]
    cadence: Option<String>,
}

/// Changes `enabled`, `interval` and `cadence` of a target while the host runs.
#[utoipa::path(
    patch, path = "/api/v1/targets/{id}", tag = "targets", params(TargetPath), request_body = Changes,
    responses((status = 200, body = ShownWire<'_>, description = "The target after the change."))
)]
async fn change(State(shared): State<Shared>, Path(id): Path<String>, body: Bytes) -> Result<Response, ApiError> {
    const CHANGEABLE: [&str; 3] = ["enabled", "interval", "cadence"];
    let target = named(id)?;
    let members = object(&body)?;
    if shared.host.target(&target).is_none() {
        return Err(CommandError::NoTarget(target.to_string()).into());
    }
    if let Some(other) = members.keys().find(|key| !CHANGEABLE.contains(&key.as_str())) {
        return Err(unchangeable(&shared, &target, other));
    }
    let mut changes = Vec::new();
    for field in CHANGEABLE {
        let value = match members.get(field) {
            None => continue,
            Some(Value::Null) => None,
            Some(Value::Bool(value)) if field == "enabled" => Some(value.to_string()),
            Some(Value::String(value)) if field != "enabled" => Some(value.clone()),
            Some(_) => {
                let form = if field == "enabled" { "true, false or null" } else { "a string or null" };
                return Err(wrong(field, format!("{field} must be {form}")));
            }
        };
        changes.push((format!("target.{target}.{field}"), value));
    }
    shared.host.set(changes).await?;
    shown(&shared, &target)
}

/// Says where a member can be changed that this request cannot change.
fn unchangeable(shared: &Shared, target: &TargetId, member: &str) -> ApiError {
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
    let bad = |message| ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message);
    if !DEFINED.contains(&member) {
        return bad(format!(
            "unknown target setting {member:?}: this request can change enabled, interval and cadence"
        ));
    }
    if shared.host.definition(target).is_some() {
        return bad(format!("this request can change enabled, interval and cadence: PUT replaces {member}"));
    }
    let message = format!(
        "{target} is defined in the configuration file: change {member} there; this request can change enabled, \
         interval and cadence"
    );
    CommandError::InFile(message).into()
}

/// Polls a target as soon as its host has a slot.
#[utoipa::path(
    post, path = "/api/v1/targets/{id}/poll", tag = "targets", params(TargetPath),
    responses((status = 202, body = AcceptedWire, description = "It is polled."))
)]
async fn poll(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    ask(&shared, id, Ask::PollNow).await
}

/// Explains the time of a target's next poll.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Explanation)]
struct ExplanationWire {
    target: String,
    #[schema(schema_with = words::place)]
    state: &'static str,
    next_run: Option<Time>,
    /// One sentence.
    summary: String,
    /// In the order of the computation.
    terms: Vec<TermWire>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ExplanationTerm)]
struct TermWire {
    name: String,
    value: String,
    meaning: String,
}

/// Explains the time of a target's next poll.
#[utoipa::path(
    get, path = "/api/v1/targets/{id}/explain", tag = "targets", params(TargetPath),
    responses((status = 200, body = ExplanationWire, description = "The explanation."))
)]
async fn explain(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let found: Explanation<Timestamp> = shared.host.explain(&named(id)?).await?;
    let term = |term: model::Term| TermWire {
        name: term.name.to_string(),
        value: term.value.to_string(),
        meaning: term.meaning.to_string(),
    };
    let wire = ExplanationWire {
        target: found.target.to_string(),
        state: found.place.as_str(),
        next_run: times(found.due),
        summary: found.summary,
        terms: found.terms.into_iter().map(term).collect(),
    };
    Ok(Json(wire).into_response())
}

/// The missing dependencies to forget.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Dismissal {
    /// The name of a dependency; without, all missing dependencies.
    dependency: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Dismissed)]
struct DismissedWire {
    /// The number of forgotten dependencies.
    dismissed: usize,
}

/// Forgets missing dependencies that an operator removed on purpose.
#[utoipa::path(
    post, path = "/api/v1/targets/{id}/dismiss", tag = "targets", params(TargetPath),
    request_body = Option<Dismissal>,
    responses((status = 200, body = DismissedWire, description = "They are forgotten."))
)]
async fn dismiss(State(shared): State<Shared>, Path(id): Path<String>, body: Bytes) -> Result<Response, ApiError> {
    let target = named(id)?;
    let wanted = match &*body {
        [] => None,
        body => {
            let wanted: Option<Dismissal> = super::query::body(body, "{\"dependency\": NAME} or empty")?;
            wanted.and_then(|wanted| wanted.dependency)
        }
    };
    let dismissed = shared.host.dismiss(&target, wanted).await?;
    Ok(Json(DismissedWire { dismissed }).into_response())
}
