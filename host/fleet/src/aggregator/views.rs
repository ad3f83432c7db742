//! Devices as readers see them, and the devices whose deployments changed.

use super::Aggregator;
use crate::{Aggregate, Labels, Phase, Stamp};

/// A device as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// The id.
    pub device: String,
    /// The labels; empty if the device has not described itself or has left.
    pub labels: Labels,
    /// Whether the device has described itself and has not left.
    pub is_member: bool,
    /// Whether it was not heard for [`super::STALE_AFTER`].
    pub is_stale: bool,
    /// Whether it was heard since this aggregator began. Records do not say so, because they are old at a start.
    pub is_heard: bool,
    /// The second in which it was heard last, or became known, by the aggregator's clock.
    pub heard: u32,
    /// The deployments that choose it, by name, with the reported phase; `None` if nothing was reported.
    pub deployments: Vec<(String, Option<Phase>)>,
}

impl DeviceView {
    /// Whether a deployment failed.
    pub fn is_failed(&self) -> bool {
        self.deployments.iter().any(|(_, phase)| *phase == Some(Phase::Failed))
    }
}

impl Aggregator {
    /// Returns a device; `None` if its id is unknown.
    pub fn device_view(&self, id: &str) -> Option<DeviceView> {
        self.records.devices.get(id).map(|device| self.view(device))
    }

    /// Returns the epoch of a device's last description; `None` if the device is unknown.
    pub fn epoch(&self, id: &str) -> Option<u32> {
        self.records.devices.get(id).map(|device| self.devices[device as usize].info.epoch)
    }

    /// Returns the devices from a number on that are wanted, at most `limit`, and the number of the next one, if any.
    pub fn devices_from(
        &self,
        first: u32,
        wanted: impl Fn(&DeviceView) -> bool,
        limit: usize,
    ) -> (Vec<DeviceView>, Option<u32>) {
        let mut found = Vec::new();
        for device in first..self.records.devices.len() {
            let view = self.view(device);
            if !wanted(&view) {
                continue;
            }
            if found.len() == limit {
                return (found, Some(device));
            }
            found.push(view);
        }
        (found, None)
    }

    /// Returns members that are stale, at most `limit`.
    pub fn stale_devices(&self, limit: usize) -> Vec<DeviceView> {
        let stale = self.devices.iter().enumerate().filter(|(_, device)| device.is_member && device.is_stale);
        stale.take(limit).map(|(device, _)| self.view(device as u32)).collect()
    }

    /// Returns the counters of a deployment without its changes.
    pub fn counters(&self, deployment: &str) -> Option<Aggregate> {
        self.deployment_names.get(deployment).map(|deployment| self.counters_of(deployment))
    }

    /// Returns the number of known devices, and of those that are stale.
    pub fn device_counts(&self) -> (usize, usize) {
        let members = self.devices.iter().filter(|device| device.is_member);
        members.fold((0, 0), |(all, stale), device| (all + 1, stale + usize::from(device.is_stale)))
    }

    /// Returns the devices that a deployment chooses and that are wanted, with the reported phase, at most `limit`.
    pub fn devices_of(
        &self,
        deployment: &str,
        wanted: impl Fn(Option<Phase>, bool) -> bool,
        limit: usize,
    ) -> Vec<DeviceView> {
        let Some(deployment) = self.deployment_names.get(deployment) else { return Vec::new() };
        let is_wanted = |device: &u32| {
            let record = self.records.get(*device, deployment).filter(|record| record.matched);
            record.is_some_and(|record| {
                wanted(reported(record.stamp, record.phase), self.devices[*device as usize].is_stale)
            })
        };
        (0..self.records.devices.len()).filter(is_wanted).take(limit).map(|device| self.view(device)).collect()
    }

    /// Returns the devices whose deployments may have changed since the last call, each once.
    pub fn take_reassigned(&mut self) -> Vec<String> {
        let taken = std::mem::take(&mut self.reassigned);
        for device in &taken {
            self.devices[*device as usize].is_reassigned = false;
        }
        taken.into_iter().map(|device| self.records.devices.text(device).to_owned()).collect()
    }

    /// Returns the devices that became stale or were heard again since the last call, in order, with what they are now.
    /// A device that was both has its present state only.
    pub fn take_restaled(&mut self) -> Vec<(String, bool)> {
        let mut taken = std::mem::take(&mut self.restaled);
        taken.sort_unstable();
        taken.dedup();
        let members = taken.into_iter().filter(|device| self.devices[*device as usize].is_member);
        let state =
            |device: u32| (self.records.devices.text(device).to_owned(), self.devices[device as usize].is_stale);
        members.map(state).collect()
    }

    /// Returns the names of the deployments that choose a device, in order.
    pub fn deployments_of(&self, id: &str) -> Vec<String> {
        let view = self.device_view(id);
        view.into_iter().flat_map(|view| view.deployments).map(|(name, _)| name).collect()
    }

    pub(super) fn reassign(&mut self, device: u32) {
        let held = &mut self.devices[device as usize];
        if !std::mem::replace(&mut held.is_reassigned, true) {
            self.reassigned.push(device);
        }
    }

    fn view(&self, device: u32) -> DeviceView {
        let held = &self.devices[device as usize];
        let matched = self.records.of(device).filter(|record| record.matched);
        let mut deployments: Vec<_> = matched
            .map(|record| {
                let name = self.deployment_names.text(record.deployment).to_owned();
                let counts = self.has_right(device, record.deployment);
                (name, reported(record.stamp, record.phase).filter(|_| counts))
            })
            .collect();
        deployments.sort();
        DeviceView {
            device: self.records.devices.text(device).to_owned(),
            labels: self.labels_of(device).iter().map(|pair| self.index.label(*pair)).collect(),
            is_member: held.is_member,
            is_stale: held.is_stale,
            is_heard: held.heard.is_heard(),
            heard: held.heard.second(),
            deployments,
        }
    }
}

/// The phase that a device reports; `None` if it reported none, or no longer runs the deployment.
fn reported(stamp: Stamp, phase: Phase) -> Option<Phase> {
    (stamp != Stamp::default() && phase != Phase::Removed).then_some(phase)
}
