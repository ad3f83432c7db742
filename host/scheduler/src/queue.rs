//! The indexed priority queue.
//!
//! Order: due time, then higher score, then least recently polled, then id. A target is registered once and queued at
//! most once. Every operation uses the target's slot, a small number; the id is hashed only where an operator or
//! another crate names a target.
//!
//! The queue is a 4-ary heap over a dense table of slots. Due time and score, which decide nearly every comparison, lie
//! in the heap's own array. Positions have a separate array, because sifting writes nothing else.
//!
//! `cargo bench -p scheduler` compares it with a binary heap without an index, a pairing heap, and a timing wheel
//! before a heap. The pairing heap pushes and updates faster and pops slower, and every target is popped as often as it
//! is pushed. The wheel is several times faster, but it knows the order only within the current tick, and a moved entry
//! leaves its old place behind until that tick comes. The scheduler needs the next due time at every step, and removes
//! targets by the thousand when settings change. The heap takes about an eighth of a whole step.

use hashbrown::HashTable;
use model::{Moment, TargetId};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

const ARITY: usize = 4;
/// The position of a target that is not queued.
const ABSENT: u32 = u32::MAX;

/// A registered target's number. It is reused after the target is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    /// Returns the number as an index into tables outside the queue.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A queued target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The slot of the target.
    pub slot: Slot,
    /// The time at which the target is to be polled.
    pub due: Moment,
    /// Of two targets with the same due time, the one with the higher score goes first. In [0, 1].
    pub score: f32,
    /// Of two targets with the same score, the one polled longer ago goes first.
    pub last_polled: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    due: Moment,
    slot: u32,
    score: f32,
}

#[derive(Debug)]
struct Registered {
    id: TargetId,
    last_polled: Moment,
}

/// Targets in the order in which they are to be polled.
#[derive(Debug, Default)]
pub struct Queue {
    heap: Vec<Node>,
    positions: Vec<u32>,
    registered: Vec<Option<Registered>>,
    free: Vec<u32>,
    by_id: HashTable<u32>,
    hasher: foldhash::fast::FixedState,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty queue with capacity for `targets`.
    pub fn with_capacity(targets: usize) -> Self {
        Self {
            heap: Vec::with_capacity(targets),
            positions: Vec::with_capacity(targets),
            registered: Vec::with_capacity(targets),
            by_id: HashTable::with_capacity(targets),
            ..Self::default()
        }
    }

    /// Returns the number of queued targets.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns true if no target is queued.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Registers a target and returns its slot. Returns the existing slot if the target is already registered.
    pub fn register(&mut self, id: &TargetId) -> Slot {
        if let Some(slot) = self.slot(id) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(self.registered.len() as u32);
        let registered = Some(Registered { id: id.clone(), last_polled: Moment::START });
        match self.registered.get_mut(slot as usize) {
            Some(place) => *place = registered,
            None => {
                self.registered.push(registered);
                self.positions.push(ABSENT);
            }
        }
        let (hasher, all) = (&self.hasher, &self.registered);
        let rehash = |slot: &u32| hasher.hash_one(id_of(all, *slot).as_str());
        self.by_id.insert_unique(hasher.hash_one(id.as_str()), slot, rehash);
        Slot(slot)
    }

    /// Returns the slot of a registered target.
    pub fn slot(&self, id: &TargetId) -> Option<Slot> {
        let hash = self.hasher.hash_one(id.as_str());
        self.by_id.find(hash, |slot| id_of(&self.registered, *slot) == id).map(|slot| Slot(*slot))
    }

    /// Returns the id of the target with this slot.
    ///
    /// # Panics
    /// If no target has the slot.
    pub fn id(&self, slot: Slot) -> &TargetId {
        id_of(&self.registered, slot.0)
    }

    /// Removes a target and frees its slot.
    pub fn forget(&mut self, slot: Slot) {
        self.remove(slot);
        let hash = self.hasher.hash_one(self.id(slot).as_str());
        if let Ok(found) = self.by_id.find_entry(hash, |held| *held == slot.0) {
            found.remove();
        }
        self.registered[slot.index()] = None;
        self.free.push(slot.0);
    }

    /// Queues a target. A target that is already queued moves to its new position.
    pub fn push(&mut self, entry: Entry) {
        let Entry { slot: Slot(slot), due, score, last_polled } = entry;
        let registered = self.registered[slot as usize].as_mut().expect("a queued slot is registered");
        registered.last_polled = last_polled;
        let node = Node { due, slot, score };
        let position = match self.positions[slot as usize] {
            ABSENT => {
                self.heap.push(node);
                return self.sift_up(self.heap.len() - 1, node);
            }
            position => position as usize,
        };
        let earlier = position > 0 && self.before(&node, &self.heap[(position - 1) / ARITY]);
        if earlier { self.sift_up(position, node) } else { self.sift_down(position, node) }
    }

    /// Returns the first entry.
    pub fn peek(&self) -> Option<Entry> {
        self.heap.first().map(|node| self.entry(node))
    }

    /// Returns the due time of the first entry.
    pub fn next_due(&self) -> Option<Moment> {
        self.heap.first().map(|node| node.due)
    }

    /// Removes and returns the first entry.
    pub fn pop(&mut self) -> Option<Entry> {
        let first = self.entry(self.heap.first()?);
        self.take(0);
        Some(first)
    }

    /// Removes and returns at most `limit` entries due at `now` or before, in order.
    pub fn pop_due(&mut self, now: Moment, limit: usize) -> Vec<Entry> {
        let mut due = Vec::new();
        while due.len() < limit && self.next_due().is_some_and(|next| next <= now) {
            due.extend(self.pop());
        }
        due
    }

    /// Returns at most `limit` entries due at `now` or before, in order, without removing them.
    ///
    /// Walks the heap from its root and visits a node's children only after the node itself was returned.
    pub fn peek_due(&self, now: Moment, limit: usize) -> Vec<Entry> {
        let mut border = BinaryHeap::new();
        let mut due = Vec::new();
        if !self.heap.is_empty() {
            border.push(Next { queue: self, position: 0 });
        }
        while due.len() < limit {
            let Some(Next { position, .. }) = border.pop() else { break };
            if self.heap[position].due > now {
                break;
            }
            due.push(self.entry(&self.heap[position]));
            border.extend(self.children(position).map(|position| Next { queue: self, position }));
        }
        due
    }

    /// Returns the number of entries due at `now` or before.
    pub fn count_due(&self, now: Moment) -> usize {
        let mut open = vec![0];
        let mut count = 0;
        while let Some(position) = open.pop() {
            if self.heap.get(position).is_some_and(|node| node.due <= now) {
                count += 1;
                open.extend(self.children(position));
            }
        }
        count
    }

    /// Returns a target's entry; `None` if the target is not queued.
    pub fn get(&self, slot: Slot) -> Option<Entry> {
        let position = *self.positions.get(slot.index())?;
        self.heap.get(position as usize).map(|node| self.entry(node))
    }

    /// Removes a target from the queue. Returns true if it was queued.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let position = self.positions[slot.index()];
        let queued = position != ABSENT;
        if queued {
            self.take(position as usize);
        }
        queued
    }

    fn take(&mut self, position: usize) {
        let node = self.heap.swap_remove(position);
        self.positions[node.slot as usize] = ABSENT;
        let Some(&moved) = self.heap.get(position) else { return };
        if position > 0 && self.before(&moved, &self.heap[(position - 1) / ARITY]) {
            self.sift_up(position, moved);
        } else {
            self.sift_down(position, moved);
        }
    }

    fn entry(&self, node: &Node) -> Entry {
        Entry { slot: Slot(node.slot), due: node.due, score: node.score, last_polled: self.last_polled(node) }
    }

    fn last_polled(&self, node: &Node) -> Moment {
        self.registered[node.slot as usize].as_ref().map(|held| held.last_polled).unwrap_or_default()
    }

    fn children(&self, position: usize) -> std::ops::Range<usize> {
        ARITY * position + 1..(ARITY * position + 1 + ARITY).min(self.heap.len())
    }

    #[inline]
    fn before(&self, a: &Node, b: &Node) -> bool {
        a.due < b.due || (a.due == b.due && self.compare_ties(a, b) == Ordering::Less)
    }

    #[cold]
    fn compare_ties(&self, a: &Node, b: &Node) -> Ordering {
        let last_polled = || self.last_polled(a).cmp(&self.last_polled(b));
        let ids = || id_of(&self.registered, a.slot).cmp(id_of(&self.registered, b.slot));
        b.score.total_cmp(&a.score).then_with(last_polled).then_with(ids)
    }

    fn sift_up(&mut self, mut position: usize, node: Node) {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if !self.before(&node, &self.heap[parent]) {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, node);
    }

    fn sift_down(&mut self, mut position: usize, node: Node) {
        loop {
            let children = self.children(position);
            let Some(mut first) = children.clone().next() else { break };
            for child in children.skip(1) {
                if self.before(&self.heap[child], &self.heap[first]) {
                    first = child;
                }
            }
            if !self.before(&self.heap[first], &node) {
                break;
            }
            self.place(position, self.heap[first]);
            position = first;
        }
        self.place(position, node);
    }

    #[inline]
    fn place(&mut self, position: usize, node: Node) {
        self.heap[position] = node;
        self.positions[node.slot as usize] = position as u32;
    }
}

fn id_of(registered: &[Option<Registered>], slot: u32) -> &TargetId {
    &registered[slot as usize].as_ref().expect("a slot in use is registered").id
}

/// A candidate for the next entry that [`Queue::peek_due`] returns; the greatest is the first to be polled.
struct Next<'a> {
    queue: &'a Queue,
    position: usize,
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let (own, other) = (&self.queue.heap[self.position], &self.queue.heap[other.position]);
        other.due.cmp(&own.due).then_with(|| self.queue.compare_ties(other, own))
    }
}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.position == other.position
    }
}

impl Eq for Next<'_> {}

#[cfg(test)]
mod tests;
