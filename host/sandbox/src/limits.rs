//! The resource limits of polls.

use std::time::Duration;
use wasmtime::{ResourceLimiter, Result};

/// The resource limits of one poll. The defaults are part of the contract. An operator can change them for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of all memories in bytes.
    pub memory: usize,
    /// Maximum CPU time.
    pub cpu: Duration,
    /// Maximum number of requests.
    pub requests: u32,
    /// Maximum size of one response body in bytes.
    pub body: usize,
    /// Maximum size of all response bodies in bytes.
    pub bodies: usize,
    /// Maximum number of dependencies in a report.
    pub dependencies: usize,
    /// Maximum number of samples in a report.
    pub samples: usize,
    /// Maximum number of warnings in a report.
    pub warnings: usize,
    /// Maximum size of a report in the host's memory in bytes.
    pub report: usize,
    /// Maximum number of log lines.
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
    /// Returns the limits for `describe` and `check-settings`: 100 ms CPU, 64 MiB memory, no requests.
    pub(crate) fn pure() -> Self {
        Self { cpu: Duration::from_millis(100), requests: 0, ..Self::default() }
    }
}

/// Maximum number of entries of one table. JavaScript plugins start with 7,691.
pub(crate) const TABLE: usize = 20_000;
/// Maximum number of table entries of a store.
const TABLE_ENTRIES: usize = 100_000;
/// Maximum number of core instances of a store. The pool has as many per slot. A Python plugin has 40 instances.
pub(crate) const INSTANCES: u32 = 40;
/// Maximum number of memories of a store. The pool has as many per slot.
pub(crate) const MEMORIES: u32 = 4;
/// Maximum number of tables of a store. The pool has as many per slot.
pub(crate) const TABLES: u32 = 16;

/// A resource whose growth was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Memory,
    Table,
}

/// Limits the sums of a store, because the limits of wasmtime apply to each memory and each table.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: usize,
    memory_limit: usize,
    entries: usize,
    /// The resource whose growth was refused. Unless a smaller growth follows, the guest aborts after that, so this is
    /// the cause of the trap.
    pub denied: Option<Denied>,
}

impl Limiter {
    pub(crate) fn new(memory_limit: usize) -> Self {
        Self { memory: 0, memory_limit, entries: 0, denied: None }
    }

    /// Returns the size of all memories in bytes. Memories never shrink, so this is also the peak.
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
            // An allocator that wanted more than it needed has what it needs.
            self.denied = self.denied.filter(|denied| *denied != Denied::Memory);
        } else if grown > self.memory_limit {
            self.denied = Some(Denied::Memory);
        }
        Ok(fits)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        let grown = self.entries + desired.saturating_sub(current);
        let fits = grown <= TABLE_ENTRIES && maximum.is_none_or(|maximum| desired <= maximum);
        if fits {
            self.entries = grown;
        } else if grown > TABLE_ENTRIES || desired > TABLE {
            self.denied = Some(Denied::Table);
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
    fn the_limits_apply_to_the_sum_of_memories_and_of_tables() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(limiter.memory_growing(0, 40, None).unwrap());
        assert!(!limiter.memory_growing(40, 41, None).unwrap());
        assert_eq!((limiter.memory(), limiter.denied), (100, Some(Denied::Memory)));
        let mut limiter = Limiter::new(100);
        assert!(!limiter.memory_growing(0, 101, None).unwrap());
        assert!(limiter.memory_growing(0, 50, None).unwrap());
        assert_eq!(limiter.denied, None, "a smaller growth followed");
        let mut limiter = Limiter::new(100);
        assert!(!limiter.memory_growing(0, 60, Some(50)).unwrap());
        assert_eq!(limiter.denied, None, "the guest's own maximum is not a limit of the host");
        assert!(limiter.table_growing(0, TABLE_ENTRIES, None).unwrap());
        assert!(!limiter.table_growing(0, 1, None).unwrap());
        assert_eq!(limiter.denied, Some(Denied::Table));
    }
}
