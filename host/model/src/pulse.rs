//! A thread's sign of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a thread that must not stand still shows of itself. Whoever watches compares two readings.
#[derive(Debug)]
pub struct Pulse {
    name: String,
    beats: AtomicU64,
    ended: AtomicBool,
}

impl Pulse {
    /// For the thread with this name, which has not begun to work.
    pub fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), beats: AtomicU64::new(0), ended: AtomicBool::new(false) })
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The thread begins a piece of work or goes on with it; one that waits for work does so now and then too, at least every
    /// half minute.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has beaten.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Held by the thread: when it is dropped, by a return or by a panic, the thread has ended.
#[derive(Debug)]
pub struct Alive(pub Arc<Pulse>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}
