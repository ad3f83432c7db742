//! The memory of a Mail Gateway from one poll to the next, in addition to the memory that all Proxmox plugins have.

use proxmox::{Expiring, ExpiringMap, PluginMemory, Sections};
use serde::{Deserialize, Serialize};

/// The plugin's part of the memory.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Tickets that need not be renewed yet, by name.
    pub fresh: ExpiringMap<()>,
    /// Why the list of the cluster did not come in time. While it is valid, each node is requested separately.
    pub cluster_hung: Option<Expiring<String>>,
}

impl PluginMemory for Memory {
    const SHED: &'static str = "when each ticket is renewed";

    fn purge(&mut self, now: u64) {
        self.fresh.purge(now);
        self.cluster_hung.take_if(|hung| hung.get(now).is_none());
    }

    fn shed(&mut self, _: &mut Sections) -> bool {
        self.fresh.clear()
    }
}
