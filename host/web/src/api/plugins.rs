//! The plugins, with what their polls used.

use crate::state::Shared;
use crate::wire::{Time, milliseconds, times};
use axum::Json;
use axum::extract::State;
use model::PluginState;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A plugin, or a refused file. Counters are since the start of the host.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Plugin)]
pub struct PluginWire {
    /// Null if the file was refused.
    kind: Option<String>,
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
