//! An operator as a whole.

use super::common::BrokerWire;
use fleet::{FleetView, KubernetesState, PluginView};
use model::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Operator)]
pub(super) struct OperatorWire {
    broker: BrokerWire,
    /// Whether everything at the broker has been read. Until then, counters are too low.
    complete: bool,
    /// The number of devices.
    devices: usize,
    /// The number of devices that were not heard for 5 minutes.
    stale: usize,
    /// The number of records that were refused.
    refused: u64,
    /// Why the last of them was.
    refused_reason: Option<String>,
    /// Devices as which several hosts report: their reports replace each other.
    doubled: Vec<String>,
    /// Devices that did not receive their deployments, with the reason.
    unassigned: BTreeMap<String, String>,
    /// The operator that assigns deployments to devices; null if it is this one.
    waits_for: Option<String>,
    /// The operator's plugin files that deployments need. Devices with `plugins = true` fetch those that they lack.
    plugins: Vec<OfferedWire>,
    /// Kubernetes as a source of deployments; null if the deployments are made here.
    kubernetes: Option<KubernetesWire>,
}

/// A plugin file that an operator offers to devices.
#[derive(Serialize, ToSchema)]
#[schema(as = OfferedPlugin)]
struct OfferedWire {
    /// The kind that it serves.
    kind: String,
    /// The SHA-256 of the file, in hexadecimal.
    digest: String,
    /// The size of the file in bytes.
    size: u32,
    /// Why devices cannot fetch it; null if they can.
    problem: Option<String>,
}

impl From<PluginView> for OfferedWire {
    fn from(PluginView { kind, digest, size, problem }: PluginView) -> Self {
        Self { kind, digest, size, problem }
    }
}

/// Kubernetes as a source of deployments.
#[derive(Serialize, ToSchema)]
#[schema(as = Kubernetes)]
struct KubernetesWire {
    /// The problem, in words; null if everything works.
    problem: Option<String>,
    /// The number of resources that are followed.
    resources: usize,
}

impl From<KubernetesState> for KubernetesWire {
    fn from(KubernetesState { problem, resources }: KubernetesState) -> Self {
        Self { problem, resources }
    }
}

impl OperatorWire {
    pub(super) fn new(view: FleetView, now: Timestamp) -> Self {
        let FleetView {
            link,
            is_complete,
            devices,
            stale,
            refused,
            doubled,
            unassigned,
            waits_for,
            plugins,
            kubernetes,
        } = view;
        let (refused, refused_reason) = refused;
        let (broker, complete) = (BrokerWire::new(link, now), is_complete);
        let (plugins, kubernetes) = (plugins.into_iter().map(Into::into).collect(), kubernetes.map(Into::into));
        Self {
            broker,
            complete,
            devices,
            stale,
            refused,
            refused_reason,
            doubled,
            unassigned,
            waits_for,
            plugins,
            kubernetes,
        }
    }
}
