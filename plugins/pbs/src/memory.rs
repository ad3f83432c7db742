//! The memory of a Backup Server from one poll to the next, in addition to the memory that all Proxmox plugins have.

use proxmox::{ExpiringMap, PluginMemory, Sections};
use serde::{Deserialize, Serialize};

/// The plugin's part of the memory.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Datastores that did not answer in time and are not requested for a while, and why.
    pub backing_off: ExpiringMap<String>,
    /// Datastores whose snapshots are being listed, by name.
    pub walks: ExpiringMap<Walk>,
}

impl PluginMemory for Memory {
    const SHED: &'static str = "snapshots listed so far";

    fn purge(&mut self, now: u64) {
        self.backing_off.purge(now);
        self.walks.purge(now);
    }

    fn shed(&mut self, _: &mut Sections) -> bool {
        self.walks.clear()
    }
}

/// The results for the snapshots of one datastore so far.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Walk {
    /// Namespaces that are not listed yet.
    pub left: Vec<String>,
    /// All snapshots.
    pub all: usize,
    /// Snapshots that were verified, with any result.
    pub verified: usize,
    /// Snapshots that are damaged.
    pub damaged: usize,
    /// Snapshots that were verified with a result that is not known.
    #[serde(default)]
    pub unclear: usize,
    /// The names of some damaged snapshots.
    pub named: Vec<String>,
}
