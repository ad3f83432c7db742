//! Events: the stream of new ones, and the log of the stored ones.

use super::query::{Queried, checked_limit, queried, wrong};
use super::words;
use crate::error::ApiError;
use crate::event_wire::{event_json, event_text};
use crate::events;
use crate::state::Shared;
use crate::wire::Time;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use model::{EventKind, SequencedEvent};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(stream)).routes(routes!(list))
}

/// Sends new events as they happen, as server-sent events. The stream does not end.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<i64>, Header, description = "Send the stored events after this one first.")),
    responses((status = 200, content_type = "text/event-stream", body = String, description = "The stream."))
)]
async fn stream(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let Shared { host, ending, .. } = shared;
    events::stream(host, last, ending).await.into_response()
}

/// The choice of events.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// The id of a target.
    target: Option<String>,
    /// The name of an event.
    #[param(schema_with = words::stored_event)]
    event: Option<String>,
    /// Only events after this sequence number, oldest first.
    after: Option<i64>,
    /// The maximum number of events; the default is 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
}

/// An event. Its further members depend on its name.
#[derive(ToSchema)]
#[schema(as = Event)]
#[expect(dead_code, reason = "describes the values of events")]
struct EventWire {
    #[schema(schema_with = words::stored_event)]
    event: String,
    timestamp: Time,
    /// The id of the target.
    #[schema(rename = "serviceId")]
    service_id: Option<String>,
    #[schema(rename = "serviceName")]
    service_name: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LoggedEvent)]
struct LoggedWire {
    sequence: i64,
    /// A description without the event's name and target.
    text: String,
    #[schema(value_type = EventWire)]
    event: Value,
}

/// Stored events, newest first; after a sequence number, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = EventLog)]
struct LogWire {
    /// False if events after the sequence number are no longer stored.
    complete: bool,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    /// The last sequence number that was read; null if there was no event.
    last: Option<i64>,
    events: Vec<LoggedWire>,
}

/// Lists stored events.
#[utoipa::path(
    get, path = "/api/v1/event-log", tag = "events", params(EventsQuery),
    responses((status = 200, body = LogWire, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<EventsQuery>) -> Result<Response, ApiError> {
    let EventsQuery { target, event, after, limit, cursor } = queried(query)?;
    let limit = checked_limit(limit)?;
    if let Some(name) = event.as_deref().filter(|name| !EventKind::NAMES.contains(name)) {
        return Err(wrong("event", format!("unknown event {name:?}: use one of {}", EventKind::NAMES.join(", "))));
    }
    let host = &*shared.host;
    let unreadable = super::history::unreadable;
    let cursor = cursor.map(|cursor| cursor.parse().map_err(|_| not_a_cursor())).transpose()?;
    let most = u32::try_from(limit).unwrap_or(u32::MAX);
    let (complete, found) = match after {
        Some(after) => match host.events_after(cursor.unwrap_or(after), most).await.map_err(unreadable)? {
            Some(found) => (true, found),
            None => (false, Vec::new()),
        },
        None => {
            let of = (target.clone(), event.clone());
            (true, host.events_before(cursor.unwrap_or(i64::MAX), of, most).await.map_err(unreadable)?)
        }
    };
    let last = found.last().and_then(|event| event.sequence);
    let next = last.filter(|_| found.len() == limit).map(|last| last.to_string());
    let is_wanted = |found: &SequencedEvent| {
        let kind = &found.event.kind;
        target.as_deref().is_none_or(|wanted| kind.target().is_some_and(|target| target.as_str() == wanted))
            && event.as_deref().is_none_or(|wanted| kind.name() == wanted)
    };
    let wire = |found: &SequencedEvent| {
        let event = event_json(&found.event, |target| Some(host.target(target)?.info.name.clone()));
        Some(LoggedWire { sequence: found.sequence?, text: event_text(&found.event.kind), event })
    };
    let events = found.iter().filter(|found| is_wanted(found)).filter_map(wire).collect();
    Ok(Json(LogWire { complete, next, last, events }).into_response())
}

fn not_a_cursor() -> ApiError {
    wrong("cursor", "the cursor must be the `next` of a page")
}
