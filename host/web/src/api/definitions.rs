//! Targets that are made, changed and deleted while the host runs.

use super::commands::DeletedWire;
use super::query::{TargetPath, body, named, wrong};
use super::words;
use crate::error::{ApiError, ErrorWire};
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
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The keys of a definition whose names differ between the API and the file.
const RENAMED: [(&str, &str); 6] = [
    ("hostHeader", "host_header"),
    ("minInterval", "min_interval"),
    ("maxInterval", "max_interval"),
    ("dependsOn", "depends_on"),
    ("unknownAfter", "unknown_after"),
    ("missingAfter", "missing_after"),
];

/// The definition of a target. Durations are texts such as `10s`.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all(deserialize = "camelCase", serialize = "snake_case"))]
#[schema(as = TargetDefinition, rename_all = "camelCase")]
pub(super) struct DefinitionWire {
    /// Required when the target is made; later it cannot be changed.
    #[serde(skip_serializing)]
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,62}$")]
    id: Option<String>,
    /// A kind that a plugin serves.
    kind: String,
    /// The URL of the service, of scheme http or https.
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
    #[schema(schema_with = words::cadence_or_null)]
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
    /// Reports in a row that confirm an alert.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    confirm: Option<u32>,
    /// Reports in a row that end an alert.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100)]
    recover: Option<u32>,
    /// Whether dependencies with a warning alert, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<bool>,
    /// How long a dependency is unknown, or the report has none, before that alerts; "never" if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_after: Option<String>,
    /// How long a dependency is missing before that alerts; "never" if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_after: Option<String>,
    /// The targets, or dependencies of them as `target/dependency`, that the target needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<String>,
    /// The settings of the kind.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    settings: Map<String, Value>,
}

/// A further origin.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Origin)]
struct AlsoWire {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<TlsWire>,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Tls)]
struct TlsWire {
    /// One SHA-256 fingerprint, or a list of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<Value>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    http2: bool,
}

fn read(bytes: &[u8]) -> Result<DefinitionWire, ApiError> {
    body(bytes, "the definition of a target, with kind and url")
}

/// The definition as it is kept.
fn written(definition: &DefinitionWire) -> Result<String, ApiError> {
    serde_json::to_string(definition)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "bad_body", error.to_string()))
}

/// The id of a sent definition, and the definition as it is kept.
pub(super) fn sent(body: &[u8]) -> Result<(TargetId, String), ApiError> {
    let definition = read(body)?;
    let id = definition.id.as_deref().ok_or_else(|| wrong("id", "a target needs an id"))?;
    let id = TargetId::new(id).map_err(|error| wrong("id", error.to_string()))?;
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

/// Returns the definition of a target that was made through the API.
#[utoipa::path(
    get, path = "/api/v1/targets/{id}/definition", tag = "targets", params(TargetPath),
    responses(
        (status = 200, body = DefinitionWire, description = "The definition."),
        (status = 409, body = ErrorWire, description = "The target is defined in the file.")
    )
)]
async fn show(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    shown(&shared, &named(id)?)
}

/// Makes a target. It is on disk when the response is sent.
#[utoipa::path(
    post, path = "/api/v1/targets", tag = "targets", request_body = DefinitionWire,
    responses((status = 201, body = DefinitionWire, description = "The definition.", headers(("location" = String, description = "The path of the target."))))
)]
pub(super) async fn create(State(shared): State<Shared>, body: Bytes) -> Result<Response, ApiError> {
    let (id, definition) = sent(&body)?;
    shared.host.define(&id, Definition::New(definition)).await?;
    let place = [(header::LOCATION, format!("/api/v1/targets/{id}"))];
    Ok((StatusCode::CREATED, place, shown(&shared, &id)?).into_response())
}

/// Replaces the definition of a target that was made through the API.
#[utoipa::path(
    put, path = "/api/v1/targets/{id}", tag = "targets", params(TargetPath), request_body = DefinitionWire,
    responses((status = 200, body = DefinitionWire, description = "The new definition."))
)]
pub(super) async fn replace(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let (id, definition) = (named(id)?, read(&body)?);
    if definition.id.as_ref().is_some_and(|sent| sent != id.as_str()) {
        let message = format!("the id of a target cannot be changed: delete {id}, and make another target");
        return Err(wrong("id", message));
    }
    shared.host.define(&id, Definition::Changed(written(&definition)?)).await?;
    shown(&shared, &id)
}

/// Deletes a target that was made through the API, with its changed settings.
#[utoipa::path(
    delete, path = "/api/v1/targets/{id}", tag = "targets", params(TargetPath),
    responses((status = 200, body = DeletedWire, description = "It is deleted."))
)]
pub(super) async fn delete(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<DeletedWire>, ApiError> {
    let id = named(id)?;
    shared.host.define(&id, Definition::Deleted).await?;
    Ok(Json(DeletedWire { deleted: id.to_string() }))
}
