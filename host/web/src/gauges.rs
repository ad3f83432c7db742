//! Counters of this crate's listeners.

use metrics::Reading;
use std::sync::atomic::{AtomicU64, Ordering};

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

impl Gauges {
    /// Returns the present values for `/metrics`.
    pub fn readings(&self) -> [Reading; 5] {
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let counter = |name, help, value| Reading::counter(name, help, count(value));
        [
            Reading::gauge(
                "polliwog_web_connections",
                "Connections to pages, API and metrics",
                count(&self.connections) as f64,
            ),
            counter("polliwog_web_timed_out", "Connections closed because the client was too slow", &self.timed_out),
            counter("polliwog_web_wrong_tokens", "Requests with a wrong token", &self.wrong_tokens),
            counter("polliwog_web_foreign_hosts", "Requests that named another host", &self.foreign_hosts),
            counter("polliwog_web_panics", "Requests whose handler panicked", &self.panics),
        ]
    }
}
