//! The indexed priority queue.
//!
//! Order: due time, then higher score, then least recently polled, then id. A target is in it at most once.
//!
//! A 4-ary heap of (due, slot) pairs over a dense table of slots: the due time, which decides nearly every comparison,
//! lies in the heap's own array, and the rest is looked up only on ties. Every operation by target goes through one hash
//! map from id to slot.

use model::{Kind, Moment, TargetId};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

const ARITY: usize = 4;

/// One target's place in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Whose entry.
    pub target: TargetId,
    /// For the statistics by kind.
    pub kind: Kind,
    /// When it is to run.
    pub due: Moment,
    /// Of two that are due at once, the higher goes first. 0 to 1.
    pub score: f32,
    /// Of two with one score, the one polled longer ago goes first.
    pub last_polled: Moment,
}

#[derive(Debug)]
struct Slot {
    entry: Entry,
    position: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    due: Moment,
    slot: u32,
}

/// Targets in the order in which they are to run.
#[derive(Debug, Default)]
pub struct Queue {
    heap: Vec<Node>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_target: HashMap<TargetId, u32>,
    by_kind: BTreeMap<Kind, usize>,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many targets are in it.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// How many targets of each kind are in it.
    pub fn by_kind(&self) -> &BTreeMap<Kind, usize> {
        &self.by_kind
    }

    /// Puts a target in; one that is there already moves to its new place.
    pub fn push(&mut self, entry: Entry) {
        if let Some(&slot) = self.by_target.get(&entry.target) {
            self.update(slot, entry);
            return;
        }
        *self.by_kind.entry(entry.kind.clone()).or_default() += 1;
        let node = Node { due: entry.due, slot: self.free.pop().unwrap_or(self.slots.len() as u32) };
        self.by_target.insert(entry.target.clone(), node.slot);
        let position = self.heap.len();
        let filled = Some(Slot { entry, position });
        match self.slots.get_mut(node.slot as usize) {
            Some(place) => *place = filled,
            None => self.slots.push(filled),
        }
        self.heap.push(node);
        self.sift_up(position);
    }

    fn update(&mut self, slot: u32, entry: Entry) {
        let due = entry.due;
        let held = self.slot_mut(slot);
        let position = held.position;
        let kind = std::mem::replace(&mut held.entry, entry).kind;
        let now = self.slot(slot).entry.kind.clone();
        if kind != now {
            self.forget_kind(&kind);
            *self.by_kind.entry(now).or_default() += 1;
        }
        self.heap[position].due = due;
        let settled = self.sift_up(position);
        self.sift_down(settled);
    }

    /// The entry that runs next.
    pub fn peek(&self) -> Option<&Entry> {
        self.heap.first().map(|node| &self.slot(node.slot).entry)
    }

    /// Takes the entry that runs next.
    pub fn pop(&mut self) -> Option<Entry> {
        (!self.heap.is_empty()).then(|| self.take(0))
    }

    /// Takes at most `limit` entries due at `now` or before, in order.
    pub fn pop_due(&mut self, now: Moment, limit: usize) -> Vec<Entry> {
        let mut due = Vec::new();
        while due.len() < limit && self.peek().is_some_and(|entry| entry.due <= now) {
            due.extend(self.pop());
        }
        due
    }

    /// At most `limit` entries due at `now` or before, in order, left where they are.
    ///
    /// Walks the heap from its root and opens a node's children only once the node itself was given out.
    pub fn peek_due(&self, now: Moment, limit: usize) -> Vec<&Entry> {
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
            due.push(&self.slot(self.heap[position].slot).entry);
            let children = ARITY * position + 1..(ARITY * position + 1 + ARITY).min(self.heap.len());
            border.extend(children.map(|position| Next { queue: self, position }));
        }
        due
    }

    /// A target's entry.
    pub fn get(&self, target: &TargetId) -> Option<&Entry> {
        self.by_target.get(target).map(|&slot| &self.slot(slot).entry)
    }

    /// Takes a target out.
    pub fn remove(&mut self, target: &TargetId) -> Option<Entry> {
        let slot = *self.by_target.get(target)?;
        Some(self.take(self.slot(slot).position))
    }

    fn take(&mut self, position: usize) -> Entry {
        let node = self.heap.swap_remove(position);
        if position < self.heap.len() {
            let moved = self.heap[position].slot;
            self.slot_mut(moved).position = position;
            let settled = self.sift_up(position);
            self.sift_down(settled);
        }
        let slot = self.slots[node.slot as usize].take().expect("a node in the heap has a filled slot");
        self.free.push(node.slot);
        self.by_target.remove(&slot.entry.target);
        self.forget_kind(&slot.entry.kind);
        slot.entry
    }

    fn forget_kind(&mut self, kind: &Kind) {
        if let Some(count) = self.by_kind.get_mut(kind) {
            *count -= 1;
            if *count == 0 {
                self.by_kind.remove(kind);
            }
        }
    }

    fn slot(&self, slot: u32) -> &Slot {
        self.slots[slot as usize].as_ref().expect("a slot that is named is filled")
    }

    fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        self.slots[slot as usize].as_mut().expect("a slot that is named is filled")
    }

    fn before(&self, a: Node, b: Node) -> bool {
        self.compare(a, b) == Ordering::Less
    }

    fn compare(&self, a: Node, b: Node) -> Ordering {
        a.due.cmp(&b.due).then_with(|| {
            let (a, b) = (&self.slot(a.slot).entry, &self.slot(b.slot).entry);
            (b.score.total_cmp(&a.score))
                .then_with(|| a.last_polled.cmp(&b.last_polled))
                .then_with(|| a.target.cmp(&b.target))
        })
    }

    fn sift_up(&mut self, mut position: usize) -> usize {
        let node = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if !self.before(node, self.heap[parent]) {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, node);
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        let node = self.heap[position];
        loop {
            let children = ARITY * position + 1..(ARITY * position + 1 + ARITY).min(self.heap.len());
            let first = children.min_by(|&a, &b| self.compare(self.heap[a], self.heap[b]));
            let Some(child) = first.filter(|&child| self.before(self.heap[child], node)) else { break };
            self.place(position, self.heap[child]);
            position = child;
        }
        self.place(position, node);
    }

    fn place(&mut self, position: usize, node: Node) {
        self.heap[position] = node;
        self.slot_mut(node.slot).position = position;
    }
}

/// A node on the border of what [`Queue::peek_due`] has given out; the greatest is the one that runs first.
struct Next<'a> {
    queue: &'a Queue,
    position: usize,
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.queue.compare(other.queue.heap[other.position], self.queue.heap[self.position])
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(id: u8, due: i64, score: u8, polled: i64) -> Entry {
        Entry {
            target: TargetId::new(&format!("t{id}")).unwrap(),
            kind: Kind::new(if id.is_multiple_of(2) { "even" } else { "odd" }).unwrap(),
            due: Moment::from_nanos(due),
            score: f32::from(score) / 4.0,
            last_polled: Moment::from_nanos(polled),
        }
    }

    /// The queue as a sorted list: slow and plain.
    #[derive(Default)]
    struct Model(Vec<Entry>);

    impl Model {
        fn push(&mut self, entry: Entry) {
            self.remove(&entry.target.clone());
            self.0.push(entry);
            self.0.sort_by(|a, b| {
                (a.due.cmp(&b.due))
                    .then(b.score.total_cmp(&a.score))
                    .then(a.last_polled.cmp(&b.last_polled))
                    .then(a.target.cmp(&b.target))
            });
        }

        fn remove(&mut self, target: &TargetId) -> Option<Entry> {
            let at = self.0.iter().position(|entry| entry.target == *target)?;
            Some(self.0.remove(at))
        }

        fn due(&self, now: Moment, limit: usize) -> Vec<Entry> {
            self.0.iter().filter(|entry| entry.due <= now).take(limit).cloned().collect()
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push(u8, i64, u8, i64),
        Pop,
        Remove(u8),
        PopDue(i64, usize),
        PeekDue(i64, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0u8..40, 0i64..20, 0u8..3, 0i64..3).prop_map(|(id, due, score, polled)| Op::Push(id, due, score, polled)),
            1 => Just(Op::Pop),
            1 => (0u8..40).prop_map(Op::Remove),
            1 => (0i64..20, 0usize..6).prop_map(|(now, limit)| Op::PopDue(now, limit)),
            1 => (0i64..20, 0usize..50).prop_map(|(now, limit)| Op::PeekDue(now, limit)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(ops in proptest::collection::vec(op(), 0..200)) {
            let (mut queue, mut model) = (Queue::new(), Model::default());
            for op in ops {
                match op {
                    Op::Push(id, due, score, polled) => {
                        queue.push(entry(id, due, score, polled));
                        model.push(entry(id, due, score, polled));
                    }
                    Op::Pop => {
                        let expected = (!model.0.is_empty()).then(|| model.0.remove(0));
                        prop_assert_eq!(queue.pop(), expected);
                    }
                    Op::Remove(id) => {
                        let target = entry(id, 0, 0, 0).target;
                        prop_assert_eq!(queue.remove(&target), model.remove(&target));
                    }
                    Op::PopDue(now, limit) => {
                        let expected = model.due(Moment::from_nanos(now), limit);
                        model.0.drain(..expected.len());
                        prop_assert_eq!(queue.pop_due(Moment::from_nanos(now), limit), expected);
                    }
                    Op::PeekDue(now, limit) => {
                        let seen: Vec<_> = queue.peek_due(Moment::from_nanos(now), limit).into_iter().cloned().collect();
                        prop_assert_eq!(seen, model.due(Moment::from_nanos(now), limit));
                    }
                }
                prop_assert_eq!(queue.len(), model.0.len());
                prop_assert_eq!(queue.peek(), model.0.first());
                prop_assert_eq!(queue.by_kind().values().sum::<usize>(), model.0.len());
                for held in &model.0 {
                    prop_assert_eq!(queue.get(&held.target), Some(held));
                }
            }
        }
    }
}
