//! The indexed priority queue.
//!
//! Order: due time, then higher score, then least recently polled, then id. A target is registered once and queued at
//! most once; its slot, a small number, is what every operation goes by, and the id is hashed only where a person or
//! another room names a target.
//!
//! A 4-ary heap over a dense table of slots. Due time and score, which decide nearly every comparison, lie in the heap's
//! own array; positions have an array of their own, because sifting writes nothing else.
//!
//! `cargo bench -p scheduler` measures it beside a binary heap without an index, a pairing heap, and a timing wheel before
//! a heap. The pairing heap pushes and updates faster and pops slower, and every target is popped as often as it is pushed.
//! The wheel does all of it in a fraction of the time, but it knows who comes first only within the tick that is on, and
//! whatever moves leaves its old place behind until that tick comes: the scheduler asks for the next due time at every
//! step, and takes targets out by the thousand when settings change. Of a whole step the heap is about an eighth.

use hashbrown::HashTable;
use model::{Moment, TargetId};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

const ARITY: usize = 4;
/// The position of a target that is not queued.
const ABSENT: u32 = u32::MAX;

/// A registered target's number. Given to another target once this one is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u32);

impl Slot {
    /// The number, for tables beside the queue.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One target's place in the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Whose.
    pub slot: Slot,
    /// When it is to run.
    pub due: Moment,
    /// Of two that are due at once, the higher goes first. 0 to 1.
    pub score: f32,
    /// Of two with one score, the one polled longer ago goes first.
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

/// Targets in the order in which they are to run.
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
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty queue with room for `targets`.
    pub fn with_capacity(targets: usize) -> Self {
        Self {
            heap: Vec::with_capacity(targets),
            positions: Vec::with_capacity(targets),
            registered: Vec::with_capacity(targets),
            by_id: HashTable::with_capacity(targets),
            ..Self::default()
        }
    }

    /// How many targets are queued.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is queued.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Gives a target its slot; the one it has when it is registered already.
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

    /// A registered target's slot.
    pub fn slot(&self, id: &TargetId) -> Option<Slot> {
        let hash = self.hasher.hash_one(id.as_str());
        self.by_id.find(hash, |slot| id_of(&self.registered, *slot) == id).map(|slot| Slot(*slot))
    }

    /// The target of a slot.
    ///
    /// # Panics
    /// When the slot is nobody's.
    pub fn id(&self, slot: Slot) -> &TargetId {
        id_of(&self.registered, slot.0)
    }

    /// Takes a target out and gives its slot back.
    pub fn forget(&mut self, slot: Slot) {
        self.remove(slot);
        let hash = self.hasher.hash_one(self.id(slot).as_str());
        if let Ok(found) = self.by_id.find_entry(hash, |held| *held == slot.0) {
            found.remove();
        }
        self.registered[slot.index()] = None;
        self.free.push(slot.0);
    }

    /// Queues a target; one that is queued already moves to its new place.
    pub fn push(&mut self, entry: Entry) {
        let Entry { slot: Slot(slot), due, score, last_polled } = entry;
        let registered = self.registered[slot as usize].as_mut().expect("a slot that is queued is registered");
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

    /// The entry that runs next.
    pub fn peek(&self) -> Option<Entry> {
        self.heap.first().map(|node| self.entry(node))
    }

    /// When the next entry is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.heap.first().map(|node| node.due)
    }

    /// Takes the entry that runs next.
    pub fn pop(&mut self) -> Option<Entry> {
        let first = self.entry(self.heap.first()?);
        self.take(0);
        Some(first)
    }

    /// Takes at most `limit` entries due at `now` or before, in order.
    pub fn pop_due(&mut self, now: Moment, limit: usize) -> Vec<Entry> {
        let mut due = Vec::new();
        while due.len() < limit && self.next_due().is_some_and(|next| next <= now) {
            due.extend(self.pop());
        }
        due
    }

    /// At most `limit` entries due at `now` or before, in order, left where they are.
    ///
    /// Walks the heap from its root and opens a node's children only once the node itself was given out.
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

    /// How many entries are due at `now` or before.
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

    /// A target's entry, while it is queued.
    pub fn get(&self, slot: Slot) -> Option<Entry> {
        let position = *self.positions.get(slot.index())?;
        self.heap.get(position as usize).map(|node| self.entry(node))
    }

    /// Takes a target out; whether it was in.
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
    &registered[slot as usize].as_ref().expect("a slot that is named is registered").id
}

/// A node on the border of what [`Queue::peek_due`] has given out; the greatest is the one that runs first.
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
