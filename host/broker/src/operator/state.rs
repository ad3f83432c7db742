//! The knowledge of an operator: the counters, the definitions of deployments, and the present problems.

use super::assignments::{hash, meaning};
use crate::bucket::of_definition;
use fleet::wire::{Assigned, Assignment, Deployment, Lease, ModeWire, encode};
use fleet::{Aggregator, DeploymentView, Input};
use std::collections::{BTreeMap, HashMap};

/// The maximum number of leases that are kept. Every agent can write one.
const LEASES: usize = 10_000;

/// Which buckets have been read as far as they were filled at the attach.
#[derive(Default)]
pub(super) struct Caught {
    pub info: bool,
    pub state: bool,
    pub assignments: bool,
    pub leases: bool,
}

pub(super) struct State {
    pub aggregator: Aggregator,
    /// Also those that are deleted, so that a copy of them does not come back.
    definitions: BTreeMap<String, Deployment>,
    /// The definitions that changed here, and may have to be written.
    pub redefined: Vec<String>,
    /// The leases of deployments.
    leases: HashMap<String, Lease>,
    /// The operator that writes assignments, if it is another one.
    pub waits_for: Option<String>,
    pub caught: Caught,
    /// The differences of clocks that are shown, in milliseconds: positive if the device's clock is ahead.
    pub skews: HashMap<String, i64>,
    /// Records that were refused, and why the last one was.
    pub refused: (u64, Option<String>),
    /// Devices whose assignment is too large or could not be made, with the reason.
    pub unassigned: BTreeMap<String, String>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            aggregator: Aggregator::new(0),
            definitions: BTreeMap::new(),
            redefined: Vec::new(),
            leases: HashMap::new(),
            waits_for: None,
            caught: Caught::default(),
            skews: HashMap::new(),
            refused: (0, None),
            unassigned: BTreeMap::new(),
        }
    }

    /// Whether everything at the broker has been read. Until then, counters are too low.
    pub(super) fn is_complete(&self) -> bool {
        let Caught { info, state, assignments, leases } = self.caught;
        info && state && assignments && leases
    }

    /// Takes over a definition. Returns whether it is newer than the known one.
    pub(super) fn define(&mut self, name: &str, deployment: Deployment) -> bool {
        if self.version(name) >= deployment.version {
            return false;
        }
        let selector = (!deployment.is_deleted()).then(|| deployment.selector());
        let is_once = deployment.mode == ModeWire::Once;
        self.definitions.insert(name.to_owned(), deployment);
        self.aggregator.apply(&Input::Deployment { name, selector: selector.as_ref(), is_once });
        self.apply_lease(name);
        true
    }

    /// The version of a deployment, also of one that is deleted; 0 if it never was.
    pub(super) fn version(&self, name: &str) -> u64 {
        self.definitions.get(name).map_or(0, |known| known.version)
    }

    /// The names of all definitions, also of those that are deleted.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.definitions.keys()
    }

    pub(super) fn lease(&mut self, deployment: &str, lease: Lease) {
        if self.leases.len() >= LEASES && !self.leases.contains_key(deployment) {
            return self.refuse(deployment, "there are too many leases");
        }
        self.leases.insert(deployment.to_owned(), lease);
        // A deployment that is not defined would be one more name for ever.
        if self.definitions.contains_key(deployment) {
            self.apply_lease(deployment);
        }
    }

    fn apply_lease(&mut self, deployment: &str) {
        let Some(Lease { owner, term, is_free }) = self.leases.get(deployment) else { return };
        let owner = (!is_free).then_some(owner.as_str());
        self.aggregator.apply(&Input::Lease { deployment, owner, term: *term });
    }

    pub(super) fn deployment(&self, name: &str) -> Option<DeploymentView> {
        let definition = self.definitions.get(name).filter(|known| !known.is_deleted())?.clone();
        let aggregate = self.aggregator.aggregate(name).unwrap_or_default();
        Some(DeploymentView { name: name.to_owned(), definition, aggregate })
    }

    pub(super) fn refuse(&mut self, key: &str, why: impl std::fmt::Display) {
        let why = format!("{key}: {why}");
        if self.refused.0 == 0 {
            tracing::warn!("a record of the fleet is refused: {why}");
        }
        self.refused = (self.refused.0 + 1, Some(why));
    }

    /// The record of a key among the assignments, as bytes, and a hash of what it means. `right` is the term under
    /// which this operator assigns deployments to devices.
    pub(super) fn record(&mut self, key: &str, right: Option<u64>) -> Option<(Vec<u8>, u64)> {
        if let Some(name) = of_definition(key) {
            // It was checked when it was made.
            let payload = encode(self.definitions.get(name)?).ok()?;
            let hash = hash(&payload);
            return Some((payload, hash));
        }
        let chosen = self.aggregator.deployments_of(key).into_iter();
        let deployments = chosen.filter_map(|name| {
            let Deployment { version, targets, mode, .. } = self.definitions.get(&name)?;
            Some(Assigned { version: *version, targets: targets.clone(), is_once: *mode == ModeWire::Once, name })
        });
        let assignment = Assignment { term: right?, deployments: deployments.collect() };
        match encode(&assignment) {
            Ok(payload) => {
                self.unassigned.remove(key);
                Some((payload, meaning(&assignment)))
            }
            Err(why) => {
                self.unassigned.insert(key.to_owned(), why.to_string());
                None
            }
        }
    }
}
