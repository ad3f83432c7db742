//! Lines of a device's log.

use super::common::{DevicePath, missing, operated};
use crate::api::query::{Queried, queried, wrong};
use crate::error::ApiError;
use crate::state::Shared;
use ::fleet::wire::MOST_LINES;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// The number of lines without `limit`.
const LINES: u32 = 200;
/// The longest `wait` in seconds.
const LONGEST: u32 = 10;

/// The wanted lines.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// The number of the last line that the reader has. Without it, the newest lines.
    after: Option<u64>,
    /// The maximum number of lines; 200 without it.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<u32>,
    /// The answer may be delayed by this number of seconds, until there is a line.
    #[param(maximum = 10)]
    wait: Option<u32>,
}

/// Lines of a device's log.
#[derive(Serialize, ToSchema)]
#[schema(as = DeviceLog)]
pub(super) struct LogWire {
    /// The number of lines after `after` that the device no longer keeps. It keeps the latest 10,000.
    dropped: u64,
    /// The `after` of the next request.
    next: u64,
    /// Oldest first.
    lines: Vec<LineWire>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LogLine)]
struct LineWire {
    /// Lines are numbered from 1 at each start of the device.
    number: u64,
    text: String,
}

/// Reads lines of a device's log, which the device itself answers.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices/{id}/logs", tag = "fleet", params(DevicePath, LogQuery),
    responses(
        (status = 200, body = LogWire, description = "The lines."),
        (status = 504, description = "The device does not answer."),
    )
)]
pub(super) async fn logs(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: Queried<LogQuery>,
) -> Result<Json<LogWire>, ApiError> {
    let LogQuery { after, limit, wait } = queried(query)?;
    let limit = limit.unwrap_or(LINES);
    if !(1..=MOST_LINES).contains(&limit) {
        return Err(wrong("limit", format!("use 1 to {MOST_LINES}")));
    }
    let wait = wait.unwrap_or_default();
    if wait > LONGEST {
        return Err(wrong("wait", format!("use at most {LONGEST} seconds")));
    }
    let found = operated(&shared)?.log(id.clone(), (after, limit), Duration::from_secs(wait.into())).await;
    let found = found.ok_or_else(|| missing(format!("there is no device {id:?}")))?;
    let page = found.map_err(|why| ApiError::new(StatusCode::GATEWAY_TIMEOUT, "device_silent", why))?;
    let lines = (page.before + 1..).zip(page.lines).map(|(number, text)| LineWire { number, text });
    let lines: Vec<LineWire> = lines.collect();
    let next = lines.last().map_or(page.before, |line| line.number);
    Ok(Json(LogWire { dropped: page.dropped, next, lines }))
}
