//! Polls at a time for each host, and who waits for one.

use crate::queue::Slot;
use model::{Moment, TargetId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Hosts of which nobody runs or waits are looked for when there are this many.
const FEW: usize = 1024;

/// Slots and waiting lists by host name.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    hosts: HashMap<Arc<str>, Host, foldhash::fast::FixedState>,
    waiting: usize,
    /// When there are so many hosts, the idle ones are forgotten; at least twice as many as were busy the last time.
    prune_at: usize,
}

#[derive(Debug, Default)]
struct Host {
    running: usize,
    /// Least recently polled first.
    waiting: BTreeSet<Waiting>,
}

/// Who waits: last polled, id, slot.
pub(crate) type Waiting = (Moment, TargetId, Slot);

impl Hosts {
    /// Whether `host` has a slot free.
    pub(crate) fn has_room(&self, host: &str, limit: usize) -> bool {
        self.running(host) < limit.max(1)
    }

    /// Polls of `host` under way.
    pub(crate) fn running(&self, host: &str) -> usize {
        self.hosts.get(host).map_or(0, |host| host.running)
    }

    /// Takes a slot.
    pub(crate) fn enter(&mut self, host: &Arc<str>) {
        self.host(host).running += 1;
    }

    fn host(&mut self, name: &Arc<str>) -> &mut Host {
        if self.hosts.len() >= self.prune_at.max(FEW) && !self.hosts.contains_key(name) {
            self.hosts.retain(|_, host| host.running > 0 || !host.waiting.is_empty());
            self.prune_at = 2 * self.hosts.len();
        }
        self.hosts.entry(name.clone()).or_default()
    }

    /// Gives a slot back. Who of those waiting comes next.
    pub(crate) fn leave(&mut self, host: &str, limit: usize) -> Option<Slot> {
        let held = self.hosts.get_mut(host)?;
        held.running = held.running.saturating_sub(1);
        self.next(host, limit)
    }

    /// Takes whoever comes next off the waiting list, when there is room.
    pub(crate) fn next(&mut self, host: &str, limit: usize) -> Option<Slot> {
        let held = self.hosts.get_mut(host)?;
        let next = if held.running < limit.max(1) { held.waiting.pop_first() } else { None };
        next.map(|(.., slot)| {
            self.waiting -= 1;
            slot
        })
    }

    /// Puts a target on the waiting list.
    pub(crate) fn wait(&mut self, host: &Arc<str>, waiting: Waiting) {
        let more = self.host(host).waiting.insert(waiting);
        self.waiting += usize::from(more);
    }

    /// Takes a target off the waiting list.
    pub(crate) fn give_up(&mut self, host: &str, waiting: &Waiting) {
        let Some(held) = self.hosts.get_mut(host) else { return };
        self.waiting -= usize::from(held.waiting.remove(waiting));
    }

    /// Everybody who may go now that the limit is `limit`, in the order of their hosts' names.
    pub(crate) fn released(&mut self, limit: usize) -> Vec<Slot> {
        let waited_for = self.hosts.iter().filter(|(_, host)| !host.waiting.is_empty());
        let mut names: Vec<Arc<str>> = waited_for.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        let mut released = Vec::new();
        for name in names {
            let room = limit.max(1).saturating_sub(self.running(&name));
            released.extend((0..room).map_while(|_| self.next(&name, limit)));
        }
        released
    }

    /// How many targets wait for a host.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Queue;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against one list for each host that is searched by hand.
        #[test]
        fn behaves_like_plain_lists(ops in proptest::collection::vec((0u8..4, 0u8..2, 0u8..9, 1usize..4), 0..120)) {
            let mut queue = Queue::new();
            let mut hosts = Hosts::default();
            let mut model: BTreeMap<u8, (usize, Vec<Waiting>)> = BTreeMap::new();
            for (op, host, target, limit) in ops {
                let name: Arc<str> = format!("h{host}").into();
                let id = TargetId::new(&format!("t{target}")).unwrap();
                let slot = queue.register(&id);
                let waiting = (Moment::from_nanos(i64::from(target % 3)), id, slot);
                let (running, list) = model.entry(host).or_default();
                let first = |list: &mut Vec<Waiting>| {
                    list.sort();
                    if list.is_empty() { None } else { Some(list.remove(0).2) }
                };
                match op {
                    0 => {
                        prop_assert_eq!(hosts.has_room(&name, limit), *running < limit);
                        hosts.enter(&name);
                        *running += 1;
                    }
                    1 => {
                        let known = *running > 0 || !list.is_empty();
                        *running = running.saturating_sub(1);
                        let next = if known && *running < limit { first(list) } else { None };
                        prop_assert_eq!(hosts.leave(&name, limit), next);
                    }
                    2 => {
                        hosts.wait(&name, waiting.clone());
                        if !list.contains(&waiting) {
                            list.push(waiting);
                        }
                    }
                    _ => {
                        hosts.give_up(&name, &waiting);
                        list.retain(|held| *held != waiting);
                    }
                }
                prop_assert_eq!(hosts.waiting(), model.values().map(|(_, list)| list.len()).sum::<usize>());
            }
        }
    }
}
