//! The liveness pulse of a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The liveness of a thread that must not stall. A watchdog compares two readings.
#[derive(Debug)]
pub struct Pulse {
    name: String,
    beats: AtomicU64,
    ended: AtomicBool,
}

impl Pulse {
    /// Creates the pulse of the thread with this name, before its first beat.
    pub fn new(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), beats: AtomicU64::new(0), ended: AtomicBool::new(false) })
    }

    /// Returns the name of the thread.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records that the thread starts or continues a piece of work. A thread that waits for work calls this at least
    /// every 30 s.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of beats.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Returns true if the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// A guard that the thread holds. Its drop, by a return or a panic, marks the thread as ended.
#[derive(Debug)]
pub struct Alive(pub Arc<Pulse>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}
