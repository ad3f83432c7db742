//! Targets in the API that are made, changed and deleted while the host runs.

use crate::api::named;
use crate::error::ApiError;
use crate::state::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::{CommandError, Definition, TargetId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The keys of a definition whose names differ between the API and the file.
const RENAMED: [(&str, &str); 3] =
    [("hostHeader", "host_header"), ("minInterval", "min_interval"), ("maxInterval", "max_interval")];

/// The definition of a target. Durations are texts such as `10s`.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all(deserialize = "camelCase", serialize = "snake_case"))]
struct DefinitionWire {
    #[serde(skip_serializing)]
    id: Option<String>,
    kind: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Further origins of the same service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<AlsoWire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsWire>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_header: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_interval: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cadence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    /// The names of secrets of the section `[secrets]`, by the names that the kind uses.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    secrets: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// The settings of the kind.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    settings: Map<String, Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AlsoWire {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsWire>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TlsWire {
    /// One SHA-256 fingerprint, or a list of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<Value>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    http2: bool,
}

#[derive(Serialize)]
pub(crate) struct DeletedWire {
    deleted: String,
}

fn read(body: &[u8]) -> Result<DefinitionWire, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let message = format!("the body must be the definition of a target, with kind and url: {error}");
        ApiError::new(StatusCode::BAD_REQUEST, "bad_body", message)
    })
}

/// The definition as it is kept.
fn written(definition: &DefinitionWire) -> Result<String, ApiError> {
    serde_json::to_string(definition)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad_body", error.to_string()))
}

/// The id of a sent definition, and the definition as it is kept.
pub(crate) fn sent(body: &[u8]) -> Result<(TargetId, String), ApiError> {
    let definition = read(body)?;
    let wrong = |message: String| ApiError {
        field: Some("id"),
        ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message)
    };
    let id = definition.id.as_deref().ok_or_else(|| wrong("a target needs an id".to_owned()))?;
    let id = TargetId::new(id).map_err(|error| wrong(error.to_string()))?;
    Ok((id, written(&definition)?))
}

/// The definition of a target that was made through the API, as the API shows it.
fn shown(shared: &Shared, id: &TargetId) -> Result<Json<Value>, ApiError> {
    let kept = shared.host.definition(id).and_then(|text| serde_json::from_str::<Map<String, Value>>(&text).ok());
    let Some(kept) = kept else {
        return Err(match shared.host.target(id) {
            Some(_) => CommandError::InFile(format!("{id} is defined in the configuration file: read it there")).into(),
            None => CommandError::NoTarget(id.to_string()).into(),
        });
    };
    let name = |key: String| match RENAMED.iter().find(|(_, written)| *written == key) {
        Some((shown, _)) => (*shown).to_owned(),
        None => key,
    };
    let members = kept.into_iter().map(|(key, value)| (name(key), value));
    Ok(Json([("id".to_owned(), id.as_str().into())].into_iter().chain(members).collect()))
}

pub(crate) async fn show(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    shown(&shared, &named(id)?)
}

pub(crate) async fn create(State(shared): State<Shared>, body: Bytes) -> Result<Response, ApiError> {
    let (id, definition) = sent(&body)?;
    shared.host.define(&id, Definition::New(definition)).await?;
    let place = [(header::LOCATION, format!("/api/v1/targets/{id}"))];
    Ok((StatusCode::CREATED, place, shown(&shared, &id)?).into_response())
}

pub(crate) async fn replace(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let (id, definition) = (named(id)?, read(&body)?);
    if definition.id.as_ref().is_some_and(|sent| sent != id.as_str()) {
        let message = format!("the id of a target cannot be changed: delete {id}, and make another target");
        return Err(ApiError { field: Some("id"), ..ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message) });
    }
    shared.host.define(&id, Definition::Changed(written(&definition)?)).await?;
    shown(&shared, &id)
}

pub(crate) async fn delete(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<DeletedWire>, ApiError> {
    let id = named(id)?;
    shared.host.define(&id, Definition::Deleted).await?;
    Ok(Json(DeletedWire { deleted: id.to_string() }))
}
