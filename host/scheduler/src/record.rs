//! The record of a plugin's faults; the scheduler uses it to decide on quarantine.

use crate::queue::Slot;
use model::{Moment, TargetId};
use std::collections::BTreeSet;

/// The faults of the plugin of a kind.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Targets whose polls ended in a plugin fault since the last poll of the kind that did not.
    pub faulty: BTreeSet<TargetId>,
    /// `None` if the plugin is not in quarantine.
    pub quarantine: Option<Quarantine>,
}

/// The quarantine of a plugin.
#[derive(Debug)]
pub(crate) struct Quarantine {
    /// When the next probe may run.
    pub allowed: Moment,
    /// When a probe is chosen: at `allowed`, or later if no target can be a probe before; `None` while no target can be
    /// one.
    pub chosen: Option<Moment>,
    /// Targets that may be polled as probes.
    pub probes: BTreeSet<Slot>,
}

impl Quarantine {
    /// Creates a quarantine whose first probe may run at `allowed`.
    pub(crate) fn until(allowed: Moment) -> Self {
        Self { allowed, chosen: Some(allowed), probes: BTreeSet::new() }
    }
}
