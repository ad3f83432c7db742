//! Deployments that one device polls at a time: only the holder of the lease counts, and only what it reports under the
//! present term.

use super::records::Record;
use super::{Aggregator, Deployment};
use crate::aggregate::Applied;
use std::collections::BTreeSet;

impl Aggregator {
    /// Whether the report of a device counts.
    pub(super) fn has_right(&self, device: u32, deployment: u32) -> bool {
        let Deployment { is_once, lease, .. } = &self.deployments[deployment as usize];
        let reported = || self.terms.get(&(device, deployment)).copied().unwrap_or_default();
        let is_of =
            |(owner, term): &(Box<str>, u64)| **owner == *self.records.devices.text(device) && *term == reported();
        !is_once || lease.as_ref().is_some_and(is_of)
    }

    /// Stores the term of a report that replaces `record`.
    pub(super) fn set_term(&mut self, key: (u32, u32), record: &Record, term: u64) {
        if self.terms.get(&key).copied().unwrap_or_default() == term {
            return;
        }
        self.count(key.0, record, false);
        match term {
            0 => drop(self.terms.remove(&key)),
            term => drop(self.terms.insert(key, term)),
        }
        self.count(key.0, record, true);
    }

    pub(super) fn lease(&mut self, name: &str, owner: Option<&str>, term: u64) -> Applied {
        let lease = owner.map(|owner| (Box::from(owner), term));
        let deployment = self.deployment(name);
        let held = &self.deployments[deployment as usize].lease;
        if *held == lease {
            return Applied::Same;
        }
        // Only these two devices can count before or after.
        let device = |(owner, _): &(Box<str>, u64)| self.records.devices.get(owner);
        let devices =
            BTreeSet::from([held.as_ref().and_then(device), lease.as_ref().and_then(device)]).into_iter().flatten();
        let records: Vec<(u32, Record)> =
            devices.filter_map(|device| self.records.get(device, deployment).map(|record| (device, record))).collect();
        records.iter().for_each(|(device, record)| self.count(*device, record, false));
        self.deployments[deployment as usize].lease = lease;
        records.iter().for_each(|(device, record)| self.count(*device, record, true));
        self.touch(deployment);
        Applied::New
    }

    /// Changes a deployment in a way that moves devices from one counter to another.
    pub(super) fn recount(&mut self, deployment: u32, change: impl FnOnce(&mut Deployment)) {
        let all = 0..self.records.devices.len();
        let record = |device| self.records.get(device, deployment).map(|record| (device, record));
        let records: Vec<(u32, Record)> = all.filter_map(record).collect();
        records.iter().for_each(|(device, record)| self.count(*device, record, false));
        change(&mut self.deployments[deployment as usize]);
        records.iter().for_each(|(device, record)| self.count(*device, record, true));
    }
}
