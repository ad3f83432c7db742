//! The API of a device, read through the operator.

use super::common::{DevicePath, missing, operated};
use crate::error::ApiError;
use crate::pages::encoded;
use crate::state::Shared;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

/// A device and one of its targets in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct TargetOfDevice {
    /// The id of a device.
    #[param(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    id: String,
    /// The id of a target of the device.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,62}$")]
    target: String,
}

/// Lists the targets of a device, as `/api/v1/targets` of the device does, with the same query.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices/{id}/targets", tag = "fleet", params(DevicePath),
    responses(
        (status = 200, body = serde_json::Value, description = "The answer of the device."),
        (status = 504, description = "The device does not answer."),
    )
)]
pub(super) async fn targets(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: RawQuery,
) -> Result<Response, ApiError> {
    forward(&shared, id, "targets".to_owned(), query).await
}

/// Returns a target of a device, as `/api/v1/targets/{target}` of the device does.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices/{id}/targets/{target}", tag = "fleet", params(TargetOfDevice),
    responses(
        (status = 200, body = serde_json::Value, description = "The answer of the device."),
        (status = 504, description = "The device does not answer."),
    )
)]
pub(super) async fn target(
    State(shared): State<Shared>,
    Path((id, target)): Path<(String, String)>,
    query: RawQuery,
) -> Result<Response, ApiError> {
    forward(&shared, id, format!("targets/{}", encoded(&target)), query).await
}

/// Returns the past of a target of a device, as `/api/v1/targets/{target}/history` of the device does, with the same
/// query.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices/{id}/targets/{target}/history", tag = "fleet", params(TargetOfDevice),
    responses(
        (status = 200, body = serde_json::Value, description = "The answer of the device."),
        (status = 504, description = "The device does not answer."),
    )
)]
pub(super) async fn history(
    State(shared): State<Shared>,
    Path((id, target)): Path<(String, String)>,
    query: RawQuery,
) -> Result<Response, ApiError> {
    forward(&shared, id, format!("targets/{}/history", encoded(&target)), query).await
}

/// Lists the dependencies of a device, as `/api/v1/dependencies` of the device does, with the same query.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices/{id}/dependencies", tag = "fleet", params(DevicePath),
    responses(
        (status = 200, body = serde_json::Value, description = "The answer of the device."),
        (status = 504, description = "The device does not answer."),
    )
)]
pub(super) async fn dependencies(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    query: RawQuery,
) -> Result<Response, ApiError> {
    forward(&shared, id, "dependencies".to_owned(), query).await
}

async fn forward(shared: &Shared, id: String, path: String, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let found = operated(shared)?.read(id.clone(), format!("/api/v1/{path}{query}")).await;
    let found = found.ok_or_else(|| missing(format!("there is no device {id:?}")))?;
    let silent = |why| ApiError::new(StatusCode::GATEWAY_TIMEOUT, "device_silent", why);
    let (status, body) = found.map_err(silent)?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}
