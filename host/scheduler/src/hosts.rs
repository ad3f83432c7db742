//! The limit on concurrent polls per host, and the targets that wait for a slot.

use crate::queue::Slot;
use model::{Moment, TargetId};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Idle hosts are pruned once the table reaches this size.
const FEW: usize = 1024;

/// Slots and waiting lists by host name.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    hosts: HashMap<Arc<str>, Host, foldhash::fast::FixedState>,
    waiting: usize,
    /// Idle hosts are pruned when the table reaches this size; twice the number of hosts left by the last pruning.
    prune_at: usize,
}

#[derive(Debug, Default)]
struct Host {
    running: usize,
    /// Running polls of targets whose last poll was slow or failed.
    doubtful: usize,
    /// Waiting targets, least recently polled first.
    waiting: BTreeSet<Waiting>,
    /// Waiting targets whose last poll was slow or failed, least recently polled first. They share half of the slots.
    doubting: BTreeSet<Waiting>,
}

impl Host {
    /// Returns true if a target may be polled; `doubtful` if its last poll was slow or failed.
    fn has_room(&self, limit: usize, doubtful: bool) -> bool {
        let limit = limit.max(1);
        self.running < limit && !(doubtful && self.doubtful >= (limit / 2).max(1))
    }

    /// Removes the next target from the waiting lists if a slot is free.
    fn next(&mut self, limit: usize) -> Option<Slot> {
        let plain = self.waiting.first().filter(|_| self.has_room(limit, false));
        let doubtful = self.doubting.first().filter(|_| self.has_room(limit, true));
        let next = match (plain, doubtful) {
            (Some(plain), Some(doubtful)) if doubtful < plain => self.doubting.pop_first(),
            (None, Some(_)) => self.doubting.pop_first(),
            (Some(_), _) => self.waiting.pop_first(),
            (None, None) => None,
        };
        next.map(|(.., slot)| slot)
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.doubting.is_empty()
    }
}

/// A waiting target: last polled, id, slot.
pub(crate) type Waiting = (Moment, TargetId, Slot);

impl Hosts {
    /// Returns true if `host` has a free slot for a target; `doubtful` if the target's last poll was slow or failed.
    pub(crate) fn has_room(&self, host: &str, limit: usize, doubtful: bool) -> bool {
        self.hosts.get(host).is_none_or(|host| host.has_room(limit, doubtful))
    }

    /// Returns the number of polls of `host` in flight.
    pub(crate) fn running(&self, host: &str) -> usize {
        self.hosts.get(host).map_or(0, |host| host.running)
    }

    /// Takes a slot of `host`.
    pub(crate) fn enter(&mut self, host: &Arc<str>, doubtful: bool) {
        let host = self.host(host);
        host.running += 1;
        host.doubtful += usize::from(doubtful);
    }

    fn host(&mut self, name: &Arc<str>) -> &mut Host {
        if self.hosts.len() >= self.prune_at.max(FEW) && !self.hosts.contains_key(name) {
            self.hosts.retain(|_, host| !host.is_idle());
            self.prune_at = 2 * self.hosts.len();
        }
        self.hosts.entry(name.clone()).or_default()
    }

    /// Frees a slot of `host`. The caller passes it on to the next waiting target.
    pub(crate) fn leave(&mut self, host: &str, doubtful: bool) {
        let Some(held) = self.hosts.get_mut(host) else { return };
        held.running = held.running.saturating_sub(1);
        held.doubtful = held.doubtful.saturating_sub(usize::from(doubtful));
    }

    /// Removes the next target from the waiting list of `host` if a slot is free.
    pub(crate) fn next(&mut self, host: &str, limit: usize) -> Option<Slot> {
        let next = self.hosts.get_mut(host)?.next(limit);
        self.waiting -= usize::from(next.is_some());
        next
    }

    /// Like [`Self::next`], but only for targets whose last poll was fast and successful.
    pub(crate) fn next_healthy(&mut self, host: &str, limit: usize) -> Option<Slot> {
        let held = self.hosts.get_mut(host).filter(|host| host.has_room(limit, false))?;
        let (.., slot) = held.waiting.pop_first()?;
        self.waiting -= 1;
        Some(slot)
    }

    /// Adds a target to the waiting list of `host`.
    pub(crate) fn wait(&mut self, host: &Arc<str>, waiting: Waiting, doubtful: bool) {
        let host = self.host(host);
        let list = if doubtful { &mut host.doubting } else { &mut host.waiting };
        let more = list.insert(waiting);
        self.waiting += usize::from(more);
    }

    /// Removes a target from the waiting list of `host`.
    pub(crate) fn give_up(&mut self, host: &str, waiting: &Waiting) {
        let Some(held) = self.hosts.get_mut(host) else { return };
        self.waiting -= usize::from(held.waiting.remove(waiting) || held.doubting.remove(waiting));
    }

    /// Removes all waiting targets that a higher `limit` admits, in the order of their host names.
    pub(crate) fn released(&mut self, limit: usize) -> Vec<Slot> {
        let waited_for = self.hosts.iter().filter(|(_, host)| !host.waiting.is_empty() || !host.doubting.is_empty());
        let mut names: Vec<Arc<str>> = waited_for.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        let mut released = Vec::new();
        for name in names {
            let room = limit.max(1).saturating_sub(self.running(&name));
            released.extend((0..room).map_while(|_| self.next(&name, limit)));
        }
        released
    }

    /// Returns the number of targets that wait for a host.
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
        /// Compares with one plain list per host that is searched linearly.
        #[test]
        fn behaves_like_plain_lists(ops in proptest::collection::vec((0u8..4, 0u8..2, 0u8..9, 1usize..6), 0..120)) {
            let mut queue = Queue::new();
            let mut hosts = Hosts::default();
            let mut model: BTreeMap<u8, ([usize; 2], Vec<Waiting>)> = BTreeMap::new();
            // Targets with even numbers were slow at the last poll.
            let doubtful = |waiting: &Waiting| waiting.1.as_str().ends_with(['0', '2', '4', '6', '8']);
            for (op, host, target, limit) in ops {
                let name: Arc<str> = format!("h{host}").into();
                let id = TargetId::new(&format!("t{target}")).unwrap();
                let slot = queue.register(&id);
                let waiting = (Moment::from_nanos(i64::from(target % 3)), id, slot);
                let (running, list) = model.entry(host).or_default();
                let slow = doubtful(&waiting);
                let room = |running: &[usize; 2], slow: bool| {
                    running[0] + running[1] < limit && (!slow || running[1] < (limit / 2).max(1))
                };
                match op {
                    0 => {
                        prop_assert_eq!(hosts.has_room(&name, limit, slow), room(running, slow));
                        hosts.enter(&name, slow);
                        running[usize::from(slow)] += 1;
                    }
                    1 if running[usize::from(slow)] > 0 => {
                        running[usize::from(slow)] -= 1;
                        list.sort();
                        let next = list.iter().position(|waiting| room(running, doubtful(waiting)));
                        hosts.leave(&name, slow);
                        prop_assert_eq!(hosts.next(&name, limit), next.map(|place| list.remove(place).2));
                    }
                    2 => {
                        hosts.wait(&name, waiting.clone(), slow);
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
