//! The plugins, with what their polls used.

use super::commands::DeletedWire;
use crate::error::ApiError;
use crate::state::Shared;
use crate::wire::{Time, milliseconds, times};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use model::PluginState;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The maximum size of a plugin file in bytes; the directory has the same limit.
const LARGEST: usize = 64 << 20;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    let files = OpenApiRouter::new().routes(routes!(put, delete)).layer(DefaultBodyLimit::max(LARGEST));
    OpenApiRouter::new().routes(routes!(list)).merge(files)
}

/// A plugin, or a refused file. Counters are since the start of the host.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plugin)]
pub struct PluginWire {
    /// Null if the file was refused.
    kind: Option<String>,
    /// `poller` if it polls targets, `notifier` if it sends notifications; null if the file was refused.
    role: Option<&'static str>,
    version: Option<String>,
    /// `built-in`, or the file.
    source: String,
    /// Why the file was refused.
    refusal: Option<String>,
    sha256: Option<String>,
    quarantined_until: Option<Time>,
    polls: u64,
    faults: u64,
    /// Faults by their code.
    faults_by_reason: BTreeMap<String, u64>,
    cpu_ms: f64,
    wall_ms: f64,
    /// The largest memory of one poll.
    peak_memory_bytes: u64,
    requests: u64,
    body_bytes: u64,
    log_lines: u64,
    /// Polls that used a secret, by the name of the secret.
    secrets: BTreeMap<String, u64>,
}

impl From<&PluginState> for PluginWire {
    fn from(plugin: &PluginState) -> Self {
        let served = plugin.served.as_ref().ok();
        let usage = served.map(|served| served.usage.clone()).unwrap_or_default();
        Self {
            kind: served.map(|served| served.kind.to_string()),
            role: served.map(|served| if served.is_notifier { "notifier" } else { "poller" }),
            version: served.map(|served| served.version.clone()),
            source: plugin.source.clone(),
            refusal: plugin.served.as_ref().err().cloned(),
            sha256: served.map(|served| served.digest.clone()),
            quarantined_until: times(served.and_then(|served| served.quarantined_until)),
            polls: usage.polls,
            faults: usage.faults,
            faults_by_reason: usage.faults_by_reason,
            cpu_ms: milliseconds(usage.cpu),
            wall_ms: milliseconds(usage.wall),
            peak_memory_bytes: usage.peak_memory,
            requests: usage.requests,
            body_bytes: usage.bytes,
            log_lines: usage.log_lines,
            secrets: usage.secrets,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = Plugins)]
struct PluginsWire {
    plugins: Vec<PluginWire>,
}

/// Lists the plugins and the refused files.
#[utoipa::path(
    get, path = "/api/v1/plugins", tag = "plugins",
    responses((status = 200, body = PluginsWire, description = "All of them."))
)]
async fn list(State(shared): State<Shared>) -> Json<PluginsWire> {
    Json(PluginsWire { plugins: shared.host.plugins().iter().map(PluginWire::from).collect() })
}

/// The plugin file in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct FilePath {
    /// The name of the file in the plugin directory.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,249}\\.wasm$")]
    file: String,
}

/// A file that was added to the plugin directory.
#[derive(Serialize, ToSchema)]
#[schema(as = PluginFile)]
struct FileWire {
    file: String,
    sha256: String,
}

/// Adds a file to the plugin directory, or replaces it. The host judges it within seconds: `GET /api/v1/plugins` then
/// lists its kind, or the reason why it is refused. Meanwhile, the earlier version serves.
#[utoipa::path(
    put, path = "/api/v1/plugins/{file}", tag = "plugins", params(FilePath),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The component, at most 64 MiB."),
    responses((status = 202, body = FileWire, description = "It is in the directory and will be judged."))
)]
async fn put(
    State(shared): State<Shared>,
    Path(file): Path<String>,
    content: Bytes,
) -> Result<(StatusCode, Json<FileWire>), ApiError> {
    let sha256 = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    shared.host.change_plugin(file.clone(), Some(content)).await?;
    Ok((StatusCode::ACCEPTED, Json(FileWire { file, sha256 })))
}

/// Removes a file from the plugin directory. The built-in plugin of its kind takes over; without one, the targets of
/// the kind are not polled.
#[utoipa::path(
    delete, path = "/api/v1/plugins/{file}", tag = "plugins", params(FilePath),
    responses((status = 200, body = DeletedWire, description = "It is removed."))
)]
async fn delete(State(shared): State<Shared>, Path(file): Path<String>) -> Result<Json<DeletedWire>, ApiError> {
    shared.host.change_plugin(file.clone(), None).await?;
    Ok(Json(DeletedWire { deleted: file }))
}
