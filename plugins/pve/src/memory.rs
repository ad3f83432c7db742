//! The memory of a cluster from one poll to the next, in addition to the memory that all Proxmox plugins have.

use proxmox::SortedMap;
use proxmox::{Expiring, ExpiringMap, PluginMemory, Sections};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The section with the names of guests, for when their node is offline: [`Names`].
pub(crate) const NAMES: &str = "names";

/// The plugin's part of the memory.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// IDs of guests that were expected to run at the previous poll, and whose state was known. For a guest that is
    /// newly expected it is not known whether it was running. In ascending order.
    pub watched: Vec<u64>,
    /// Guests of those that did not run, by ID.
    pub stopped: SortedMap<u64, Stopped>,
    /// Guests that are there although a task removed one with their ID: when that ended by the clock of the server, and
    /// since when both are listed, in seconds since 1970.
    #[serde(default)]
    pub replaced: SortedMap<u64, (f64, f64)>,
    /// Online nodes that report nothing about themselves, and since when, in seconds since 1970.
    pub silent: ExpiringMap<f64>,
    /// Nodes that did not answer in time and are not requested for a while, and why.
    pub backing_off: ExpiringMap<String>,
    /// Nodes that the node that was asked cannot reach, and why.
    pub unreachable: ExpiringMap<String>,
    /// HA services in recovery, and since when, in seconds since 1970.
    pub recovering: ExpiringMap<f64>,
    /// The path that answers for Ceph, if it is not `/cluster/ceph/status`.
    pub ceph_path: Option<Expiring<String>>,
    /// Whether guests are started with their nodes, by ID; only if a setting asks for it.
    pub onboot: Option<Expiring<SortedMap<u64, Onboot>>>,
}

impl PluginMemory for Memory {
    const SHED: &'static str = "names of guests, and which of them are started with their nodes";

    fn purge(&mut self, now: u64) {
        self.silent.purge(now);
        self.backing_off.purge(now);
        self.unreachable.purge(now);
        self.recovering.purge(now);
        self.ceph_path.take_if(|path| path.get(now).is_none());
        self.onboot.take_if(|onboot| onboot.get(now).is_none());
    }

    fn shed(&mut self, sections: &mut Sections) -> bool {
        let (names, onboot) = (sections.remove(NAMES), self.onboot.take().is_some());
        names || onboot
    }
}

/// A guest that is expected to run and did not at some poll, until it runs again. Field names are short in the
/// document: there may be thousands.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Stopped {
    /// When it was first seen stopped, in seconds since 1970.
    #[serde(rename = "s")]
    pub since: f64,
    /// The lock that holds it.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// Since when this lock, or no lock, holds it.
    #[serde(rename = "h")]
    pub held: f64,
    /// The user who stopped it on purpose, and when.
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub by: Option<(String, f64)>,
    /// Stops before this time explain nothing: the guest ran after them. 0 if it was stopped at its first check.
    #[serde(rename = "n")]
    pub not_before: f64,
    /// Whether the tasks of the guest's node were read, or need not be.
    #[serde(rename = "a")]
    pub asked: bool,
}

/// The names of all guests.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Names {
    pub guests: SortedMap<u64, GuestNames>,
    pub templates: BTreeSet<u64>,
}

/// The fields of a guest that `/cluster/resources` omits while its node is offline.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct GuestNames {
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// Whether a guest is started with its node.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Onboot {
    /// `None` if its configuration could not be read.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub onboot: Option<bool>,
    /// When its configuration was requested, in seconds since 1970.
    #[serde(rename = "a")]
    pub at: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn values_expire_by_themselves_and_stopped_guests_stay() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let stopped = Stopped { since: 1.5, lock: None, held: 1.5, by: None, not_before: 0.0, asked: false };
        let mut memory = Memory {
            watched: vec![100],
            stopped: SortedMap::from([(100, stopped.clone())]),
            ceph_path: Some(Expiring::new("/nodes/pve2/ceph/status".to_owned(), 0, hour)),
            onboot: Some(Expiring::new(SortedMap::new(), 0, minute)),
            ..Memory::default()
        };
        memory.backing_off.set("pve3", "it hangs".to_owned(), 0, minute);
        memory.purge(60_000);
        let text = serde_json::to_string(&memory).unwrap();
        let memory: Memory = serde_json::from_str(&text).unwrap();
        assert!(memory.backing_off.get("pve3", 0).is_none() && memory.onboot.is_none());
        assert!(memory.ceph_path.is_some());
        assert_eq!(memory.stopped[&100], stopped);
    }

    #[test]
    fn names_are_dropped_first() {
        let mut sections = Sections::default();
        sections.set(NAMES, &Names { guests: SortedMap::from([(100, GuestNames::default())]), ..Names::default() });
        let mut memory = Memory { watched: vec![100], ..Memory::default() };
        assert!(memory.shed(&mut sections) && !memory.shed(&mut sections));
        assert!(sections.get::<Names>(NAMES).guests.is_empty());
        assert_eq!(memory.watched, [100]);
    }
}
