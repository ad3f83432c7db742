//! The description of a device.

use fleet::wire::{self, DeviceInfo, encode};
use fleet::{Labels, Stamp};
use std::collections::BTreeMap;

/// The description of a device.
#[derive(Clone, Debug)]
pub struct Description {
    /// The device's id.
    pub device: String,
    /// The labels that selectors match.
    pub labels: Labels,
    /// Facts for people.
    pub inventory: BTreeMap<String, String>,
    /// The version of the program.
    pub version: String,
}

impl Description {
    /// Checks that it can be sent.
    ///
    /// # Errors
    /// Which part breaks which rule.
    pub fn check(&self) -> Result<(), wire::WireError> {
        encode(&self.record(Stamp { epoch: 0, counter: 1 }, 0)).map(drop)
    }

    /// Returns a text that differs if the description does.
    pub fn text(&self) -> String {
        format!("{:?} {:?} {}", self.labels, self.inventory, self.version)
    }

    pub(crate) fn record(&self, Stamp { epoch, counter }: Stamp, floor: u32) -> DeviceInfo {
        DeviceInfo {
            stamp: (epoch, counter),
            floor,
            labels: self.labels.clone(),
            inventory: self.inventory.clone(),
            version: self.version.clone(),
        }
    }
}
