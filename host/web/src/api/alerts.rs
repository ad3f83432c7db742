//! Alerts: listed, and acknowledged.

use super::query::{Queried, body, page, queried, wrong};
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, alert_id, times};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use model::{AlertRecord, AlertState, CommandError, Subject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The maximum number of characters of an operator's name.
const NAME: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(acknowledge, unacknowledge))
}

/// An alert: one thing that is wrong, or was.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Alert)]
pub(super) struct AlertWire<'a> {
    /// Identifies the alert in paths.
    id: String,
    #[schema(schema_with = words::alert_state)]
    state: &'static str,
    #[schema(schema_with = words::status)]
    status: &'static str,
    #[schema(schema_with = words::alert_class)]
    class: &'static str,
    /// The id of the target; the name of the plugin, deployment, device or channel; or the fault of the host.
    name: &'a str,
    dependency: Option<&'a str>,
    title: &'a str,
    message: Option<&'a str>,
    /// The kind of the target; null if the alert is not about one.
    kind: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    /// The time of the first observation.
    since: Time,
    resolved_at: Option<Time>,
    #[schema(schema_with = words::resolution_or_null)]
    resolution: Option<&'static str>,
    acknowledged: Option<AcknowledgementWire<'a>>,
    /// The id of the alert that explains this one.
    suppressed_by: Option<String>,
    /// The id of the silence that holds it back.
    silenced_by: Option<&'a str>,
    flapping: bool,
    /// The number of alerts that it explains.
    suppresses: usize,
    /// The address of the dependency in the user interface of its source.
    object_link: Option<&'a str>,
}

/// An operator's acknowledgement.
#[derive(Serialize, ToSchema)]
#[schema(as = Acknowledgement)]
struct AcknowledgementWire<'a> {
    by: &'a str,
    at: Time,
}

impl<'a> AlertWire<'a> {
    pub(super) fn of(record: &'a AlertRecord, suppresses: usize) -> Self {
        let acknowledged = record.acknowledged.as_ref();
        Self {
            id: alert_id(&record.subject),
            state: record.state.as_str(),
            status: record.status.as_str(),
            class: record.subject.class().as_str(),
            name: record.subject.name(),
            dependency: record.subject.dependency_name(),
            title: &record.title,
            message: record.message.as_deref(),
            kind: record.subject.target().map(|_| record.traits.kind.as_str()),
            labels: record.traits.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            since: Time::new(record.since),
            resolved_at: times(record.ended.map(|(at, _)| at)),
            resolution: record.ended.map(|(_, resolution)| resolution.as_str()),
            acknowledged: acknowledged.map(|held| AcknowledgementWire { by: &held.by, at: Time::new(held.at) }),
            suppressed_by: record.suppressed_by.as_ref().map(alert_id),
            silenced_by: record.silenced_by.as_deref(),
            flapping: record.flapping.is_some(),
            suppresses,
            object_link: record.object_link.as_deref(),
        }
    }
}

/// A page of alerts, in the order of their ids.
#[derive(Serialize, ToSchema)]
#[schema(as = Alerts)]
struct AlertsWire<'a> {
    /// The number of alerts on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    alerts: Vec<AlertWire<'a>>,
}

/// The filter of a list of alerts.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AlertsQuery {
    /// Only alerts in this state; `open` for those that are pending or firing.
    #[param(schema_with = words::alert_filter)]
    state: Option<String>,
    /// Only alerts of this target.
    target: Option<String>,
    /// The maximum number of entries; the default is 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Whether an alert is in the state with this name.
pub(crate) fn is_in(record: &AlertRecord, state: &str) -> bool {
    state == record.state.as_str() || (state == "open" && record.state != AlertState::Resolved)
}

/// Lists alerts.
#[utoipa::path(
    get, path = "/api/v1/alerts", tag = "alerts", params(AlertsQuery),
    responses((status = 200, body = AlertsWire<'_>, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<AlertsQuery>) -> Result<Response, ApiError> {
    let AlertsQuery { state, target, limit, cursor } = queried(query)?;
    if let Some(state) = &state
        && state != "open"
        && AlertState::from_word(state).is_none()
    {
        return Err(wrong("state", format!("unknown state {state:?}; use open, pending, firing or resolved")));
    }
    let all = shared.host.alerts();
    let explained = explained(&all);
    let is_wanted = |record: &&Arc<AlertRecord>| {
        state.as_ref().is_none_or(|state| is_in(record, state))
            && target.as_ref().is_none_or(|id| record.subject.target().is_some_and(|target| target.as_str() == id))
    };
    let mut wanted: Vec<&Arc<AlertRecord>> = all.iter().filter(is_wanted).collect();
    let id = |record: &&Arc<AlertRecord>| alert_id(&record.subject);
    wanted.sort_by_key(id);
    let found = page(wanted, id, (id, cursor), limit)?;
    let wire = |record: &'_ Arc<AlertRecord>| explained.get(&record.subject).copied().unwrap_or(0);
    let alerts = found.entries.iter().map(|record| AlertWire::of(record, wire(record))).collect();
    Ok(Json(AlertsWire { total: found.total, next: found.next, alerts }).into_response())
}

/// The number of alerts that each alert explains directly.
pub(crate) fn explained(alerts: &[Arc<AlertRecord>]) -> BTreeMap<Subject, usize> {
    let mut counts = BTreeMap::new();
    for by in alerts.iter().filter_map(|record| record.suppressed_by.as_ref()) {
        *counts.entry(by.clone()).or_insert(0) += 1;
    }
    counts
}

/// The alert in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct AlertPath {
    /// The id of an alert.
    #[param(pattern = "^[0-9a-f]{16}$")]
    id: String,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = NewAcknowledgement)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The name of the operator.
    #[schema(min_length = 1, max_length = 100)]
    by: String,
}

/// The alert that was acknowledged, or is no longer.
#[derive(Serialize, ToSchema)]
#[schema(as = AlertAcknowledged)]
struct AcknowledgedWire {
    /// The id of the alert.
    id: String,
    acknowledged: bool,
}

/// Acknowledges an alert: it is not repeated until it is over or gets worse.
#[utoipa::path(
    put, path = "/api/v1/alerts/{id}/acknowledgement", tag = "alerts", params(AlertPath), request_body = Wanted,
    responses((status = 200, body = AcknowledgedWire, description = "It is acknowledged."))
)]
async fn acknowledge(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    bytes: Bytes,
) -> Result<Json<AcknowledgedWire>, ApiError> {
    let Wanted { by } = body(&bytes, "{\"by\": NAME}")?;
    let is_visible = by.chars().all(|letter| !letter.is_control() && !model::is_invisible(letter));
    if by.trim().is_empty() || by.chars().count() > NAME || !is_visible {
        return Err(wrong("by", format!("by must have 1 to {NAME} visible characters")));
    }
    change(&shared, id, Some(by)).await
}

/// Takes an acknowledgement back.
#[utoipa::path(
    delete, path = "/api/v1/alerts/{id}/acknowledgement", tag = "alerts", params(AlertPath),
    responses((status = 200, body = AcknowledgedWire, description = "It is not acknowledged."))
)]
async fn unacknowledge(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<AcknowledgedWire>, ApiError> {
    change(&shared, id, None).await
}

async fn change(shared: &Shared, id: String, by: Option<String>) -> Result<Json<AcknowledgedWire>, ApiError> {
    let alerts = shared.host.alerts();
    let found = alerts.iter().find(|record| alert_id(&record.subject) == id);
    let missing = || CommandError::Missing(format!("there is no alert {id:?}: GET /api/v1/alerts lists all alerts"));
    let subject = found.ok_or_else(missing)?.subject.clone();
    let acknowledged = by.is_some();
    shared.host.acknowledge(subject, by).await?;
    Ok(Json(AcknowledgedWire { id, acknowledged }))
}
