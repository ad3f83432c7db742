//! The aggregate of a deployment, from its counters and its changes.

use super::changes::Change;
use super::{Aggregator, Slot};
use crate::aggregate::{Aggregate, Happened};

impl Aggregator {
    pub(super) fn aggregate_of(&self, deployment: u32) -> Aggregate {
        let state = &self.deployments[deployment as usize];
        let happened = |change: &Change| Happened {
            at: change.at,
            device: self.records.devices.text(change.device).to_owned(),
            phase: change.phase,
            error: change.error.as_deref().map(ToOwned::to_owned),
        };
        let failing = state.changes.failing().filter_map(|device| self.errors.get((device, deployment)));
        let mut failing: Vec<&Change> = failing.collect();
        failing.sort_by_key(|change| std::cmp::Reverse(change.at));
        // After a start, only the errors that are not over are known.
        let last_error = state.changes.last_error().into_iter().chain(failing.first().copied());
        let last_error = last_error.max_by_key(|change| change.at);
        Aggregate {
            holder: state.lease.as_ref().filter(|_| state.is_once).map(|(owner, term)| (owner.as_ref().into(), *term)),
            last_error: last_error.map(&happened),
            failing: failing.into_iter().map(&happened).collect(),
            recent: state.changes.recent().map(&happened).collect(),
            ..self.counters_of(deployment)
        }
    }

    pub(super) fn counters_of(&self, deployment: u32) -> Aggregate {
        let counters = self.deployments[deployment as usize].counters;
        let count = |slot: Slot| counters[slot as usize];
        Aggregate {
            matched: counters.iter().sum(),
            pending: count(Slot::Pending),
            succeeded: count(Slot::Succeeded),
            failed: count(Slot::Failed),
            unreported: count(Slot::Unreported),
            stale: count(Slot::Stale),
            ..Aggregate::default()
        }
    }
}
