//! The engine: one for the process.

use crate::limits::{INSTANCES, Limits, MEMORIES, TABLE, TABLES};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Result};

/// How often guests are looked at while they run.
const TICK: Duration = Duration::from_millis(2);
/// What a slot keeps of its memory between polls, where the kernel can find what was written (6.7 on). More makes a fresh
/// instance no cheaper, and every slot keeps it.
const KEPT_MEMORY: usize = 64 << 10;
const KEPT_TABLE: usize = 16 << 10;

/// An engine whose epoch ticks until it is dropped.
pub(crate) struct Ticking {
    pub engine: Engine,
    stop: Arc<AtomicBool>,
}

impl Ticking {
    /// With a pool of `slots` instances; where the address space is too small for one, instances are made on demand.
    pub(crate) fn new(slots: u32) -> Result<Self> {
        let engine = match Engine::new(&config(Some(slots))) {
            Ok(engine) => engine,
            Err(error) => {
                tracing::warn!(
                    "no pool of {slots} instances ({error:#}); instances are made on demand, which costs more"
                );
                Engine::new(&config(None))?
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (ticked, stopped) = (engine.weak(), stop.clone());
        let tick = move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                let Some(engine) = ticked.upgrade() else { break };
                engine.increment_epoch();
            }
        };
        thread::Builder::new().name("epoch".to_owned()).spawn(tick)?;
        Ok(Self { engine, stop })
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Without `slots`, instances are made on demand; the machine code is the same.
pub(crate) fn config(slots: Option<u32>) -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).concurrency_support(false).wasm_memory64(false);
    if let Some(slots) = slots {
        config.allocation_strategy(pool(slots));
    }
    config
}

fn pool(slots: u32) -> PoolingAllocationConfig {
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
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        // Without it, keeping memory resident means clearing all of it by hand, which makes it resident first.
        pool.pagemap_scan(Enabled::Yes).linear_memory_keep_resident(KEPT_MEMORY).table_keep_resident(KEPT_TABLE);
    }
    pool
}
