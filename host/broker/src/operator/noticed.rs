//! Changes of the fleet that the operator's host stores.

use super::state::State;
use fleet::wire::Deployment;
use model::{EventKind, KeptPlace, KeptRecord, Phase};
use std::collections::HashMap;

/// A change that the operator's host stores.
#[derive(Clone, Debug, PartialEq)]
pub enum Noticed {
    /// Another operator made, changed or deleted a deployment.
    Defined(String, Deployment),
    /// A deployment failed or works again, or a device is not heard or heard again.
    Happened(EventKind),
    /// It has read these records, and has all up to a place if there is one.
    Read(Vec<KeptRecord>, Option<KeptPlace>),
}

/// The last settled phase of each deployment: failed or succeeded.
#[derive(Default)]
pub(super) struct Phases(Option<HashMap<String, Phase>>);

impl Phases {
    /// Returns what changed in these deployments since the last call. At the first one, and until everything at the
    /// broker has been read, their phases are taken as known.
    pub(super) fn changes(&mut self, state: &State, changed: impl Iterator<Item = String>) -> Vec<EventKind> {
        let Some(known) = &mut self.0 else {
            if !state.is_complete() {
                return Vec::new();
            }
            let settled = |name: &String| Some((name.clone(), settled(state.deployment(name)?.phase())?));
            self.0 = Some(state.names().filter_map(settled).collect());
            return Vec::new();
        };
        let mut changes = Vec::new();
        for name in changed {
            let Some(view) = state.deployment(&name) else {
                known.remove(&name);
                continue;
            };
            let Some(current) = settled(view.phase()) else { continue };
            let previous = known.insert(name.clone(), current).unwrap_or(Phase::Pending);
            if previous == current {
                continue;
            }
            let failure = view.aggregate.last_error.filter(|_| current == Phase::Failed);
            let error = failure.map(|last| format!("{}: {}", last.device, last.error.unwrap_or_default()));
            changes.push(EventKind::FleetDeployment { deployment: name, previous, current, error });
        }
        changes
    }
}

/// A phase that is news; a deployment is pending for a moment whenever it changes.
fn settled(phase: Phase) -> Option<Phase> {
    matches!(phase, Phase::Failed | Phase::Succeeded).then_some(phase)
}

#[cfg(test)]
mod tests {
    use super::super::state::Caught;
    use super::*;
    use fleet::wire::ModeWire;
    use fleet::{Input, Labels, Stamp};
    use model::Timestamp;

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
        let mut phases = Phases::default();
        let mut changes = |state: &State| phases.changes(state, ["web".to_owned()].into_iter());
        assert_eq!(changes(&state), [], "it had failed before this operator started");
        report(&mut state, 3, Phase::Pending);
        assert_eq!(changes(&state), []);
        report(&mut state, 4, Phase::Succeeded);
        let event = |previous, current, error| {
            [EventKind::FleetDeployment { deployment: "web".to_owned(), previous, current, error }]
        };
        assert_eq!(changes(&state), event(Phase::Failed, Phase::Succeeded, None));
        report(&mut state, 5, Phase::Failed);
        assert_eq!(changes(&state), event(Phase::Succeeded, Phase::Failed, Some("a: no answer".to_owned())));
        assert_eq!(changes(&state), []);
        // Deleted and made again.
        state.define("web", Deployment::deleted(2));
        assert_eq!(changes(&state), []);
    }
}
