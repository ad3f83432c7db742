//! The newest record of each device and deployment.
//!
//! Millions of devices have a few records each. One slab holds them all; a device has a place in it, which moves when
//! it outgrows it. Abandoned places are reused.

use super::arena::{Arena, PREFETCHED};
use crate::stamp::Stamp;
use model::Phase;
use smallvec::SmallVec;
use std::hint::black_box;

/// The newest state of one deployment on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub deployment: u32,
    /// The newest record's stamp; the default if nothing was reported.
    pub stamp: Stamp,
    /// The reported phase; `Removed` if nothing valid was reported.
    pub phase: Phase,
    /// Whether the deployment's selector matches the device.
    pub matched: bool,
}

impl Record {
    pub(super) fn new(deployment: u32) -> Self {
        Self { deployment, stamp: Stamp::default(), phase: Phase::Removed, matched: false }
    }

    /// Whether it says something that a missing record does not.
    fn is_needed(&self) -> bool {
        self.matched || self.stamp != Stamp::default()
    }
}

/// A record in the slab. A large estate has millions of them, so the phase and the match share a word with the
/// deployment.
#[derive(Clone, Copy, Default)]
struct Packed {
    /// The deployment in 29 bits, the phase in 2, the match in 1.
    deployment_and_state: u32,
    epoch: u32,
    counter: u32,
}

/// The maximum number of deployments.
pub(super) const DEPLOYMENTS: u32 = 1 << 29;

impl Packed {
    fn new(record: Record) -> Self {
        let Record { deployment, stamp: Stamp { epoch, counter }, phase, matched } = record;
        Self { deployment_and_state: deployment << 3 | (phase as u32) << 1 | u32::from(matched), epoch, counter }
    }

    fn deployment(self) -> u32 {
        self.deployment_and_state >> 3
    }

    fn record(self) -> Record {
        Record {
            deployment: self.deployment(),
            stamp: Stamp { epoch: self.epoch, counter: self.counter },
            phase: Phase::ALL[(self.deployment_and_state >> 1 & 3) as usize],
            matched: self.deployment_and_state & 1 == 1,
        }
    }
}

/// The place of a device's records in the slab, and their floor, which is needed whenever one arrives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// Records of earlier epochs are void.
    floor: u32,
    offset: u32,
    length: u16,
    capacity: u16,
}

impl Place {
    fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..self.offset as usize + usize::from(self.length)
    }
}

/// The records of all devices.
#[derive(Default)]
pub(super) struct Records {
    /// The ids of the devices, with the places of their records.
    pub(super) devices: Arena<Place>,
    slab: Vec<Packed>,
    /// Abandoned places by their capacity.
    free: Vec<Vec<u32>>,
}

/// The maximum number of records of a device. A place has 16 bits for it.
pub(super) const MOST: usize = 60_000;

impl Records {
    /// The epoch before which a device's records are void.
    pub(super) fn floor(&self, device: u32) -> u32 {
        self.devices.value(device).floor
    }

    pub(super) fn set_floor(&mut self, device: u32, floor: u32) {
        self.devices.value_mut(device).floor = floor;
    }

    /// The records of a device, in no order.
    pub(super) fn of(&self, device: u32) -> impl ExactSizeIterator<Item = Record> {
        self.packed(device).iter().map(|packed| packed.record())
    }

    /// Reads what finding and changing records of these devices needs into the processor's caches. It has no other
    /// effect. In a large fleet, each read waits for the memory, and depends on the one before: here, those of many
    /// devices overlap.
    pub(super) fn prefetch<'a>(&self, devices: impl Iterator<Item = &'a str>) {
        let devices = self.devices.guess(devices);
        let places: SmallVec<[Place; PREFETCHED]> = devices.iter().map(|device| self.devices.value(*device)).collect();
        let ids = devices.iter().map(|device| self.devices.edges(*device));
        // Most devices have few records, which share a line of the cache.
        let records = places.iter().map(|place| self.slab.get(place.offset as usize).map(|packed| packed.counter));
        // The compiler must not leave out reads whose results nothing uses.
        for read in ids.zip(records) {
            black_box(read);
        }
    }

    fn packed(&self, device: u32) -> &[Packed] {
        &self.slab[self.devices.value(device).range()]
    }

    pub(super) fn get(&self, device: u32, deployment: u32) -> Option<Record> {
        self.packed(device).iter().find(|packed| packed.deployment() == deployment).map(|packed| packed.record())
    }

    /// Makes room for this number of records of a device that has none.
    pub(super) fn reserve(&mut self, device: u32, count: usize) {
        let capacity = u16::try_from(count).unwrap_or(u16::MAX);
        if capacity > self.devices.value(device).capacity {
            self.grow(device, capacity);
        }
    }

    /// Stores a record, or removes it if it says nothing.
    pub(super) fn set(&mut self, device: u32, record: Record) {
        let place = self.devices.value(device);
        let records = &mut self.slab[place.range()];
        let held = records.iter().position(|held| held.deployment() == record.deployment);
        match (held, record.is_needed()) {
            (Some(at), true) => records[at] = Packed::new(record),
            (Some(at), false) => {
                records.swap(at, usize::from(place.length) - 1);
                self.devices.value_mut(device).length -= 1;
            }
            (None, true) => self.push(device, record),
            (None, false) => {}
        }
    }

    fn push(&mut self, device: u32, record: Record) {
        let Place { length, capacity, .. } = self.devices.value(device);
        if length == capacity {
            // Most devices have one to four records.
            self.grow(device, if capacity < 4 { capacity + 1 } else { capacity.saturating_add(capacity.div_ceil(2)) });
        }
        let place = self.devices.value_mut(device);
        let end = place.range().end;
        place.length += 1;
        self.slab[end] = Packed::new(record);
    }

    /// Moves the records of a device to a place with room for this number.
    fn grow(&mut self, device: u32, capacity: u16) {
        let old = self.devices.value(device);
        let reused = self.free.get_mut(usize::from(capacity)).and_then(Vec::pop);
        let offset = reused.unwrap_or_else(|| {
            let offset = u32::try_from(self.slab.len()).expect("the slab has fewer than 2^32 records");
            self.slab.resize(self.slab.len() + usize::from(capacity), Packed::default());
            offset
        });
        self.slab.copy_within(old.range(), offset as usize);
        if old.capacity > 0 {
            let of_capacity = usize::from(old.capacity);
            if self.free.len() <= of_capacity {
                self.free.resize(of_capacity + 1, Vec::new());
            }
            self.free[of_capacity].push(old.offset);
        }
        *self.devices.value_mut(device) = Place { offset, capacity, ..old };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_packed_record_has_12_bytes_and_loses_nothing() {
        assert_eq!(size_of::<Packed>(), 12);
        for phase in Phase::ALL {
            for matched in [false, true] {
                let stamp = Stamp { epoch: u32::MAX, counter: 7 };
                let record = Record { deployment: DEPLOYMENTS - 1, stamp, phase, matched };
                assert_eq!(Packed::new(record).record(), record);
            }
        }
    }

    proptest! {
        #[test]
        fn the_slab_holds_what_a_map_holds(
            changes in prop::collection::vec((0_u32..4, 0_u32..40, any::<bool>(), 0_u32..3), 0..400),
        ) {
            let (mut records, mut map) = (Records::default(), BTreeMap::new());
            for device in 0..4 {
                assert_eq!(records.devices.number(&format!("device-{device}")), device);
            }
            for (device, deployment, matched, counter) in changes {
                let stamp = Stamp { epoch: 0, counter };
                let record = Record { matched, stamp, ..Record::new(deployment) };
                records.set(device, record);
                map.insert((device, deployment), record);
            }
            map.retain(|_, record: &mut Record| record.is_needed());
            for device in 0..4 {
                let mut held: Vec<Record> = records.of(device).collect();
                held.sort_by_key(|record| record.deployment);
                let expected: Vec<Record> = map.range((device, 0)..(device + 1, 0)).map(|(_, record)| *record).collect();
                prop_assert_eq!(held, expected);
            }
        }
    }
}
