//! The counters of each deployment as a function of the records that arrived.

mod arena;
mod changes;
mod index;
mod once;
mod records;
mod totals;
mod views;
mod wheel;

use crate::Labels;
use crate::aggregate::{Aggregate, Applied, Input, Patch};
use crate::selector::Selector;
use crate::stamp::{Stamp, digest};
use arena::Arena;
pub use arena::PREFETCHED;
use changes::{Change, Changes, Errors};
use index::{Index, Pair};
use model::{Phase, Timestamp};
use records::{DEPLOYMENTS, MOST, Record, Records};
use smallvec::SmallVec;
use std::collections::HashMap;
pub use views::DeviceView;
use wheel::Wheel;

/// A device is stale after this number of seconds without a heartbeat.
pub const STALE_AFTER: u32 = 300;
/// The shortest time between two patches of a deployment, in seconds.
const PATCH_EVERY: u32 = 1;
/// The maximum number of records of a device about deployments that do not match it. An agent could invent them without
/// end; a few are left from deployments that matched before.
pub const LEGROOM: usize = 256;

/// Where a matched device counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Pending,
    Succeeded,
    Failed,
    Unreported,
    Stale,
}

#[derive(Clone, Copy, Debug)]
struct Device {
    info: Stamp,
    heard: Heard,
    /// The place of its labels.
    labels: u32,
    label_count: u8,
    /// Whether it has described itself and has not left.
    is_member: bool,
    is_stale: bool,
    /// Whether it is in the list of devices whose deployments changed.
    is_reassigned: bool,
}

/// The second of the last heartbeat, or that in which the device became known, if there was no heartbeat since. The
/// highest bit says which, because a million devices have one.
#[derive(Clone, Copy, Debug)]
struct Heard(u32);

impl Heard {
    const NEVER: u32 = 1 << 31;

    const fn known_since(second: u32) -> Self {
        Self(second | Self::NEVER)
    }

    const fn at(second: u32) -> Self {
        Self(second & !Self::NEVER)
    }

    const fn second(self) -> u32 {
        self.0 & !Self::NEVER
    }

    const fn is_heard(self) -> bool {
        self.0 & Self::NEVER == 0
    }
}

#[derive(Debug, Default)]
struct Deployment {
    /// The devices in each [`Slot`].
    counters: [u32; 5],
    changes: Changes,
    is_dirty: bool,
    /// The second of the last patch.
    patched: Option<u32>,
    /// Whether only the holder of the lease counts.
    is_once: bool,
    /// The id of the holder, and its term.
    lease: Option<(Box<str>, u64)>,
}

/// The counters of all deployments. Time is a number of seconds since a start of the caller's choice.
pub struct Aggregator {
    deployment_names: Arena,
    devices: Vec<Device>,
    deployments: Vec<Deployment>,
    records: Records,
    index: Index,
    /// The labels of all devices.
    labels: Vec<Pair>,
    /// Labels in `labels` that no device has.
    unused_labels: usize,
    errors: Errors,
    /// The terms of the leases under which devices reported, by device and deployment.
    terms: HashMap<(u32, u32), u64>,
    /// Deployments that changed since their last patch.
    dirty: Vec<u32>,
    /// Devices whose deployments changed.
    reassigned: Vec<u32>,
    /// Devices that became stale, or were heard again.
    restaled: Vec<u32>,
    wheel: Wheel,
    /// Devices are loaded and not matched yet.
    is_loading: bool,
}

impl Aggregator {
    /// An aggregator without devices at a time. It loads: descriptions of devices have no effect until
    /// [`Aggregator::match_devices`].
    pub fn new(now: u32) -> Self {
        Self {
            deployment_names: Arena::default(),
            devices: Vec::new(),
            deployments: Vec::new(),
            records: Records::default(),
            errors: Errors::default(),
            index: Index::default(),
            labels: Vec::new(),
            unused_labels: 0,
            terms: HashMap::new(),
            dirty: Vec::new(),
            reassigned: Vec::new(),
            restaled: Vec::new(),
            wheel: Wheel::new(now, STALE_AFTER),
            is_loading: true,
        }
    }

    /// Matches the devices that were loaded with the selectors. It is faster than one after the other, because the
    /// index is built when it is known which labels are rare.
    pub fn match_devices(&mut self) {
        if !std::mem::take(&mut self.is_loading) {
            return;
        }
        self.index.file_again();
        for device in 0..self.records.devices.len() {
            let labels: SmallVec<[Pair; 8]> = self.labels_of(device).into();
            if self.devices[device as usize].is_member {
                let matching = self.index.matching(&labels);
                self.records.reserve(device, matching.len());
                for deployment in matching {
                    self.set_matched(device, deployment, true);
                }
            }
        }
    }

    /// Makes [`Aggregator::apply`] faster for states of these devices, which arrived together. It has no other effect.
    pub fn prefetch<'a>(&self, devices: impl Iterator<Item = &'a str>) {
        self.records.prefetch(devices);
    }

    /// Applies what arrived.
    pub fn apply(&mut self, input: &Input<'_>) -> Applied {
        match *input {
            Input::Info { device, stamp, floor, labels } => self.describe(device, (stamp, floor), labels),
            Input::State { device, deployment, stamp, phase, at, error, term } => {
                self.report((device, deployment), (stamp, term), (phase, at, error))
            }
            Input::Heartbeat { device, digest } => self.hear(device, digest),
            Input::Deployment { name, selector, is_once } => self.define(name, selector, is_once),
            Input::Lease { deployment, owner, term } => self.lease(deployment, owner, term),
        }
    }

    /// Moves the time on. Devices that were not heard for [`STALE_AFTER`] become stale.
    pub fn tick(&mut self, now: u32) {
        while let Some(due) = self.wheel.turn(now) {
            for device in due {
                let late = self.devices[device as usize].heard.second() + STALE_AFTER;
                if late > self.wheel.now() {
                    self.wheel.check_at(device, late);
                } else {
                    self.set_stale(device, true);
                }
            }
        }
    }

    /// Returns the deployments that changed, each at most once a second.
    pub fn drain(&mut self) -> Vec<Patch> {
        let now = self.wheel.now();
        let is_due = |deployment: &u32| {
            self.deployments[*deployment as usize].patched.is_none_or(|patched| now >= patched + PATCH_EVERY)
        };
        let (due, later): (Vec<u32>, Vec<u32>) = std::mem::take(&mut self.dirty).into_iter().partition(is_due);
        self.dirty = later;
        let patch = |deployment: u32| {
            let state = &mut self.deployments[deployment as usize];
            (state.is_dirty, state.patched) = (false, Some(now));
            Patch {
                deployment: self.deployment_names.text(deployment).to_owned(),
                aggregate: self.aggregate_of(deployment),
            }
        };
        due.into_iter().map(patch).collect()
    }

    /// Returns the aggregate of a deployment; `None` if its name is unknown.
    pub fn aggregate(&self, deployment: &str) -> Option<Aggregate> {
        self.deployment_names.get(deployment).map(|deployment| self.aggregate_of(deployment))
    }

    /// Returns the sum of [`digest`] over the valid states of a device.
    pub fn digest(&self, device: &str) -> u64 {
        let Some(device) = self.records.devices.get(device) else { return 0 };
        let floor = self.records.floor(device);
        let is_valid = |record: &Record| record.stamp != Stamp::default() && record.stamp.epoch >= floor;
        let valid = self.records.of(device).filter(is_valid);
        let part = |record: Record| digest(self.deployment_names.text(record.deployment), record.stamp);
        valid.map(part).fold(0, u64::wrapping_add)
    }

    fn device(&mut self, id: &str) -> u32 {
        let device = self.records.devices.number(id);
        if device as usize == self.devices.len() {
            // A new device has the whole time for its first heartbeat.
            let now = self.wheel.now();
            self.devices.push(Device {
                info: Stamp::default(),
                heard: Heard::known_since(now),
                labels: 0,
                label_count: 0,
                is_member: false,
                is_stale: false,
                is_reassigned: false,
            });
            self.wheel.check_at(device, now + STALE_AFTER);
        }
        device
    }

    fn deployment(&mut self, name: &str) -> u32 {
        let deployment = self.deployment_names.number(name);
        assert!(deployment < DEPLOYMENTS, "an operator has fewer than {DEPLOYMENTS} names of deployments");
        if deployment as usize == self.deployments.len() {
            self.deployments.push(Deployment::default());
        }
        deployment
    }

    fn labels_of(&self, device: u32) -> &[Pair] {
        let Device { labels, label_count, .. } = self.devices[device as usize];
        &self.labels[labels as usize..labels as usize + usize::from(label_count)]
    }

    fn describe(&mut self, id: &str, (stamp, floor): (Stamp, u32), labels: Option<&Labels>) -> Applied {
        let device = self.device(id);
        let known = self.devices[device as usize].info;
        if stamp <= known {
            return if stamp == known { Applied::Same } else { Applied::Old };
        }
        self.devices[device as usize].info = stamp;
        self.raise_floor(device, floor);
        self.relabel(device, labels);
        Applied::New
    }

    fn raise_floor(&mut self, device: u32, floor: u32) {
        if floor <= self.records.floor(device) {
            return;
        }
        self.records.set_floor(device, floor);
        let is_void = |record: &Record| record.stamp.epoch < floor && record.phase != Phase::Removed;
        let void: SmallVec<[Record; 8]> = self.records.of(device).filter(is_void).collect();
        for record in void {
            self.errors.forget(record.deployment, device);
            self.replace(device, record, Record { phase: Phase::Removed, ..record });
        }
    }

    fn relabel(&mut self, device: u32, labels: Option<&Labels>) {
        let old: SmallVec<[Pair; 8]> = self.labels_of(device).into();
        let was_member = self.devices[device as usize].is_member;
        let new: SmallVec<[Pair; 8]> =
            labels.into_iter().flatten().map(|(key, value)| self.index.pair(key, value)).collect();
        self.index.count(&old, false);
        self.index.count(&new, true);
        self.store_labels(device, &new);
        self.devices[device as usize].is_member = labels.is_some();
        if self.is_loading {
            return;
        }
        let matching = |index: &Index, labels: &[Pair], is_member: bool| {
            if is_member { index.matching(labels) } else { SmallVec::new() }
        };
        let before = matching(&self.index, &old, was_member);
        let after = matching(&self.index, &new, labels.is_some());
        for deployment in before.iter().filter(|deployment| after.binary_search(deployment).is_err()) {
            self.set_matched(device, *deployment, false);
        }
        for deployment in after.iter().filter(|deployment| before.binary_search(deployment).is_err()) {
            self.set_matched(device, *deployment, true);
        }
    }

    fn store_labels(&mut self, device: u32, new: &[Pair]) {
        /// Labels are moved together only if this many are unused.
        const WORTHWHILE: usize = 1 << 16;
        let held = &mut self.devices[device as usize];
        self.unused_labels += usize::from(held.label_count);
        held.labels = u32::try_from(self.labels.len()).expect("4 billion labels do not fit into the operator");
        held.label_count = u8::try_from(new.len()).expect("a device has at most 64 labels");
        self.labels.extend_from_slice(new);
        if self.unused_labels >= WORTHWHILE && self.unused_labels * 2 > self.labels.len() {
            let mut together = Vec::with_capacity(self.labels.len() - self.unused_labels);
            for device in &mut self.devices {
                let first = device.labels as usize;
                let labels = &self.labels[first..first + usize::from(device.label_count)];
                device.labels = u32::try_from(together.len()).expect("there are fewer than before");
                together.extend_from_slice(labels);
            }
            (self.labels, self.unused_labels) = (together, 0);
        }
    }

    fn define(&mut self, name: &str, selector: Option<&Selector>, is_once: bool) -> Applied {
        let deployment = self.deployment(name);
        self.index.file(deployment, selector);
        self.touch(deployment);
        if self.deployments[deployment as usize].is_once != is_once {
            self.recount(deployment, |state| state.is_once = is_once);
        }
        if self.is_loading {
            return Applied::New;
        }
        for device in 0..self.records.devices.len() {
            let matches =
                self.devices[device as usize].is_member && self.index.matches(deployment, self.labels_of(device));
            let was = self.records.get(device, deployment).is_some_and(|record| record.matched);
            if matches != was {
                self.set_matched(device, deployment, matches);
            } else if matches {
                // Its targets may have changed.
                self.reassign(device);
            }
        }
        Applied::New
    }

    fn set_matched(&mut self, device: u32, deployment: u32, matched: bool) {
        let record = self.records.get(device, deployment).unwrap_or_else(|| Record::new(deployment));
        self.replace(device, record, Record { matched, ..record });
        self.reassign(device);
    }

    fn report(
        &mut self,
        (device, deployment): (&str, &str),
        (stamp, term): (Stamp, u64),
        (phase, at, error): (Phase, Timestamp, Option<&str>),
    ) -> Applied {
        let device = self.device(device);
        if stamp.epoch < self.records.floor(device) {
            return Applied::Old;
        }
        let number = self.deployment_names.get(deployment);
        let record = match number.and_then(|number| self.records.get(device, number)) {
            Some(record) => record,
            None if !self.has_room(device) => return Applied::Refused,
            None => Record::new(number.unwrap_or_else(|| self.deployment(deployment))),
        };
        if stamp <= record.stamp {
            return if stamp == record.stamp { Applied::Same } else { Applied::Old };
        }
        self.set_term((device, record.deployment), &record, term);
        let change = Change { at, device, phase, error: error.map(Into::into) };
        if record.phase == Phase::Failed || phase == Phase::Failed {
            self.errors.set(record.deployment, &change);
            if record.matched {
                // The last error of a failing device is shown, whether a counter changes or not.
                self.touch(record.deployment);
            }
        }
        if record.matched && record.phase != phase && self.has_right(device, record.deployment) {
            self.deployments[record.deployment as usize].changes.note(change);
        }
        self.replace(device, record, Record { stamp, phase, ..record });
        Applied::New
    }

    /// Whether a device may have one more record that no selector asks for.
    fn has_room(&self, device: u32) -> bool {
        let records = self.records.of(device);
        records.len() < LEGROOM || records.len() < MOST && records.filter(|record| !record.matched).count() < LEGROOM
    }

    fn hear(&mut self, id: &str, digest: u64) -> Applied {
        let Some(device) = self.records.devices.get(id) else { return Applied::Refused };
        self.devices[device as usize].heard = Heard::at(self.wheel.now());
        if self.devices[device as usize].is_stale {
            self.set_stale(device, false);
            self.wheel.check_at(device, self.wheel.now() + STALE_AFTER);
        }
        if self.digest(id) == digest { Applied::Same } else { Applied::Differs }
    }

    fn set_stale(&mut self, device: u32, is_stale: bool) {
        let records: SmallVec<[Record; 8]> = self.records.of(device).collect();
        for record in &records {
            self.count(device, record, false);
        }
        self.devices[device as usize].is_stale = is_stale;
        self.restaled.push(device);
        for record in &records {
            self.count(device, record, true);
        }
    }

    /// Replaces a record, and moves the device from its earlier counter to the new one.
    fn replace(&mut self, device: u32, old: Record, new: Record) {
        if (old.matched, old.phase) != (new.matched, new.phase) {
            self.count(device, &old, false);
            self.count(device, &new, true);
        }
        self.records.set(device, new);
    }

    /// Adds a device to the counter of a record, or subtracts it.
    fn count(&mut self, device: u32, record: &Record, is_added: bool) {
        if !record.matched {
            return;
        }
        let slot = self.slot(device, record);
        let counter = &mut self.deployments[record.deployment as usize].counters[slot as usize];
        *counter = if is_added { *counter + 1 } else { *counter - 1 };
        self.touch(record.deployment);
    }

    /// The counter of a device that a deployment chooses.
    fn slot(&self, device: u32, record: &Record) -> Slot {
        match record.phase {
            _ if self.devices[device as usize].is_stale => Slot::Stale,
            _ if !self.has_right(device, record.deployment) => Slot::Unreported,
            Phase::Pending => Slot::Pending,
            Phase::Succeeded => Slot::Succeeded,
            Phase::Failed => Slot::Failed,
            Phase::Removed => Slot::Unreported,
        }
    }

    fn touch(&mut self, deployment: u32) {
        let state = &mut self.deployments[deployment as usize];
        if !std::mem::replace(&mut state.is_dirty, true) {
            self.dirty.push(deployment);
        }
    }
}
