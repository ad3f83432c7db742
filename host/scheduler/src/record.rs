//! The record of a plugin's faults, from which the scheduler decides on quarantine.

use crate::queue::Slot;
use model::{Moment, TargetId};
use std::collections::BTreeSet;

/// The faults of a kind's plugin.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Targets whose polls, the latest ones of the kind, ended in faults of the plugin.
    pub faulty: BTreeSet<TargetId>,
    /// Its quarantine, if it is in one.
    pub quarantine: Option<Quarantine>,
}

/// A quarantine.
#[derive(Debug)]
pub(crate) struct Quarantine {
    /// When the next probe may run.
    pub allowed: Moment,
    /// When a probe is chosen: then, or later if no target can be a probe before; `None` while none can.
    pub chosen: Option<Moment>,
    /// Targets that may be polled as probes.
    pub probes: BTreeSet<Slot>,
}

impl Quarantine {
    /// A quarantine whose first probe may run at `allowed`.
    pub(crate) fn until(allowed: Moment) -> Self {
        Self { allowed, chosen: Some(allowed), probes: BTreeSet::new() }
    }
}
