//! The newest record of each device and deployment.
//!
//! Millions of devices have a few records each. One slab holds them all; a device has a place in it, which moves when
//! it outgrows it. Abandoned places are reused.

use crate::stamp::Stamp;
use model::Phase;

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
struct Place {
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
    slab: Vec<Packed>,
    places: Vec<Place>,
    /// Abandoned places by their capacity.
    free: Vec<Vec<u32>>,
}

/// The maximum number of records of a device. A place has 16 bits for it.
pub(super) const MOST: usize = 60_000;

impl Records {
    /// Adds a device without records. Its number is the count of devices before it.
    pub(super) fn add_device(&mut self) {
        self.places.push(Place::default());
    }

    /// The epoch before which a device's records are void.
    pub(super) fn floor(&self, device: u32) -> u32 {
        self.places[device as usize].floor
    }

    pub(super) fn set_floor(&mut self, device: u32, floor: u32) {
        self.places[device as usize].floor = floor;
    }

    /// The records of a device, in no order.
    pub(super) fn of(&self, device: u32) -> impl ExactSizeIterator<Item = Record> {
        self.packed(device).iter().map(|packed| packed.record())
    }

    fn packed(&self, device: u32) -> &[Packed] {
        &self.slab[self.places[device as usize].range()]
    }

    pub(super) fn get(&self, device: u32, deployment: u32) -> Option<Record> {
        self.packed(device).iter().find(|packed| packed.deployment() == deployment).map(|packed| packed.record())
    }

    /// Stores a record, or removes it if it says nothing.
    pub(super) fn set(&mut self, device: u32, record: Record) {
        let place = self.places[device as usize];
        let records = &mut self.slab[place.range()];
        let held = records.iter().position(|held| held.deployment() == record.deployment);
        match (held, record.is_needed()) {
            (Some(at), true) => records[at] = Packed::new(record),
            (Some(at), false) => {
                records.swap(at, usize::from(place.length) - 1);
                self.places[device as usize].length -= 1;
            }
            (None, true) => self.push(device, record),
            (None, false) => {}
        }
    }

    fn push(&mut self, device: u32, record: Record) {
        if self.places[device as usize].length == self.places[device as usize].capacity {
            self.grow(device);
        }
        let place = &mut self.places[device as usize];
        let end = place.range().end;
        place.length += 1;
        self.slab[end] = Packed::new(record);
    }

    fn grow(&mut self, device: u32) {
        let old = self.places[device as usize];
        // Most devices have one to four records.
        let capacity =
            if old.capacity < 4 { old.capacity + 1 } else { old.capacity.saturating_add(old.capacity.div_ceil(2)) };
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
        self.places[device as usize] = Place { offset, capacity, ..old };
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
            (0..4).for_each(|_| records.add_device());
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
