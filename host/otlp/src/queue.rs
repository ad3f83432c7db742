//! The records that wait for the collector.

use crate::Signal;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of records that wait. With more, the oldest are dropped and counted.
const CAPACITY: usize = 10_000;

/// Counters since the start, and the present problem.
#[derive(Debug, Default)]
pub struct Counters {
    /// Log records and data points that the collector took.
    pub sent: AtomicU64,
    /// Log records that were dropped, because the queue was full or the collector refused them for good.
    pub dropped: AtomicU64,
    /// Failed requests.
    pub failed: AtomicU64,
    problems: Mutex<BTreeMap<Signal, String>>,
}

impl Counters {
    /// Returns why the last requests failed; `None` if they were taken.
    pub fn problem(&self) -> Option<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).values().next().cloned()
    }

    /// Notes the outcome of a request with one kind of data. Returns the problem that it had before.
    pub fn set_problem(&self, signal: Signal, problem: Option<String>) -> Option<String> {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(why) => problems.insert(signal, why),
            None => problems.remove(&signal),
        }
    }

    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// A queue with a bound.
#[derive(Debug)]
pub struct Queue<T>(Mutex<VecDeque<T>>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }
}

impl<T: Clone> Queue<T> {
    fn all(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record. Returns the number of records that were dropped for it.
    pub fn push(&self, record: T) -> usize {
        let mut all = self.all();
        all.push_back(record);
        let over = all.len().saturating_sub(CAPACITY);
        all.drain(..over).count()
    }

    /// Returns the number of records that wait.
    pub fn len(&self) -> usize {
        self.all().len()
    }

    /// Whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Takes the oldest records, at most `most`.
    pub fn take(&self, most: usize) -> Vec<T> {
        let mut all = self.all();
        let count = most.min(all.len());
        all.drain(..count).collect()
    }

    /// Puts records back to the front, as far as there is room. Returns the number of dropped ones, the oldest.
    pub fn put_back(&self, records: Vec<T>) -> usize {
        let mut all = self.all();
        let room = CAPACITY.saturating_sub(all.len());
        let dropped = records.len().saturating_sub(room);
        records.into_iter().skip(dropped).rev().for_each(|record| all.push_front(record));
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_its_oldest_records_and_counts_them() {
        let queue = Queue::default();
        assert_eq!((0..CAPACITY).map(|n| queue.push(n)).sum::<usize>(), 0);
        assert_eq!(queue.push(CAPACITY), 1);
        assert_eq!(queue.take(2), [1, 2]);
        assert_eq!(queue.push(CAPACITY + 1), 0);
        assert_eq!(queue.put_back(vec![1, 2]), 1, "there is room for one");
        assert_eq!((queue.take(2), queue.len()), (vec![2, 3], CAPACITY - 2));
    }
}
