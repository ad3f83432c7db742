//! Channels, deliveries and routes: listed, tested, tried again and explained.

use super::alerts::AlertWire;
use super::query::{Queried, queried, wrong};
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, alert_id, times};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{
    ChannelState, CommandError, Delivery, DeliveryFilter, DeliveryState, NotifiedAlert, RouteExplanation, RouteStep,
    TargetId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The number of deliveries on a page, and the default.
const PAGE: u32 = 1000;
const DEFAULT: u32 = 100;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(test))
        .routes(routes!(deliveries))
        .routes(routes!(retry))
        .routes(routes!(explain))
}

/// Where notifications go.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Channel)]
struct ChannelWire {
    name: String,
    kind: String,
    /// As configured: without the values of secrets.
    url: String,
    /// The number of notifications that wait.
    waiting: usize,
    /// When the oldest of them was made.
    oldest_waiting: Option<Time>,
    /// The notifications that the receiver took since the start of the host.
    delivered: u64,
    /// The attempts that failed since the start of the host.
    failed_attempts: u64,
    /// The notifications that were given up since the start of the host.
    undeliverable: u64,
    last_success: Option<Time>,
    /// Why it does not deliver at present; null if nothing is wrong.
    problem: Option<String>,
}

impl From<ChannelState> for ChannelWire {
    fn from(state: ChannelState) -> Self {
        Self {
            name: state.name,
            kind: state.kind,
            url: state.url,
            waiting: state.waiting,
            oldest_waiting: times(state.oldest),
            delivered: state.delivered,
            failed_attempts: state.failed_attempts,
            undeliverable: state.undeliverable,
            last_success: times(state.last_success),
            problem: state.problem,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Channels)]
struct ChannelsWire {
    channels: Vec<ChannelWire>,
}

/// Lists channels.
#[utoipa::path(
    get, path = "/api/v1/channels", tag = "channels",
    responses((status = 200, body = ChannelsWire, description = "All channels."))
)]
async fn list(State(shared): State<Shared>) -> Json<ChannelsWire> {
    Json(ChannelsWire { channels: shared.host.channels().into_iter().map(Into::into).collect() })
}

/// The channel in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct ChannelPath {
    /// The name of a channel.
    name: String,
}

/// A channel that took a test notification.
#[derive(Serialize, ToSchema)]
#[schema(as = ChannelTested)]
struct TestedWire {
    /// The name of the channel.
    tested: String,
}

/// Sends a test notification and waits for its outcome.
#[utoipa::path(
    post, path = "/api/v1/channels/{name}/test", tag = "channels", params(ChannelPath),
    responses((status = 200, body = TestedWire, description = "The receiver took it."))
)]
async fn test(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<TestedWire>, ApiError> {
    shared.host.test_channel(name.clone()).await?;
    Ok(Json(TestedWire { tested: name }))
}

/// A notification with its attempts.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
struct DeliveryWire {
    number: u64,
    /// The idempotency key, the same for each attempt.
    id: String,
    channel: String,
    route: String,
    #[schema(schema_with = words::delivery_state)]
    state: &'static str,
    created: Time,
    attempts: u32,
    last_attempt: Option<Time>,
    next_attempt: Option<Time>,
    /// Why the last attempt failed.
    error: Option<String>,
    alerts: Vec<NotifiedWire>,
    /// The number of alerts that it counts and does not list.
    omitted: u32,
}

/// An alert in a notification.
#[derive(Serialize, ToSchema)]
#[schema(as = NotifiedAlert)]
struct NotifiedWire {
    /// The id of the alert.
    id: String,
    #[schema(schema_with = words::alert_event)]
    event: &'static str,
    #[schema(schema_with = words::status)]
    status: &'static str,
    title: String,
    summary: String,
}

impl From<NotifiedAlert> for NotifiedWire {
    fn from(alert: NotifiedAlert) -> Self {
        let (event, status) = (alert.event.as_str(), alert.status.as_str());
        Self { id: alert_id(&alert.subject), event, status, title: alert.title, summary: alert.summary }
    }
}

impl From<Delivery> for DeliveryWire {
    fn from(delivery: Delivery) -> Self {
        let notification = delivery.notification;
        Self {
            number: notification.number,
            id: notification.id,
            channel: notification.channel,
            route: notification.route,
            state: delivery.state.as_str(),
            created: Time::new(delivery.created),
            attempts: delivery.attempts,
            last_attempt: times(delivery.last_attempt),
            next_attempt: times(delivery.next_attempt),
            error: delivery.error,
            alerts: notification.alerts.into_iter().map(Into::into).collect(),
            omitted: notification.omitted,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Deliveries)]
struct DeliveriesWire {
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    /// The newest first.
    deliveries: Vec<DeliveryWire>,
}

/// The filter of a list of deliveries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeliveriesQuery {
    /// Only those of this channel.
    channel: Option<String>,
    /// Only those in this state.
    #[param(schema_with = words::delivery_state)]
    state: Option<String>,
    /// The maximum number of entries; the default is 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
}

/// Lists notifications, the newest first.
#[utoipa::path(
    get, path = "/api/v1/deliveries", tag = "deliveries", params(DeliveriesQuery),
    responses((status = 200, body = DeliveriesWire, description = "A page."))
)]
async fn deliveries(State(shared): State<Shared>, query: Queried<DeliveriesQuery>) -> Result<Response, ApiError> {
    let DeliveriesQuery { channel, state, limit, cursor } = queried(query)?;
    let limit = limit.unwrap_or(DEFAULT);
    if !(1..=PAGE).contains(&limit) {
        return Err(wrong("limit", format!("limit must be 1 to {PAGE}")));
    }
    let unknown = |word: &String| {
        wrong("state", format!("unknown state {word:?}; use waiting, delivered, undeliverable or replaced"))
    };
    let state = state.map(|word| DeliveryState::from_word(&word).ok_or_else(|| unknown(&word))).transpose()?;
    let is_number = |text: &String| (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let before = match cursor {
        None => None,
        Some(text) if is_number(&text) => text.parse().ok(),
        Some(_) => return Err(wrong("cursor", "cursor must be the next of an earlier page")),
    };
    let filter = DeliveryFilter { channel, state, before };
    let found = shared.host.deliveries(filter, limit).await.map_err(unreadable)?;
    let is_full = found.len() == usize::try_from(limit).unwrap_or(usize::MAX);
    let next = found.last().filter(|_| is_full).map(|last| last.notification.number.to_string());
    let deliveries = found.into_iter().map(Into::into).collect();
    Ok(Json(DeliveriesWire { next, deliveries }).into_response())
}

fn unreadable(why: String) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
}

/// The notification in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct DeliveryPath {
    /// The number of a notification.
    #[param(pattern = "^[0-9]{1,18}$")]
    number: String,
}

/// A notification that is tried again.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryRetried)]
struct RetriedWire {
    /// The number of the notification.
    retried: u64,
}

/// Tries a notification again: at once if it waits, and for a day if it was given up.
#[utoipa::path(
    post, path = "/api/v1/deliveries/{number}/retry", tag = "deliveries", params(DeliveryPath),
    responses((status = 202, body = RetriedWire, description = "It is tried."))
)]
async fn retry(State(shared): State<Shared>, Path(number): Path<String>) -> Result<Response, ApiError> {
    let missing = || CommandError::Missing(format!("there is no notification {number:?}"));
    let number: u64 = number.parse().map_err(|_| missing())?;
    shared.host.retry_delivery(number).await?;
    Ok((StatusCode::ACCEPTED, Json(RetriedWire { retried: number })).into_response())
}

/// The alert whose routes are explained.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ExplainQuery {
    /// The target.
    target: String,
    /// The dependency; without one, the alert is that the target cannot be polled.
    dependency: Option<String>,
}

/// The way of an alert through the routes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RouteExplanation)]
struct ExplanationWire<'a> {
    /// The alert, if it is open; null if it is not.
    alert: Option<AlertWire<'a>>,
    /// The status by which the routes were compared: that of the alert, or critical.
    #[schema(schema_with = words::status)]
    status: &'static str,
    /// All routes, in order.
    routes: Vec<RouteWire>,
    /// The channels that are notified.
    channels: Vec<String>,
    /// The ids of the active silences that match.
    silenced_by: Vec<String>,
}

/// A route, compared with an alert.
#[derive(Serialize, ToSchema)]
#[schema(as = Route)]
struct RouteWire {
    name: String,
    /// The conditions, by attribute.
    r#match: BTreeMap<String, String>,
    channels: Vec<String>,
    applies: bool,
    why: String,
}

impl From<RouteStep> for RouteWire {
    fn from(step: RouteStep) -> Self {
        let RouteStep { name, conditions, channels, applies, why } = step;
        Self { name, r#match: conditions.into_iter().collect(), channels, applies, why }
    }
}

/// Explains which routes an alert takes.
#[utoipa::path(
    get, path = "/api/v1/routes/explain", tag = "routes", params(ExplainQuery),
    responses((status = 200, body = ExplanationWire<'_>, description = "The routes."))
)]
async fn explain(State(shared): State<Shared>, query: Queried<ExplainQuery>) -> Result<Response, ApiError> {
    let ExplainQuery { target, dependency } = queried(query)?;
    let missing = || wrong("target", format!("there is no target {target:?}"));
    let id = TargetId::new(&target).map_err(|_| missing())?;
    let found = shared.host.explain_route(&id, dependency.as_deref()).ok_or_else(missing)?;
    let RouteExplanation { alert, status, routes, silenced_by } = found;
    let mut channels = Vec::new();
    for channel in routes.iter().filter(|step| step.applies).flat_map(|step| &step.channels) {
        if !channels.contains(channel) {
            channels.push(channel.clone());
        }
    }
    let alert = alert.as_ref().map(|record| AlertWire::of(record, 0));
    let routes = routes.into_iter().map(Into::into).collect();
    Ok(Json(ExplanationWire { alert, status: status.as_str(), routes, channels, silenced_by }).into_response())
}
