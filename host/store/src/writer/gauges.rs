//! Gauges and counters of the writer.

use std::sync::atomic::AtomicU64;

/// Gauges and counters of the writer.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Jobs in the queue.
    pub queued: AtomicU64,
    /// Committed transactions.
    pub transactions: AtomicU64,
    /// Failed attempts to commit a transaction.
    pub failures: AtomicU64,
    /// How often the current transaction has failed; 0 if the last one succeeded.
    pub failing: AtomicU64,
    /// Flushes of progress that are not yet on disk.
    pub flushes: AtomicU64,
}
