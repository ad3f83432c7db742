//! The knowledge of an operator: the counters, the definitions of deployments, and the present problems.

use super::assignments::{hash, meaning};
use super::phases::Phases;
use crate::DOUBLED;
use crate::bucket::of_definition;
use fleet::wire::{Assigned, Assignment, Deployment, Lease, ModeWire, OfferedPlugin, encode};
use fleet::{Aggregator, DeploymentView, Failures, Input, PluginView};
use model::{EventKind, Phase, Timestamp, hex};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// The maximum number of leases that are kept. Every agent can write one.
const LEASES: usize = 10_000;

/// This number of heartbeats from a host that another one replaced means that both run. One may have been on its way
/// while the host started again.
const BOTH_RUN: u32 = 2;
/// [`DOUBLED`] in seconds.
const ENDED: u32 = DOUBLED.as_secs() as u32;

/// Heartbeats of a device from a host that another one replaced.
pub(super) struct Replaced {
    count: u32,
    /// The second of the last one.
    last: u32,
}

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
    /// The kinds of the targets of each deployment.
    kinds: HashMap<String, BTreeSet<String>>,
    /// The plugin files of this host, by the kinds that they serve.
    offered: BTreeMap<String, (OfferedPlugin, PathBuf)>,
    /// Whether they changed since the assignments were compared.
    pub is_reoffered: bool,
    /// Why plugins are not at the broker, by their kinds.
    pub unstored: BTreeMap<String, String>,
    /// The definitions that changed here, and may have to be written.
    pub redefined: Vec<String>,
    /// The leases of deployments.
    leases: HashMap<String, Lease>,
    /// The operator that writes assignments, if it is another one.
    pub waits_for: Option<String>,
    pub caught: Caught,
    /// The differences of clocks that are shown, in milliseconds: positive if the device's clock is ahead.
    pub skews: HashMap<String, i64>,
    /// Heartbeats from hosts that another host of the same device replaced.
    replaced: HashMap<String, Replaced>,
    /// The devices that were doubled at the last look.
    known_doubled: BTreeSet<String>,
    /// Records that were refused, and why the last one was.
    pub refused: (u64, Option<String>),
    /// Devices whose assignment is too large or could not be made, with the reason.
    pub unassigned: BTreeMap<String, String>,
    phases: Phases,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            aggregator: Aggregator::new(0),
            definitions: BTreeMap::new(),
            kinds: HashMap::new(),
            offered: BTreeMap::new(),
            is_reoffered: false,
            unstored: BTreeMap::new(),
            redefined: Vec::new(),
            leases: HashMap::new(),
            waits_for: None,
            caught: Caught::default(),
            skews: HashMap::new(),
            replaced: HashMap::new(),
            known_doubled: BTreeSet::new(),
            refused: (0, None),
            unassigned: BTreeMap::new(),
            phases: Phases::default(),
        }
    }

    /// Whether everything at the broker has been read. Until then, counters are too low.
    pub(super) fn is_complete(&self) -> bool {
        let Caught { info, state, assignments, leases } = self.caught;
        info && state && assignments && leases
    }

    /// Notes the epoch of a heartbeat. Hosts of one device replace each other by a higher epoch.
    pub(super) fn beat(&mut self, device: &str, epoch: u32, second: u32) {
        if self.aggregator.epoch(device).is_none_or(|described| epoch >= described) {
            return;
        }
        self.replaced.retain(|_, replaced| second.saturating_sub(replaced.last) < ENDED);
        let replaced = self.replaced.entry(device.to_owned()).or_insert(Replaced { count: 0, last: second });
        *replaced = Replaced { count: replaced.count + 1, last: second };
    }

    /// The devices as which several hosts report, in order.
    pub(super) fn doubled(&self, second: u32) -> Vec<String> {
        let is_doubled =
            |replaced: &Replaced| replaced.count >= BOTH_RUN && second.saturating_sub(replaced.last) < ENDED;
        let found = self.replaced.iter().filter(|(_, replaced)| is_doubled(replaced));
        let mut found: Vec<String> = found.map(|(device, _)| device.clone()).collect();
        found.sort_unstable();
        found
    }

    /// The devices as which several hosts report since the last call, with `true`, or no longer do, with `false`.
    pub(super) fn newly_doubled(&mut self, second: u32) -> Vec<(String, bool)> {
        if self.replaced.is_empty() && self.known_doubled.is_empty() {
            return Vec::new();
        }
        let doubled: BTreeSet<String> = self.doubled(second).into_iter().collect();
        let changed = doubled.symmetric_difference(&self.known_doubled);
        let changed = changed.map(|device| (device.clone(), doubled.contains(device))).collect();
        self.known_doubled = doubled;
        changed
    }

    /// Takes over a definition. Returns whether it is newer than the known one.
    pub(super) fn define(&mut self, name: &str, deployment: Deployment) -> bool {
        if self.version(name) >= deployment.version {
            return false;
        }
        let selector = (!deployment.is_deleted()).then(|| deployment.selector());
        let is_once = deployment.mode == ModeWire::Once;
        let kind = |target: &String| {
            let target: Value = serde_json::from_str(target).ok()?;
            target.get("kind")?.as_str().map(ToOwned::to_owned)
        };
        self.kinds.insert(name.to_owned(), deployment.targets.iter().filter_map(kind).collect());
        self.definitions.insert(name.to_owned(), deployment);
        self.aggregator.apply(&Input::Deployment { name, selector: selector.as_ref(), is_once });
        self.apply_lease(name);
        true
    }

    /// Replaces the plugin files that this host offers.
    pub(super) fn offer(&mut self, plugins: Vec<(OfferedPlugin, PathBuf)>) {
        let offered = plugins.into_iter().map(|(plugin, file)| (plugin.kind.clone(), (plugin, file))).collect();
        self.is_reoffered |= self.offered != offered;
        self.offered = offered;
    }

    /// The offered plugin files that deployments need.
    pub(super) fn needed_plugins(&self) -> Vec<(OfferedPlugin, PathBuf)> {
        let needed: BTreeSet<&String> = self.kinds.values().flatten().collect();
        self.offered.iter().filter(|(kind, _)| needed.contains(kind)).map(|(_, offered)| offered.clone()).collect()
    }

    pub(super) fn plugin_views(&self) -> Vec<PluginView> {
        let view = |(OfferedPlugin { kind, digest, size }, _)| PluginView {
            digest: hex(&digest),
            size,
            problem: self.unstored.get(&kind).cloned(),
            kind,
        };
        self.needed_plugins().into_iter().map(view).collect()
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
        let mut view = DeploymentView { name: name.to_owned(), definition, aggregate, since: None };
        view.since = self.phases.since(name, view.phase());
        Some(view)
    }

    /// The deployments that failed as a whole, at most `limit` of them with what they are.
    pub(super) fn failures(&self, limit: usize) -> Failures {
        let defined = self.definitions.iter().filter(|(_, known)| !known.is_deleted());
        let mut found = Failures::default();
        for (name, definition) in defined {
            found.deployments += 1;
            let counted = self.aggregator.counters(name).unwrap_or_default();
            if definition.mode.phase(&counted) == Phase::Failed {
                found.failed += 1;
                if found.first.len() < limit {
                    found.first.extend(self.deployment(name));
                }
            }
        }
        found
    }

    /// Returns which of these deployments failed or work again since the last call; none at the first one, and until
    /// everything at the broker has been read.
    pub(super) fn changed_phases(&mut self, changed: impl Iterator<Item = String>, now: Timestamp) -> Vec<EventKind> {
        if !self.phases.has_begun() {
            if self.is_complete() {
                let all = self.names().filter_map(|name| self.deployment(name)).collect();
                let aggregator = &self.aggregator;
                self.phases.begin(all, |view| aggregator.failed_since(&view.name, view.definition.mode.needed()));
            }
            return Vec::new();
        }
        let change = |name: String| {
            let view = self.deployment(&name);
            self.phases.change(name, view, now)
        };
        changed.filter_map(change).collect()
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
        let chosen = self.aggregator.deployments_of(key);
        let kinds: BTreeSet<&String> = chosen.iter().filter_map(|name| self.kinds.get(name)).flatten().collect();
        let plugins = kinds.into_iter().filter_map(|kind| Some(self.offered.get(kind)?.0.clone())).collect();
        let deployments = chosen.into_iter().filter_map(|name| {
            let Deployment { version, targets, mode, .. } = self.definitions.get(&name)?;
            Some(Assigned { version: *version, targets: targets.clone(), is_once: *mode == ModeWire::Once, name })
        });
        let assignment = Assignment { term: right?, deployments: deployments.collect(), plugins };
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

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{Labels, Stamp};

    #[test]
    fn two_hosts_of_one_device_are_found_and_forgotten() {
        let mut state = State::new();
        let labels = Labels::default();
        let describe = |state: &mut State, epoch| {
            let stamp = Stamp { epoch, counter: 1 };
            state.aggregator.apply(&Input::Info { device: "a", stamp, floor: 0, labels: Some(&labels) });
        };
        describe(&mut state, 10);
        state.beat("a", 10, 0);
        // It is started again, and a heartbeat was on its way.
        describe(&mut state, 11);
        state.beat("a", 10, 1);
        state.beat("unknown", 1, 1);
        assert!(state.doubled(1).is_empty());
        // A second host replaces it, and both are heard.
        describe(&mut state, 12);
        state.beat("a", 11, 30);
        state.beat("a", 12, 31);
        assert_eq!(state.doubled(31), ["a"]);
        assert_eq!(state.newly_doubled(31), [("a".to_owned(), true)]);
        assert_eq!(state.newly_doubled(32), []);
        assert_eq!(state.doubled(329), ["a"]);
        assert!(state.doubled(330).is_empty(), "one of them ended");
        assert_eq!(state.newly_doubled(330), [("a".to_owned(), false)]);
        state.beat("a", 11, 700);
        assert!(state.doubled(700).is_empty(), "the count begins again");
    }

    fn changes(state: &mut State, now: i64) -> Vec<EventKind> {
        state.changed_phases(["web".to_owned()].into_iter(), Timestamp::from_millis(now))
    }

    fn since(state: &State) -> Option<i64> {
        state.deployment("web").unwrap().since.map(Timestamp::as_millis)
    }

    fn report(state: &mut State, counter: u32, phase: Phase) {
        let stamp = Stamp { epoch: 1, counter };
        let error = (phase == Phase::Failed).then_some("no answer");
        let at = Timestamp::from_millis(i64::from(counter));
        let input = Input::State { device: "a", deployment: "web", stamp, phase, at, error, term: 0 };
        state.aggregator.apply(&input);
    }

    #[test]
    fn only_a_settled_phase_that_differs_is_news() {
        let mut state = State::new();
        state.aggregator.match_devices();
        state.caught = Caught { info: true, state: true, assignments: true, leases: true };
        let (labels, stamp) = (Labels::new(), Stamp { epoch: 1, counter: 1 });
        state.aggregator.apply(&Input::Info { device: "a", stamp, floor: 1, labels: Some(&labels) });
        let (targets, mode) = (vec!["{}".to_owned()], ModeWire::Each);
        let deployment = Deployment { version: 1, labels, requirements: Vec::new(), targets, mode };
        state.define("web", deployment);
        report(&mut state, 2, Phase::Failed);
        assert_eq!(changes(&mut state, 9), [], "it had failed before this operator started");
        assert_eq!(since(&state), Some(2), "the time of the report");
        report(&mut state, 3, Phase::Pending);
        assert_eq!(changes(&mut state, 10), []);
        assert_eq!(since(&state), None);
        report(&mut state, 4, Phase::Succeeded);
        let event = |previous, current, error| {
            [EventKind::FleetDeployment { deployment: "web".to_owned(), previous, current, error }]
        };
        assert_eq!(changes(&mut state, 11), event(Phase::Failed, Phase::Succeeded, None));
        report(&mut state, 5, Phase::Failed);
        assert_eq!(since(&state), None, "it is counted, and not noticed yet");
        assert_eq!(changes(&mut state, 12), event(Phase::Succeeded, Phase::Failed, Some("a: no answer".to_owned())));
        report(&mut state, 6, Phase::Failed);
        assert_eq!(changes(&mut state, 13), []);
        assert_eq!(since(&state), Some(12), "it has failed since then, whatever is reported after that");
        // Deleted and made again.
        state.define("web", Deployment::deleted(2));
        assert_eq!(changes(&mut state, 14), []);
    }
}
