//! The deployments of this host, and what was reported about each.

use config::{AssignedDeployment, AssignedTarget};
use model::{DeploymentReport, TargetId};
use std::collections::BTreeMap;

/// The deployments of this host.
#[derive(Default)]
pub(crate) struct Deployments {
    pub(crate) assigned: BTreeMap<String, AssignedDeployment>,
    /// The last report about each, without its time.
    pub(crate) reported: BTreeMap<String, DeploymentReport>,
}

impl Deployments {
    /// With the reports of an earlier run.
    pub(crate) fn new(assigned: BTreeMap<String, AssignedDeployment>, reported: Vec<DeploymentReport>) -> Self {
        let reported = reported.into_iter().map(|report| (report.deployment.clone(), report)).collect();
        Self { assigned, reported }
    }

    /// Returns the deployment that has the target.
    pub(crate) fn of(&self, target: &TargetId) -> Option<&String> {
        let has = |targets: &Vec<AssignedTarget>| targets.iter().any(|assigned| assigned.id == target.as_str());
        self.assigned.iter().find(|(_, assigned)| has(&assigned.targets)).map(|(name, _)| name)
    }
}
