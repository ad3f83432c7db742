//! What one poll may use.

use std::time::Duration;
use wasmtime::{ResourceLimiter, Result};

/// What one poll may use. The defaults are the contract's; an operator can change them for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all its memories.
    pub memory: usize,
    /// CPU time.
    pub cpu: Duration,
    /// Requests.
    pub requests: u32,
    /// Bytes of one body.
    pub body: usize,
    /// Bytes of all bodies.
    pub bodies: usize,
    /// Dependencies in a report.
    pub dependencies: usize,
    /// Samples in a report.
    pub samples: usize,
    /// Warnings in a report.
    pub warnings: usize,
    /// Bytes of a report, as the host holds it.
    pub report: usize,
    /// Log lines.
    pub log_lines: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            cpu: Duration::from_secs(1),
            requests: 512,
            body: 8 << 20,
            bodies: 32 << 20,
            dependencies: 25_000,
            samples: 100_000,
            warnings: 1_000,
            report: 32 << 20,
            log_lines: 100,
        }
    }
}

impl Limits {
    /// For `describe` and `check-settings`: 100 ms, 64 MiB, no http.
    pub(crate) fn pure() -> Self {
        Self { cpu: Duration::from_millis(100), requests: 0, ..Self::default() }
    }
}

/// Entries of one table. JavaScript plugins begin with 7,691.
pub(crate) const TABLE: usize = 20_000;
/// Table entries over the whole store.
const TABLE_ENTRIES: usize = 100_000;
/// Core instances, memories and tables over the whole store: what the pool has for each slot. A Python plugin has 40
/// instances.
pub(crate) const INSTANCES: u32 = 40;
pub(crate) const MEMORIES: u32 = 4;
pub(crate) const TABLES: u32 = 16;

/// Sums over a store, because wasmtime's own limits are for each memory and each table.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: usize,
    memory_limit: usize,
    entries: usize,
    /// The limit that refused something. A guest that is refused memory aborts; this says why.
    pub denied: Option<&'static str>,
}

impl Limiter {
    pub(crate) fn new(memory_limit: usize) -> Self {
        Self { memory: 0, memory_limit, entries: 0, denied: None }
    }

    /// Bytes of memory in all. Memories never shrink, so this is the peak as well.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        let grown = self.memory + desired.saturating_sub(current);
        let fits = grown <= self.memory_limit && maximum.is_none_or(|maximum| desired <= maximum);
        if fits {
            self.memory = grown;
        } else if grown > self.memory_limit {
            self.denied = Some("memory_limit");
        }
        Ok(fits)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        let grown = self.entries + desired.saturating_sub(current);
        let fits = grown <= TABLE_ENTRIES && maximum.is_none_or(|maximum| desired <= maximum);
        if fits {
            self.entries = grown;
        } else if grown > TABLE_ENTRIES || desired > TABLE {
            self.denied = Some("table_limit");
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_over_memories_and_tables_over_tables() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!((limiter.memory(), limiter.denied), (100, Some("memory_limit")));
        let mut limiter = Limiter::new(100);
        assert!(!limiter.memory_growing(0, 60, Some(50)).unwrap());
        assert_eq!(limiter.denied, None, "the guest's own maximum is nobody's limit");
        assert!(limiter.table_growing(0, TABLE_ENTRIES, None).unwrap());
        assert!(!limiter.table_growing(0, 1, None).unwrap());
        assert_eq!(limiter.denied, Some("table_limit"));
    }
}
