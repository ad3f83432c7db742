//! The wasmtime engine of the process.
//!
//! # Measurements of the pool
//!
//! `cargo bench -p tests --bench pool` on two shared cores, kernel with `PAGEMAP_SCAN`. "Fresh" is the duration of a
//! poll of a recorded answer (2.4 KB, 10 dependencies) in a fresh instance. The memory of the process, which also
//! serves these polls, is measured before, with 3,000 polls in flight, and 10 s later. "Late" is the p99 delay of the
//! start of a healthy target's polls next to eight endless loops.
//!
//! | pool | fresh, p50 | before | in flight | 10 s after | late |
//! |---|---|---|---|---|---|
//! | 3,000 slots, nothing kept | 75.7 µs | 21 MB | 409 MB | 237 MB | 4.1 ms |
//! | kept 16 KiB | 53.6 µs | 21 MB | 409 MB | 420 MB | 9.0 ms |
//! | kept 64 KiB | 48.4 µs | 21 MB | 409 MB | 418 MB | 8.2 ms |
//! | kept 1 MiB | 48.1 µs | 21 MB | 409 MB | 413 MB | 4.7 ms |
//! | kept 64 KiB, no warm slots | 49.0 µs | 21 MB | 409 MB | 418 MB | 1.2 ms |
//! | kept 64 KiB, all slots warm | 48.2 µs | 21 MB | 409 MB | 420 MB | 3.9 ms |
//! | kept 64 KiB, released in batches of 16 | 48.8 µs | 22 MB | 410 MB | 421 MB | 18.9 ms |
//! | **512 slots, kept 64 KiB** | 49.0 µs | 18 MB | 93 MB | 95 MB | 2.6 ms |
//!
//! (The lateness is noisy because other work ran on the machine.) Conclusions: keeping any memory resident saves a
//! third of a fresh poll, and 64 KiB are enough. A slot never releases the memory that it keeps, so the number of slots
//! bounds memory. With 512 slots, some of 3,000 polls wait for a slot. That costs little, because a poll spends most of
//! its time waiting.

use crate::limits::{INSTANCES, Limits, MEMORIES, TABLE, TABLES};
use crate::ticker::Ticker;
use machine_code::Backtrace;
use std::sync::Arc;
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Result};

/// How the instance pool keeps and releases memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Bytes of a slot's memory that stay resident between polls.
    pub kept_memory: usize,
    /// Bytes of a slot's tables that stay resident between polls.
    pub kept_table: usize,
    /// Whether the pool asks the kernel which pages were written (Linux 6.7 and later). If `false`, no memory stays
    /// resident, because the pool would have to clear all of it by hand, which makes it resident first.
    pub pagemap_scan: bool,
    /// Number of unused slots that keep the image of their last plugin.
    pub warm_slots: u32,
    /// Number of slots whose memory is released in one batch.
    pub decommit_batch: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            kept_memory: 64 << 10,
            kept_table: 16 << 10,
            pagemap_scan: PoolingAllocationConfig::is_pagemap_scan_available(),
            warm_slots: 100,
            decommit_batch: 1,
        }
    }
}

/// An engine with a thread that increments its epoch until the drop.
pub(crate) struct Ticking {
    pub engine: Engine,
    pub ticker: Arc<Ticker>,
}

impl Ticking {
    /// Creates an engine with a pool of `slots` instances. If the address space is too small for the pool, instances
    /// are created on demand.
    pub(crate) fn new(slots: u32, pool: Pool, backtrace: Backtrace) -> Result<Self> {
        let engine = match Engine::new(&pooled(slots, pool, backtrace)) {
            Ok(engine) => engine,
            Err(error) => {
                tracing::warn!(
                    "a pool of {slots} instances could not be created ({error:#}); instances are created on demand, which is slower"
                );
                Engine::new(&machine_code::config(backtrace))?
            }
        };
        let weak = engine.weak();
        let tick = move || weak.upgrade().map(|engine| engine.increment_epoch()).is_some();
        Ok(Self { engine, ticker: Ticker::start(tick)? })
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.ticker.stop();
    }
}

fn pooled(slots: u32, pool: Pool, backtrace: Backtrace) -> Config {
    let mut config = machine_code::config(backtrace);
    config.allocation_strategy(allocation(slots, pool));
    config
}

fn allocation(slots: u32, kept: Pool) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_stacks(slots)
        .total_memories(slots.saturating_mul(MEMORIES))
        .total_tables(slots.saturating_mul(TABLES))
        .total_core_instances(slots.saturating_mul(INSTANCES))
        .max_memory_size(Limits::default().memory)
        .max_memories_per_module(MEMORIES)
        .max_tables_per_module(TABLES)
        .table_elements(TABLE)
        .max_component_instance_size(8 << 20)
        .max_core_instance_size(8 << 20);
    pool.max_unused_warm_slots(kept.warm_slots).decommit_batch_size(kept.decommit_batch);
    if kept.pagemap_scan {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(kept.kept_memory)
            .table_keep_resident(kept.kept_table);
    }
    pool
}
