//! The fleet: devices, deployments, and this host as an agent.

mod common;
mod logs;
mod operator;
mod reads;

use super::commands::DeletedWire;
use super::query::{PageQuery, Queried, body, checked_limit, page, queried, wrong};
use super::words;
use crate::error::ApiError;
use crate::fleet::Fleet;
use crate::state::Shared;
use crate::wire::{Time, times};
use ::fleet::wire::DeploymentState;
use ::fleet::{AgentView, DeploymentView, DeviceFilter, DeviceView, show_deployment};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use common::{BrokerWire, DevicePath, HappenedWire, missing, operated};
use model::{DeploymentReport, Phase, Timestamp};
use operator::OperatorWire;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .routes(routes!(deployments))
        .routes(routes!(deployment, put, delete))
        .routes(routes!(devices))
        .routes(routes!(device))
        .routes(routes!(logs::logs))
        .routes(routes!(reads::targets))
        .routes(routes!(reads::target))
        .routes(routes!(reads::history))
        .routes(routes!(reads::dependencies))
}

/// This host's part in a fleet.
#[derive(Serialize, ToSchema)]
#[schema(as = Fleet)]
struct FleetWire {
    /// The fleet that this host operates; null if it does not.
    operator: Option<OperatorWire>,
    /// This host as an agent; null if it is not one.
    agent: Option<AgentWire>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Agent)]
struct AgentWire {
    device: String,
    broker: BrokerWire,
    /// The number of records that the broker has not acknowledged.
    queued: u32,
    /// The last report about each deployment.
    reports: Vec<ReportWire>,
}

impl AgentWire {
    fn new(view: AgentView, now: Timestamp) -> Self {
        let AgentView { device, link, queued, reports } = view;
        Self {
            device,
            broker: BrokerWire::new(link, now),
            queued,
            reports: reports.iter().map(ReportWire::from).collect(),
        }
    }
}

/// The state of a deployment on a device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeploymentReport)]
struct ReportWire {
    deployment: String,
    #[schema(schema_with = words::phase)]
    phase: &'static str,
    /// The number of dependencies by their status.
    dependencies: CountsWire,
    /// The time of the change by the clock of the device.
    at: Time,
    /// Why it failed.
    error: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = DependencyCounts)]
struct CountsWire {
    ok: u32,
    warning: u32,
    critical: u32,
    unknown: u32,
}

impl From<[u32; 4]> for CountsWire {
    fn from([ok, warning, critical, unknown]: [u32; 4]) -> Self {
        Self { ok, warning, critical, unknown }
    }
}

impl From<&DeploymentReport> for ReportWire {
    fn from(report: &DeploymentReport) -> Self {
        Self {
            deployment: report.deployment.clone(),
            phase: report.phase.as_str(),
            dependencies: report.counts.into(),
            at: Time::new(report.at),
            error: report.error.clone(),
        }
    }
}

impl From<(String, DeploymentState)> for ReportWire {
    fn from((deployment, state): (String, DeploymentState)) -> Self {
        let at = Time::new(state.at());
        let phase = Phase::from(state.phase).as_str();
        Self { deployment, phase, dependencies: state.counts.into(), at, error: state.error }
    }
}

/// A deployment with its counters. `pending`, `succeeded`, `failed`, `unreported` and `stale` add up to `matched`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Deployment)]
struct DeploymentWire {
    name: String,
    /// The phase as a whole; `removed` if the selector chooses no device.
    #[schema(schema_with = words::phase)]
    phase: &'static str,
    /// Since when it has failed or succeeded, as this operator counted it. If it had failed when the operator started,
    /// the time of the devices' reports of that; otherwise null until it changes, and while it is neither.
    since: Option<Time>,
    matched: u32,
    pending: u32,
    succeeded: u32,
    failed: u32,
    /// Devices that have not reported the deployment.
    unreported: u32,
    /// Devices that were not heard for 5 minutes.
    stale: u32,
    /// The device that polls, if one device polls at a time; else null.
    holder: Option<HolderWire>,
    /// The latest failure, also if it is over.
    last_error: Option<HappenedWire>,
    /// Devices that fail now and what they last reported, the latest first, at most ten.
    failing: Vec<HappenedWire>,
    /// The latest changes, newest first, at most ten.
    recent: Vec<HappenedWire>,
    version: u64,
    /// As it was sent, with the defaults.
    definition: Value,
}

/// The device that polls a deployment which one device polls at a time.
#[derive(Serialize, ToSchema)]
#[schema(as = Holder)]
struct HolderWire {
    device: String,
    /// Grows with each new holder. Reports of an earlier term do not count.
    term: u64,
}

impl From<DeploymentView> for DeploymentWire {
    fn from(view: DeploymentView) -> Self {
        let (phase, definition) = (view.phase().as_str(), show_deployment(&view.definition));
        let counted = view.aggregate;
        Self {
            name: view.name,
            phase,
            since: times(view.since),
            matched: counted.matched,
            pending: counted.pending,
            succeeded: counted.succeeded,
            failed: counted.failed,
            unreported: counted.unreported,
            stale: counted.stale,
            holder: counted.holder.map(|(device, term)| HolderWire { device, term }),
            last_error: counted.last_error.as_ref().map(HappenedWire::from),
            failing: counted.failing.iter().map(HappenedWire::from).collect(),
            recent: counted.recent.iter().map(HappenedWire::from).collect(),
            version: view.definition.version,
            definition,
        }
    }
}

/// A page of deployments, in the order of their names.
#[derive(Serialize, ToSchema)]
#[schema(as = Deployments)]
struct DeploymentsWire {
    /// The number of deployments on all pages.
    total: usize,
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    deployments: Vec<DeploymentWire>,
}

/// A device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Device)]
struct DeviceWire {
    device: String,
    labels: BTreeMap<String, String>,
    /// Whether it was not heard for 5 minutes.
    stale: bool,
    /// The time of its last heartbeat; null if this operator has received none since its start.
    heard_at: Option<Time>,
    /// The deployments that choose it, with the reported phase; null if it reported none, and `standby` if it has no
    /// report because another device polls.
    #[schema(value_type = BTreeMap<String, Option<String>>)]
    deployments: BTreeMap<String, Option<&'static str>>,
}

impl DeviceWire {
    fn new(view: DeviceView, fleet: &dyn Fleet) -> Self {
        let heard_at = times(view.is_heard.then(|| fleet.heard_at(&view)));
        let deployments = view.deployments.into_iter().map(|(name, phase)| {
            let shown = if fleet.stands_by(&name, phase) { Some("standby") } else { phase.map(Phase::as_str) };
            (name, shown)
        });
        let deployments = deployments.collect();
        Self { device: view.device, labels: view.labels, stale: view.is_stale, heard_at, deployments }
    }
}

/// A page of devices.
#[derive(Serialize, ToSchema)]
#[schema(as = Devices)]
struct DevicesWire {
    /// The `cursor` of the next page; null if this is the last.
    next: Option<String>,
    devices: Vec<DeviceWire>,
}

/// A device with what it reports.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceDetail)]
struct DetailWire {
    #[serde(flatten)]
    device: DeviceWire,
    /// The version of its program; null if the broker cannot be reached.
    version: Option<String>,
    /// Facts that it reports about itself.
    inventory: BTreeMap<String, String>,
    /// The difference of its clock in milliseconds, if it is large: positive if it is ahead.
    clock_ahead_ms: Option<i64>,
    reports: Vec<ReportWire>,
    /// Why the version, the inventory or a report is missing; null if the broker gave them.
    problem: Option<String>,
}

/// The choice of devices.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DevicesQuery {
    /// A part of the id or of a label's value.
    text: Option<String>,
    /// Only devices that were not heard for 5 minutes.
    stale: Option<bool>,
    /// Only devices with a deployment that failed.
    failed: Option<bool>,
    /// The maximum number of entries; the default is 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the previous page.
    #[param(pattern = "^[0-9]{1,9}$")]
    cursor: Option<String>,
}

/// The deployment in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
struct DeploymentPath {
    /// The name of a deployment.
    #[param(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    name: String,
}

/// A deployment to make.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewDeployment)]
#[expect(dead_code, reason = "describes the body")]
struct Wanted {
    /// The devices, as in Kubernetes: `matchLabels`, and `matchExpressions` with `key`, `operator` and `values`.
    /// Without it, all devices.
    selector: Option<BTreeMap<String, Value>>,
    /// The number of devices that must fail for the deployment to fail; without it, one.
    #[schema(minimum = 1)]
    quorum: Option<u32>,
    /// Whether one device polls at a time; another takes over within 30 s. Not together with `quorum`.
    #[serde(default)]
    once: bool,
    /// The targets, with the keys of a `[[target]]`. In their texts, `${device.id}` and `${device.label.NAME}` stand
    /// for the id and a label of the device. Secrets are those of the device's `[secrets]`.
    #[schema(min_items = 1)]
    targets: Vec<BTreeMap<String, Value>>,
}

/// Shows this host's part in a fleet.
#[utoipa::path(
    get, path = "/api/v1/fleet", tag = "fleet",
    responses((status = 200, body = FleetWire, description = "Both parts are null if the host is in no fleet."))
)]
async fn overview(State(shared): State<Shared>) -> Json<FleetWire> {
    let (fleet, now) = (shared.host.fleet(), shared.host.now());
    Json(FleetWire {
        operator: fleet.and_then(|fleet| Some(OperatorWire::new(fleet.operator()?, fleet, now))),
        agent: fleet.and_then(Fleet::agent).map(|view| AgentWire::new(view, now)),
    })
}

/// Lists the deployments of the fleet that this host operates.
#[utoipa::path(
    get, path = "/api/v1/fleet/deployments", tag = "fleet", params(PageQuery),
    responses((status = 200, body = DeploymentsWire, description = "A page."))
)]
async fn deployments(
    State(shared): State<Shared>,
    query: Queried<PageQuery>,
) -> Result<Json<DeploymentsWire>, ApiError> {
    let PageQuery { limit, cursor } = queried(query)?;
    let name = |view: &DeploymentView| view.name.clone();
    let found = page(operated(&shared)?.deployments(), name, (name, cursor), limit)?;
    let deployments = found.entries.into_iter().map(DeploymentWire::from).collect();
    Ok(Json(DeploymentsWire { total: found.total, next: found.next, deployments }))
}

/// Shows a deployment.
#[utoipa::path(
    get, path = "/api/v1/fleet/deployments/{name}", tag = "fleet", params(DeploymentPath),
    responses((status = 200, body = DeploymentWire, description = "The deployment."))
)]
async fn deployment(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<DeploymentWire>, ApiError> {
    let view = operated(&shared)?.deployment(&name);
    view.map(|view| Json(view.into())).ok_or_else(|| missing(format!("there is no deployment {name:?}")))
}

/// Makes or changes a deployment. The devices poll its targets within seconds.
#[utoipa::path(
    put, path = "/api/v1/fleet/deployments/{name}", tag = "fleet", params(DeploymentPath), request_body = Wanted,
    responses((status = 200, body = DeploymentMadeWire, description = "It is stored."))
)]
async fn put(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    bytes: Bytes,
) -> Result<Json<DeploymentMadeWire>, ApiError> {
    let definition: Value = body(&bytes, "a deployment: {\"selector\", \"targets\"}")?;
    operated(&shared)?.define(name.clone(), Some(definition.to_string())).await?;
    Ok(Json(DeploymentMadeWire { deployment: name }))
}

/// A deployment that was made or changed.
#[derive(Serialize, ToSchema)]
#[schema(as = DeploymentMade)]
struct DeploymentMadeWire {
    deployment: String,
}

/// Deletes a deployment. Its devices stop polling its targets.
#[utoipa::path(
    delete, path = "/api/v1/fleet/deployments/{name}", tag = "fleet", params(DeploymentPath),
    responses((status = 200, body = DeletedWire, description = "It is deleted."))
)]
async fn delete(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Json<DeletedWire>, ApiError> {
    operated(&shared)?.define(name.clone(), None).await?;
    Ok(Json(DeletedWire { deleted: name }))
}

/// Lists the devices of the fleet that this host operates, in the order in which they joined.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices", tag = "fleet", params(DevicesQuery),
    responses((status = 200, body = DevicesWire, description = "A page."))
)]
async fn devices(State(shared): State<Shared>, query: Queried<DevicesQuery>) -> Result<Json<DevicesWire>, ApiError> {
    let DevicesQuery { text, stale, failed, limit, cursor } = queried(query)?;
    let first = cursor.map_or(Ok(0), |cursor| cursor.parse::<u32>());
    let first = first.map_err(|_| wrong("cursor", "the cursor is the `next` of another page"))?;
    let fleet = operated(&shared)?;
    let filter = DeviceFilter {
        text: text.unwrap_or_default(),
        stale: stale.unwrap_or_default(),
        failed: failed.unwrap_or_default(),
    };
    let (found, next) = fleet.devices(first, &filter, checked_limit(limit)?);
    let devices = found.into_iter().map(|view| DeviceWire::new(view, fleet)).collect();
    Ok(Json(DevicesWire { next: next.map(|next| next.to_string()), devices }))
}

/// Shows a device with what it reports.
#[utoipa::path(
    get, path = "/api/v1/fleet/devices/{id}", tag = "fleet", params(DevicePath),
    responses((status = 200, body = DetailWire, description = "The device."))
)]
async fn device(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<DetailWire>, ApiError> {
    let fleet = operated(&shared)?;
    let found = fleet.device(id.clone()).await.ok_or_else(|| missing(format!("there is no device {id:?}")))?;
    let (version, inventory) = found.info.map(|info| (info.version, info.inventory)).unzip();
    Ok(Json(DetailWire {
        device: DeviceWire::new(found.view, fleet),
        version,
        inventory: inventory.unwrap_or_default(),
        clock_ahead_ms: found.skew,
        reports: found.states.into_iter().map(ReportWire::from).collect(),
        problem: found.problem,
    }))
}
