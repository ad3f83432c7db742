//! What happened to our own listeners.

use std::sync::atomic::AtomicU64;

/// Counters for operators.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Connections that are open now.
    pub connections: AtomicU64,
    /// Connections that were closed because a request or the reading of its answer took too long.
    pub timed_out: AtomicU64,
    /// Requests with a wrong token.
    pub wrong_tokens: AtomicU64,
    /// Requests that were refused because of their `Host`.
    pub foreign_hosts: AtomicU64,
    /// Handlers that panicked.
    pub panics: AtomicU64,
}
