//! The aggregate of a deployment, from its counters and its changes.

use super::changes::Change;
use super::{Aggregator, Slot};
use crate::aggregate::{Aggregate, Happened};
use model::Timestamp;

/// The maximum number of failing devices of a deployment whose errors are shown.
const FAILING: usize = 10;

impl Aggregator {
    pub(super) fn aggregate_of(&self, deployment: u32) -> Aggregate {
        let state = &self.deployments[deployment as usize];
        let happened = |change: &Change| Happened {
            at: change.at,
            device: self.records.devices.text(change.device).to_owned(),
            phase: change.phase,
            error: change.error.as_deref().map(ToOwned::to_owned),
        };
        let failing = self.failures_of(deployment);
        // After a start, only the errors that are not over are known.
        let last_error = state.changes.last_error().into_iter().chain(failing.first().copied());
        let last_error = last_error.max_by_key(|change| change.at);
        Aggregate {
            holder: state.lease.as_ref().filter(|_| state.is_once).map(|(owner, term)| (owner.as_ref().into(), *term)),
            last_error: last_error.map(&happened),
            failing: failing.into_iter().take(FAILING).map(&happened).collect(),
            recent: state.changes.recent().map(&happened).collect(),
            ..self.counters_of(deployment)
        }
    }

    /// Returns when the device failed whose failure was the last of the `needed` ones that came first, by the time of
    /// its report; `None` if that is not known.
    pub fn failed_since(&self, deployment: &str, needed: u32) -> Option<Timestamp> {
        let deployment = self.deployment_names.get(deployment)?;
        let first = needed.checked_sub(1)?;
        self.failures_of(deployment).iter().rev().nth(first as usize).map(|change| change.at)
    }

    /// The errors of devices that count as failed, the latest first.
    fn failures_of(&self, deployment: u32) -> Vec<&Change> {
        if self.deployments[deployment as usize].counters[Slot::Failed as usize] == 0 {
            return Vec::new();
        }
        let counts = |change: &&Change| {
            let record = self.records.get(change.device, deployment).filter(|record| record.matched);
            record.is_some_and(|record| self.slot(change.device, &record) == Slot::Failed)
        };
        let mut failing: Vec<&Change> = self.errors.of(deployment).filter(counts).collect();
        failing.sort_by_key(|change| std::cmp::Reverse(change.at));
        failing
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
