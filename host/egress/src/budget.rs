//! What the whole process shares: request slots for each host, and bytes of bodies.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The budget counts in this many bytes, because a semaphore's permits are 32-bit numbers.
const UNIT: usize = 1024;

/// Counters for whoever watches the host.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Requests that waited for a slot of their host.
    pub waited_for_slot: AtomicU64,
    /// Bodies that waited for the budget of body bytes.
    pub waited_for_bytes: AtomicU64,
    /// Requests that joined one under way.
    pub coalesced: AtomicU64,
    /// Connections made.
    pub connections: AtomicU64,
}

/// Requests at a time for each host, first come first served.
#[derive(Debug)]
pub(crate) struct Slots {
    limit: usize,
    hosts: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// A slot; given back when dropped.
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    host: Arc<str>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), hosts: Mutex::default() }
    }

    pub(crate) async fn acquire(&self, host: &Arc<str>, gauges: &Gauges) -> Slot<'_> {
        let semaphore = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            hosts.entry(host.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.limit))).clone()
        };
        let mut slot = Slot { slots: self, host: host.clone(), permit: None };
        if semaphore.available_permits() == 0 {
            gauges.waited_for_slot.fetch_add(1, Ordering::Relaxed);
        }
        slot.permit = Some(semaphore.acquire_owned().await.expect("slots are never closed"));
        slot
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut hosts = self.slots.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else holds or waits: a host is remembered only while it is in use.
        if hosts.get(&self.host).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            hosts.remove(&self.host);
        }
    }
}

/// Bytes of bodies held at a time.
#[derive(Debug)]
pub(crate) struct Bytes {
    semaphore: Arc<Semaphore>,
    total: usize,
}

/// A share of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    permit: OwnedSemaphorePermit,
}

impl Bytes {
    pub(crate) fn new(bytes: usize) -> Self {
        let total = (bytes / UNIT).clamp(1, u32::MAX as usize / 2);
        Self { semaphore: Arc::new(Semaphore::new(total)), total }
    }

    /// What may be held in all.
    pub(crate) fn limit(&self) -> usize {
        self.total * UNIT
    }

    /// Takes `bytes` when they are free now.
    pub(crate) fn try_hold(&self, bytes: usize) -> Option<Held> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        let permit = self.semaphore.clone().try_acquire_many_owned(units).ok()?;
        Some(Held { permit })
    }

    /// Waits until `bytes` are free. No more than the whole budget is ever waited for.
    pub(crate) async fn hold(&self, bytes: usize, gauges: &Gauges) -> Held {
        let units = bytes.div_ceil(UNIT).min(self.total) as u32;
        if self.semaphore.available_permits() < units as usize {
            gauges.waited_for_bytes.fetch_add(1, Ordering::Relaxed);
        }
        let permit = self.semaphore.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        Held { permit }
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.permit.merge(more.permit);
    }

    /// Gives back what is held beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = self.permit.num_permits().saturating_sub(bytes.div_ceil(UNIT));
        drop(self.permit.split(surplus));
    }
}
