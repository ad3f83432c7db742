//! The deployments of a device, as the operator assigns them.

use super::{LARGEST_ASSIGNMENT, Record, WireError, name};
use model::Kind;
use serde::{Deserialize, Serialize};

/// The maximum size of a plugin in bytes.
pub const LARGEST_PLUGIN: u32 = 64 << 20;

/// The deployments of a device: `<device>` in the bucket of assignments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The term of the operator that wrote it. A device waits before it applies one of an earlier term than the last.
    pub term: u64,
    /// Every deployment that chooses the device.
    pub deployments: Vec<Assigned>,
    /// The operator's plugin files that serve kinds of these deployments.
    pub plugins: Vec<OfferedPlugin>,
}

/// A deployment as its devices receive it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assigned {
    /// The name.
    pub name: String,
    /// Grows with each change of the deployment.
    pub version: u64,
    /// The targets, each as JSON with the keys of the configuration file.
    pub targets: Vec<String>,
    /// Whether only the device with the lease polls.
    pub is_once: bool,
}

/// A plugin file that the operator has at the broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OfferedPlugin {
    /// The kind that it serves.
    pub kind: String,
    /// The SHA-256 of the file.
    pub digest: [u8; 32],
    /// The size of the file in bytes.
    pub size: u32,
}

impl Record for Assignment {
    const LARGEST: usize = LARGEST_ASSIGNMENT;
    /// The plugins are a field since version 3.
    const VERSION: u8 = 3;

    fn check(&self) -> Result<(), WireError> {
        self.deployments.iter().try_for_each(|assigned| name(&assigned.name))?;
        for OfferedPlugin { kind, size, .. } in &self.plugins {
            Kind::new(kind).map_err(|invalid| WireError::Kind(invalid.text))?;
            if *size > LARGEST_PLUGIN {
                return Err(WireError::TooLarge(*size as usize, LARGEST_PLUGIN as usize));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;

    #[test]
    fn an_assignment_survives_a_round_trip_and_its_plugins_are_checked() {
        let deployments =
            vec![Assigned { name: "dns".to_owned(), version: 9, targets: vec!["x".repeat(100_000)], is_once: true }];
        let plugin = |kind: &str, size| OfferedPlugin { kind: kind.to_owned(), digest: [7; 32], size };
        let with = |plugins| Assignment { term: 2, deployments: deployments.clone(), plugins };
        let assignment = with(vec![plugin("nas", 100_000)]);
        assert_eq!(decode::<Assignment>(&encode(&assignment).unwrap()).as_ref(), Ok(&assignment));
        assert!(encode(&with(vec![plugin("../nas", 1)])).is_err());
        assert!(encode(&with(vec![plugin("nas", LARGEST_PLUGIN + 1)])).is_err());
    }
}
