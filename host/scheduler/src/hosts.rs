//! Polls at a time for each host, and who waits for one.

use model::{Moment, TargetId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Slots and waiting lists by host name. A host is here only while somebody runs or waits.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    hosts: HashMap<Arc<str>, Host>,
}

#[derive(Debug, Default)]
struct Host {
    running: usize,
    /// Least recently polled first.
    waiting: BTreeSet<(Moment, TargetId)>,
}

impl Hosts {
    /// Whether `host` has a slot free.
    pub(crate) fn has_room(&self, host: &str, limit: usize) -> bool {
        self.hosts.get(host).is_none_or(|host| host.running < limit.max(1))
    }

    /// Takes a slot.
    pub(crate) fn enter(&mut self, host: &Arc<str>) {
        self.hosts.entry(host.clone()).or_default().running += 1;
    }

    /// Gives a slot back. Who of those waiting comes next.
    pub(crate) fn leave(&mut self, host: &str, limit: usize) -> Option<TargetId> {
        let held = self.hosts.get_mut(host)?;
        held.running = held.running.saturating_sub(1);
        self.next(host, limit)
    }

    /// Takes whoever comes next off the waiting list, when there is room.
    pub(crate) fn next(&mut self, host: &str, limit: usize) -> Option<TargetId> {
        let held = self.hosts.get_mut(host)?;
        let next = if held.running < limit.max(1) { held.waiting.pop_first().map(|(_, target)| target) } else { None };
        self.forget_idle(host);
        next
    }

    /// Puts a target on the waiting list.
    pub(crate) fn wait(&mut self, host: &Arc<str>, last_polled: Moment, target: TargetId) {
        self.hosts.entry(host.clone()).or_default().waiting.insert((last_polled, target));
    }

    /// Takes a target off the waiting list.
    pub(crate) fn give_up(&mut self, host: &str, last_polled: Moment, target: &TargetId) {
        if let Some(held) = self.hosts.get_mut(host) {
            held.waiting.remove(&(last_polled, target.clone()));
            self.forget_idle(host);
        }
    }

    /// Everybody who may go now that the limit is `limit`, in the order of their hosts' names.
    pub(crate) fn released(&mut self, limit: usize) -> Vec<TargetId> {
        let mut names: Vec<Arc<str>> = self.hosts.keys().cloned().collect();
        names.sort_unstable();
        let mut released = Vec::new();
        for name in names {
            if let Some(host) = self.hosts.get_mut(&name) {
                for _ in host.running..limit.max(1) {
                    released.extend(host.waiting.pop_first().map(|(_, target)| target));
                }
            }
            self.forget_idle(&name);
        }
        released
    }

    /// How many targets wait for a host.
    pub(crate) fn waiting(&self) -> usize {
        self.hosts.values().map(|host| host.waiting.len()).sum()
    }

    fn forget_idle(&mut self, host: &str) {
        if self.hosts.get(host).is_some_and(|host| host.running == 0 && host.waiting.is_empty()) {
            self.hosts.remove(host);
        }
    }
}
