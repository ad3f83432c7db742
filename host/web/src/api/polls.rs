//! The last polls of a target.

use super::query::{TargetPath, named};
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, milliseconds};
use axum::Json;
use axum::extract::{Path, State};
use model::{CommandError, PollMeasure};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A poll. Its phases are sums over its requests, which may run at the same time.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Poll)]
struct PollWire {
    /// The end of the poll.
    at: Time,
    took_ms: f64,
    /// The name look-up; like the next two, 0 for a kept connection.
    dns_ms: f32,
    connect_ms: f32,
    tls_ms: f32,
    /// Waiting for the first byte of the answer.
    first_byte_ms: f32,
    /// Reading the rest of the answer.
    rest_ms: f32,
    /// The processor time of the plugin.
    cpu_ms: f64,
    requests: u32,
    body_bytes: u64,
    /// Null if the poll returned a report.
    #[schema(schema_with = words::category_or_null)]
    failure: Option<&'static str>,
}

impl From<PollMeasure> for PollWire {
    fn from(poll: PollMeasure) -> Self {
        Self {
            at: Time::new(poll.at),
            took_ms: milliseconds(poll.wall),
            dns_ms: poll.phases.dns,
            connect_ms: poll.phases.connect,
            tls_ms: poll.phases.tls,
            first_byte_ms: poll.phases.wait,
            rest_ms: poll.phases.read,
            cpu_ms: milliseconds(poll.cpu),
            requests: poll.requests,
            body_bytes: poll.bytes,
            failure: poll.failure.map(model::FailureCategory::as_str),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Polls)]
struct PollsWire {
    /// Newest first.
    polls: Vec<PollWire>,
}

/// Lists the last polls of a target since the start of the host, at most eight.
#[utoipa::path(
    get, path = "/api/v1/targets/{id}/polls", tag = "targets", params(TargetPath),
    responses((status = 200, body = PollsWire, description = "The polls."))
)]
async fn list(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<PollsWire>, ApiError> {
    let id = named(id)?;
    shared.host.target(&id).ok_or_else(|| CommandError::NoTarget(id.to_string()))?;
    Ok(Json(PollsWire { polls: shared.host.polls(&id).into_iter().map(PollWire::from).collect() }))
}
