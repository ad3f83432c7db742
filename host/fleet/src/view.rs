//! The fleet as readers see it.

use crate::aggregate::Aggregate;
use crate::aggregator::DeviceView;
use crate::wire::{Deployment, DeploymentState, DeviceInfo, ModeWire};
use model::{DeploymentReport, Phase, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Whether the broker can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// The latest problem, in words; `None` if everything works.
    pub problem: Option<String>,
    /// The time since there was no problem, except for less than 10 s at a time; zero if everything works.
    pub lasts: Duration,
}

/// A host as an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// The id of the device.
    pub device: String,
    /// Whether the broker can be reached.
    pub link: LinkState,
    /// The number of records that the broker has not acknowledged.
    pub queued: u32,
    /// The last report about each deployment.
    pub reports: Vec<DeploymentReport>,
}

/// A fleet as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// Whether the broker can be reached.
    pub link: LinkState,
    /// Whether everything at the broker has been read. Until then, counters are too low.
    pub is_complete: bool,
    /// The number of devices.
    pub devices: usize,
    /// The number of devices that were not heard for a while.
    pub stale: usize,
    /// The number of refused records, and why the last one was.
    pub refused: (u64, Option<String>),
    /// Devices as which several hosts report.
    pub doubled: Vec<String>,
    /// Devices without their assignment, with the reason.
    pub unassigned: BTreeMap<String, String>,
    /// The operator that writes assignments; `None` if it is this one.
    pub waits_for: Option<String>,
    /// The operator's plugin files that deployments need.
    pub plugins: Vec<PluginView>,
    /// Kubernetes as a source of deployments; `None` if the deployments are made here.
    pub kubernetes: Option<KubernetesState>,
}

/// A plugin file that an operator offers to devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginView {
    /// The kind that it serves.
    pub kind: String,
    /// The SHA-256 of the file, in hexadecimal.
    pub digest: String,
    /// The size of the file in bytes.
    pub size: u32,
    /// Why devices cannot fetch it, in words; `None` if they can.
    pub problem: Option<String>,
}

/// Kubernetes as a source of deployments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesState {
    /// The latest problem, in words; `None` if everything works.
    pub problem: Option<String>,
    /// The number of resources that are followed.
    pub resources: usize,
}

/// A deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentView {
    /// The name.
    pub name: String,
    /// The definition.
    pub definition: Deployment,
    /// The counters.
    pub aggregate: Aggregate,
    /// Since when it has failed or succeeded, as this operator counted it. If it had failed when the operator started,
    /// the time of the devices' reports of that; otherwise `None` until it changes, and while it is neither.
    pub since: Option<Timestamp>,
}

impl DeploymentView {
    /// Returns the phase of the deployment as a whole: failed if a device failed, or as many as its quorum asks for.
    /// `Removed` if the selector chooses no device. If one device polls at a time, it is the state of that device.
    pub fn phase(&self) -> Phase {
        self.definition.mode.phase(&self.aggregate)
    }
}

impl ModeWire {
    /// Returns the number of devices that must fail for a deployment to fail.
    pub fn needed(self) -> u32 {
        match self {
            Self::Quorum(needed) => needed.max(1),
            Self::Each | Self::Once => 1,
        }
    }

    /// Returns the phase of a deployment with these counters, as [`DeploymentView::phase`].
    pub fn phase(self, counted: &Aggregate) -> Phase {
        let is_once = self == Self::Once;
        let Aggregate { matched, failed, pending, unreported, stale, succeeded, .. } = *counted;
        match () {
            () if matched == 0 => Phase::Removed,
            () if failed >= self.needed() => Phase::Failed,
            () if is_once => {
                if succeeded > 0 {
                    Phase::Succeeded
                } else {
                    Phase::Pending
                }
            }
            () if pending + unreported > 0 || stale == matched => Phase::Pending,
            () => Phase::Succeeded,
        }
    }
}

/// The deployments that failed as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The number of all deployments.
    pub deployments: usize,
    /// The number of those that failed.
    pub failed: usize,
    /// The first of those by name.
    pub first: Vec<DeploymentView>,
}

/// A device with what it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDetail {
    /// The device as the counters hold it.
    pub view: DeviceView,
    /// The difference of its clock in milliseconds, if it is large: positive if it is ahead.
    pub skew: Option<i64>,
    /// The description.
    pub info: Option<DeviceInfo>,
    /// The states of its deployments, by name.
    pub states: BTreeMap<String, DeploymentState>,
    /// Why the description or a state is missing, if the broker did not give it.
    pub problem: Option<String>,
}

/// A choice of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceFilter {
    /// A part of the id or of a label's value.
    pub text: String,
    /// Only devices that were not heard for a while.
    pub stale: bool,
    /// Only devices with a deployment that failed.
    pub failed: bool,
}

impl DeviceFilter {
    /// Whether a device is chosen. Devices that left are not.
    pub fn takes(&self, device: &DeviceView) -> bool {
        let has = |text: &String| text.contains(&self.text);
        device.is_member
            && (!self.stale || device.is_stale)
            && (!self.failed || device.is_failed())
            && (self.text.is_empty() || has(&device.device) || device.labels.values().any(has))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_fails_with_its_quorum() {
        let view = |mode, (succeeded, failed, pending, unreported, stale)| {
            let matched = succeeded + failed + pending + unreported + stale;
            let aggregate =
                Aggregate { matched, succeeded, failed, pending, unreported, stale, ..Aggregate::default() };
            let definition =
                Deployment { version: 1, labels: BTreeMap::new(), requirements: Vec::new(), targets: Vec::new(), mode };
            DeploymentView { name: "dns".to_owned(), definition, aggregate, since: None }.phase()
        };
        let cases = [
            (ModeWire::Each, (0, 0, 0, 0, 0), Phase::Removed),
            (ModeWire::Each, (2, 0, 0, 0, 0), Phase::Succeeded),
            (ModeWire::Each, (2, 0, 0, 0, 1), Phase::Succeeded),
            (ModeWire::Each, (0, 0, 0, 0, 1), Phase::Pending),
            (ModeWire::Each, (2, 0, 1, 0, 0), Phase::Pending),
            (ModeWire::Each, (2, 0, 0, 1, 0), Phase::Pending),
            (ModeWire::Each, (2, 1, 1, 0, 0), Phase::Failed),
            (ModeWire::Quorum(2), (2, 1, 0, 0, 0), Phase::Succeeded),
            (ModeWire::Quorum(2), (1, 2, 0, 0, 0), Phase::Failed),
            (ModeWire::Once, (1, 0, 0, 4, 0), Phase::Succeeded),
            (ModeWire::Once, (0, 1, 0, 4, 0), Phase::Failed),
            (ModeWire::Once, (0, 0, 1, 4, 0), Phase::Pending),
            (ModeWire::Once, (0, 0, 0, 4, 1), Phase::Pending),
        ];
        for (mode, counts, expected) in cases {
            assert_eq!(view(mode, counts), expected, "{mode:?} {counts:?}");
        }
    }
}
