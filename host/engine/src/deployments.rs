//! The deployments of this host, and what was reported about each.

use config::AssignedTarget;
use model::{DeploymentReport, TargetId};
use std::collections::BTreeMap;

/// The deployments of this host.
#[derive(Default)]
pub(crate) struct Deployments {
    pub(crate) targets: BTreeMap<String, Vec<AssignedTarget>>,
    /// The last report about each, without its time.
    pub(crate) reported: BTreeMap<String, DeploymentReport>,
}

impl Deployments {
    /// With the reports of an earlier run.
    pub(crate) fn new(targets: BTreeMap<String, Vec<AssignedTarget>>, reported: Vec<DeploymentReport>) -> Self {
        let reported = reported.into_iter().map(|report| (report.deployment.clone(), report)).collect();
        Self { targets, reported }
    }

    /// Returns the deployment that has the target.
    pub(crate) fn of(&self, target: &TargetId) -> Option<&String> {
        let has = |targets: &Vec<AssignedTarget>| targets.iter().any(|assigned| assigned.id == target.as_str());
        self.targets.iter().find(|(_, targets)| has(targets)).map(|(name, _)| name)
    }
}
