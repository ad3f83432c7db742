//! The inputs of the aggregator, and the aggregate of a deployment.

use crate::{Labels, Phase, Selector, Stamp};
use model::Timestamp;

/// Something that arrived.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A device describes itself.
    Info {
        /// The device's id.
        device: &'a str,
        /// The record's place among what the agent said.
        stamp: Stamp,
        /// States of earlier epochs are void.
        floor: u32,
        /// The labels; `None` if the device left the fleet.
        labels: Option<&'a Labels>,
    },
    /// A device reports the state of a deployment.
    State {
        /// The device's id.
        device: &'a str,
        /// The deployment's name.
        deployment: &'a str,
        /// The record's place among what the agent said.
        stamp: Stamp,
        /// The phase.
        phase: Phase,
        /// The time of the change. The caller limits it to the present, because an agent's clock may be ahead.
        at: Timestamp,
        /// The last error.
        error: Option<&'a str>,
        /// The term of the lease under which the device polls; 0 for a deployment that needs none.
        term: u64,
    },
    /// A device lives, and its states have this sum of [`crate::digest`].
    Heartbeat {
        /// The device's id.
        device: &'a str,
        /// The digest.
        digest: u64,
    },
    /// A deployment is made or changed, or is deleted if it has no selector.
    Deployment {
        /// The deployment's name.
        name: &'a str,
        /// The devices that it is for.
        selector: Option<&'a Selector>,
        /// Whether only the holder of its lease counts.
        is_once: bool,
    },
    /// The lease of a deployment has an owner. Reports of other devices, and those of other terms, do not count.
    Lease {
        /// The deployment's name.
        deployment: &'a str,
        /// The owner's id; `None` if it gave the lease up.
        owner: Option<&'a str>,
        /// The term.
        term: u64,
    },
}

/// The effect of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is newer than what was known.
    New,
    /// It is known.
    Same,
    /// Something newer is known, or it is void.
    Old,
    /// The device has too many records, or the device of a heartbeat is unknown.
    Refused,
    /// The operator does not hold what the device has published: a record is missing or on its way.
    Differs,
}

/// A change of a device's phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The time by the device's clock.
    pub at: Timestamp,
    /// The device's id.
    pub device: String,
    /// The phase since then.
    pub phase: Phase,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// The devices of a deployment. `pending`, `succeeded`, `failed`, `unreported` and `stale` add up to `matched`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// Devices that the selector chooses.
    pub matched: u32,
    /// Devices that have not polled all targets.
    pub pending: u32,
    /// Devices without an unhealthy target.
    pub succeeded: u32,
    /// Devices with an unhealthy target.
    pub failed: u32,
    /// Devices that have not reported this deployment.
    pub unreported: u32,
    /// Devices that were not heard for [`crate::STALE_AFTER`]; they count in no phase, because theirs is not known.
    pub stale: u32,
    /// The device that polls a deployment which one device polls at a time, and its term.
    pub holder: Option<(String, u64)>,
    /// The latest failure, also if it is over.
    pub last_error: Option<Happened>,
    /// Devices that fail now and what they last reported, the latest first, at most ten.
    pub failing: Vec<Happened>,
    /// The latest changes of phases, newest first, at most ten.
    pub recent: Vec<Happened>,
}

impl Aggregate {
    /// Returns why a device fails now; if that is not known, the latest failure.
    pub fn reason(&self) -> Option<&Happened> {
        self.failing.first().or(self.last_error.as_ref())
    }
}

impl Happened {
    /// Returns the device, and the error if there is one.
    pub fn why(&self) -> String {
        match &self.error {
            Some(error) => format!("{}: {error}", self.device),
            None => self.device.clone(),
        }
    }
}

/// A deployment whose aggregate changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The deployment's name.
    pub deployment: String,
    /// Its present aggregate.
    pub aggregate: Aggregate,
}
