//! The data structures that the queue is compared with. They order by due time alone.

use crate::Structure;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The standard library's heap, which cannot find entries. It shows the cost of the index.
pub(crate) struct Unindexed(BinaryHeap<Reverse<(i64, usize)>>);

impl Structure for Unindexed {
    fn with_capacity(size: usize) -> Self {
        Self(BinaryHeap::with_capacity(size))
    }

    fn push(&mut self, number: usize, due: i64) {
        self.0.push(Reverse((due, number)));
    }

    fn pop(&mut self) -> Option<(usize, i64)> {
        self.0.pop().map(|Reverse((due, number))| (number, due))
    }

    fn peek(&self) -> Option<i64> {
        self.0.peek().map(|Reverse((due, _))| *due)
    }

    /// Removes any entry, because the heap has no index. The benchmark of `push` only needs a constant size.
    fn remove(&mut self, _: usize) {
        self.0.pop();
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    due: i64,
    child: u32,
    next: u32,
    /// The elder sibling, or the parent of the eldest; the node itself if it is not in the heap.
    before: u32,
}

/// A pairing heap over a dense table.
pub(crate) struct Pairing {
    nodes: Vec<Node>,
    root: u32,
    pairs: Vec<u32>,
}

impl Pairing {
    fn meld(&mut self, a: u32, b: u32) -> u32 {
        if a == NONE || b == NONE {
            return if a == NONE { b } else { a };
        }
        let (parent, child) = if self.nodes[b as usize].due < self.nodes[a as usize].due { (b, a) } else { (a, b) };
        let eldest = self.nodes[parent as usize].child;
        if eldest != NONE {
            self.nodes[eldest as usize].before = child;
        }
        self.nodes[child as usize].next = eldest;
        self.nodes[child as usize].before = parent;
        self.nodes[parent as usize].child = child;
        parent
    }

    /// Melds a list of siblings in pairs, and then the pairs from the last to the first.
    fn merge(&mut self, mut first: u32) -> u32 {
        let mut pairs = std::mem::take(&mut self.pairs);
        while first != NONE {
            let second = self.nodes[first as usize].next;
            let rest = if second == NONE { NONE } else { self.nodes[second as usize].next };
            pairs.push(self.meld(first, second));
            first = rest;
        }
        let mut root = NONE;
        while let Some(pair) = pairs.pop() {
            root = self.meld(pair, root);
        }
        self.pairs = pairs;
        if root != NONE {
            (self.nodes[root as usize].next, self.nodes[root as usize].before) = (NONE, NONE);
        }
        root
    }

    fn cut(&mut self, node: u32) {
        let Node { child, next, before, .. } = self.nodes[node as usize];
        if self.root == node {
            self.root = self.merge(child);
        } else {
            if self.nodes[before as usize].child == node {
                self.nodes[before as usize].child = next;
            } else {
                self.nodes[before as usize].next = next;
            }
            if next != NONE {
                self.nodes[next as usize].before = before;
            }
            let orphans = self.merge(child);
            self.root = self.meld(self.root, orphans);
        }
        self.nodes[node as usize] = Node { due: 0, child: NONE, next: NONE, before: node };
    }
}

impl Structure for Pairing {
    fn with_capacity(size: usize) -> Self {
        let node = |number| Node { due: 0, child: NONE, next: NONE, before: number };
        let nodes = (0..(size + crate::MANY) as u32).map(node).collect();
        Self { nodes, root: NONE, pairs: Vec::new() }
    }

    fn push(&mut self, number: usize, due: i64) {
        self.remove(number);
        self.nodes[number] = Node { due, child: NONE, next: NONE, before: NONE };
        self.root = self.meld(self.root, number as u32);
    }

    fn pop(&mut self) -> Option<(usize, i64)> {
        let root = self.root;
        let due = self.nodes.get(root as usize)?.due;
        self.cut(root);
        Some((root as usize, due))
    }

    fn peek(&self) -> Option<i64> {
        self.nodes.get(self.root as usize).map(|node| node.due)
    }

    fn remove(&mut self, number: usize) {
        if self.nodes[number].before != number as u32 {
            self.cut(number as u32);
        }
    }
}

/// Nanoseconds per tick of the wheel, and ticks per revolution (nearly seven minutes).
const TICK: i64 = 100_000_000;
const TURN: usize = 4096;

/// A timing wheel of unsorted ticks before a heap of the current tick. Stale entries are skipped when they are reached.
pub(crate) struct Wheel {
    ticks: Vec<Vec<u32>>,
    tick: i64,
    now: BinaryHeap<Reverse<(i64, u32)>>,
    due: Vec<i64>,
}

/// The due time of a target that is not in the wheel.
const OUT: i64 = i64::MIN;

impl Wheel {
    /// Moves the entries of the next tick that is not empty to the heap, if the heap is empty.
    fn advance(&mut self) {
        loop {
            while let Some(Reverse((due, number))) = self.now.peek() {
                if self.due[*number as usize] == *due {
                    return;
                }
                self.now.pop();
            }
            self.tick += 1;
            let Self { ticks, tick, now, due } = self;
            let place = &mut ticks[tick.rem_euclid(TURN as i64) as usize];
            let tick_of = |number: u32| due[number as usize].div_euclid(TICK);
            let here = place.iter().filter(|number| tick_of(**number) == *tick);
            now.extend(here.map(|number| Reverse((due[*number as usize], *number))));
            place.retain(|number| tick_of(*number) > *tick);
        }
    }
}

impl Structure for Wheel {
    fn with_capacity(size: usize) -> Self {
        Self { ticks: vec![Vec::new(); TURN], tick: -1, now: BinaryHeap::new(), due: vec![OUT; size + crate::MANY] }
    }

    fn push(&mut self, number: usize, due: i64) {
        self.due[number] = due;
        let tick = due.div_euclid(TICK);
        if tick <= self.tick {
            self.now.push(Reverse((due, number as u32)));
        } else {
            self.ticks[tick.rem_euclid(TURN as i64) as usize].push(number as u32);
        }
    }

    fn pop(&mut self) -> Option<(usize, i64)> {
        self.advance();
        let Reverse((due, number)) = self.now.pop()?;
        self.due[number as usize] = OUT;
        Some((number as usize, due))
    }

    /// Returns the first due time of the current tick; the order within later ticks is not known yet.
    fn peek(&self) -> Option<i64> {
        self.now.peek().map(|Reverse((due, _))| *due)
    }

    fn remove(&mut self, number: usize) {
        self.due[number] = OUT;
    }
}
