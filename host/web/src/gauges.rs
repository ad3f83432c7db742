//! Counters of this crate's listeners.

use std::sync::atomic::AtomicU64;

/// Counters of the web listeners, shown as metrics.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Open connections.
    pub connections: AtomicU64,
    /// Connections closed because the client was too slow to send a request or to read the response.
    pub timed_out: AtomicU64,
    /// Requests with a wrong token.
    pub wrong_tokens: AtomicU64,
    /// Requests refused because of their `Host` header.
    pub foreign_hosts: AtomicU64,
    /// Handlers that panicked.
    pub panics: AtomicU64,
}
