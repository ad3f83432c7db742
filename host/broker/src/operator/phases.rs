//! Which deployments failed and which work, and since when.

use fleet::{DeploymentView, Happened};
use model::{EventKind, Phase, Timestamp};
use std::collections::HashMap;

/// The last settled phase of each deployment: failed or succeeded. `None` until everything at the broker has been read.
#[derive(Default)]
pub(super) struct Phases(Option<HashMap<String, Settled>>);

struct Settled {
    phase: Phase,
    /// `None` if it had this phase when this operator started, and nothing says since when.
    since: Option<Timestamp>,
}

impl Phases {
    pub(super) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Takes the phases of all deployments as known. The function says since when one has failed.
    pub(super) fn begin(
        &mut self,
        all: Vec<DeploymentView>,
        failed_since: impl Fn(&DeploymentView) -> Option<Timestamp>,
    ) {
        let settled = |view: DeploymentView| {
            let phase = settled(view.phase())?;
            let since = failed_since(&view).filter(|_| phase == Phase::Failed);
            Some((view.name, Settled { phase, since }))
        };
        self.0 = Some(all.into_iter().filter_map(settled).collect());
    }

    /// Returns whether a deployment, `None` if it is deleted, failed or works again since the last call.
    pub(super) fn change(&mut self, name: String, view: Option<DeploymentView>, now: Timestamp) -> Option<EventKind> {
        let known = self.0.as_mut()?;
        let Some(view) = view else {
            known.remove(&name);
            return None;
        };
        if view.phase() == Phase::Removed {
            known.remove(&name);
        }
        let current = settled(view.phase())?;
        let previous = known.get(&name).map_or(Phase::Pending, |settled| settled.phase);
        if previous == current {
            return None;
        }
        known.insert(name.clone(), Settled { phase: current, since: Some(now) });
        let error = view.aggregate.reason().filter(|_| current == Phase::Failed).map(Happened::why);
        Some(EventKind::FleetDeployment { deployment: name, previous, current, error })
    }

    /// Since when a deployment has the phase that it has now; `None` if that is not known.
    pub(super) fn since(&self, name: &str, phase: Phase) -> Option<Timestamp> {
        self.0.as_ref()?.get(name).filter(|settled| settled.phase == phase)?.since
    }
}

/// A phase that is news; a deployment is pending for a moment whenever it changes.
fn settled(phase: Phase) -> Option<Phase> {
    matches!(phase, Phase::Failed | Phase::Succeeded).then_some(phase)
}
