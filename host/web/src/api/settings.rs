//! Settings that can be changed while the host runs.

use super::query::{PageQuery, Queried, object, page, queried, wrong};
use super::words;
use crate::error::ApiError;
use crate::state::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{CommandError, Setting};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, put, unset))
}

/// A setting with its value and source.
#[derive(Serialize, ToSchema)]
#[schema(as = Setting)]
pub(crate) struct SettingWire {
    key: String,
    /// Null if it has no value.
    value: Option<String>,
    #[schema(schema_with = words::setting_source)]
    source: &'static str,
    /// The source in words, with the name of the environment variable.
    from: String,
}

impl From<Setting> for SettingWire {
    fn from(Setting { key, value, source }: Setting) -> Self {
        Self { key, value, source: source.as_str(), from: source.to_string() }
    }
}

/// A page of settings, in the order of their keys.
#[derive(Serialize, ToSchema)]
#[schema(as = Settings)]
struct SettingsWire {
    /// The name of the configuration's file.
    file: String,
    /// The problems of the file, and stored settings that are not active.
    problems: Vec<String>,
    /// The number of settings on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    settings: Vec<SettingWire>,
}

/// The setting in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct SettingPath {
    /// The key of a setting.
    key: String,
}

/// Lists settings.
#[utoipa::path(
    get, path = "/api/v1/settings", tag = "settings", params(PageQuery),
    responses((status = 200, body = SettingsWire, description = "A page."))
)]
async fn list(State(shared): State<Shared>, query: Queried<PageQuery>) -> Result<Response, ApiError> {
    let PageQuery { limit, cursor } = queried(query)?;
    let mut settings = shared.host.settings();
    settings.sort_by(|a, b| a.key.cmp(&b.key));
    let key = |setting: &Setting| setting.key.clone();
    let found = page(settings, key, (key, cursor), limit)?;
    let wire = SettingsWire {
        file: shared.host.settings_file(),
        problems: shared.host.problems(),
        total: found.total,
        next: found.next,
        settings: found.entries.into_iter().map(SettingWire::from).collect(),
    };
    Ok(Json(wire).into_response())
}

/// Returns one setting.
#[utoipa::path(
    get, path = "/api/v1/settings/{key}", tag = "settings", params(SettingPath),
    responses((status = 200, body = SettingWire, description = "The setting."))
)]
async fn show(State(shared): State<Shared>, Path(key): Path<String>) -> Result<Json<SettingWire>, ApiError> {
    match shared.host.setting(&key) {
        Some(setting) => Ok(Json(setting.into())),
        None => {
            Err(CommandError::Missing(format!("unknown setting {key:?}: GET /api/v1/settings lists all settings"))
                .into())
        }
    }
}

/// Returns a value as it is written in the file. Numbers and booleans may be sent as JSON numbers and booleans.
fn written(value: &Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(wrong("value", "value must be a string, a number or a boolean")),
    }
}

/// The value of a setting.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewValue)]
#[expect(dead_code, reason = "describes the body")]
struct Wanted {
    /// Numbers and booleans may be sent as such.
    #[schema(schema_with = words::scalar)]
    value: String,
}

/// Changes a setting until it is unset.
#[utoipa::path(
    put, path = "/api/v1/settings/{key}", tag = "settings", params(SettingPath), request_body = Wanted,
    responses((status = 200, body = SettingWire, description = "The setting after the change."))
)]
async fn put(state: State<Shared>, Path(key): Path<String>, body: Bytes) -> Result<Json<SettingWire>, ApiError> {
    let members = object(&body)?;
    let value = members.get("value").filter(|_| members.len() == 1).ok_or_else(|| {
        ApiError::new(StatusCode::BAD_REQUEST, "bad_request", "the body must be {\"value\": \"…\"} and nothing else")
    })?;
    state.host.set(vec![(key.clone(), Some(written(value)?))]).await?;
    show(state, Path(key)).await
}

/// The setting after the change; of an override for a removed target, that it was forgotten.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = UnsetSetting)]
enum UnsetWire {
    Setting(SettingWire),
    Forgotten { forgotten: bool },
}

/// Reverts the change of a setting.
#[utoipa::path(
    delete, path = "/api/v1/settings/{key}", tag = "settings", params(SettingPath),
    responses((status = 200, body = UnsetWire, description = "The change is reverted."))
)]
async fn unset(state: State<Shared>, Path(key): Path<String>) -> Result<Json<UnsetWire>, ApiError> {
    state.host.set(vec![(key.clone(), None)]).await?;
    // An override for a removed target no longer names a setting.
    Ok(Json(match show(state, Path(key)).await {
        Ok(Json(found)) => UnsetWire::Setting(found),
        Err(_) => UnsetWire::Forgotten { forgotten: true },
    }))
}
