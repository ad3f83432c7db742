//! Resources that the whole process shares: request slots per host, body bytes and sockets.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Size of one budget unit in bytes. The budget counts units because the permits of a semaphore are 32-bit numbers.
const UNIT: usize = 1024;

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Number of requests that waited for a request slot of their host.
    pub waited_for_slot: AtomicU64,
    /// Number of times a body waited for the budget of body bytes.
    pub waited_for_bytes: AtomicU64,
    /// Number of requests that joined an identical request in flight.
    pub coalesced: AtomicU64,
    /// Number of connections established.
    pub connections: AtomicU64,
}

/// Limits the concurrent requests per host, in the order of arrival. One plugin kind gets at most three quarters of the
/// slots of a host, so that its hanging requests cannot block the targets of other kinds on the same machine.
#[derive(Debug)]
pub(crate) struct Slots {
    limit: usize,
    by_host: Named<Arc<str>>,
    by_share: Named<Share>,
}

/// A kind and a host.
type Share = (Arc<str>, Arc<str>);

/// Semaphores by name. A semaphore exists only while it is in use.
#[derive(Debug)]
struct Named<N>(Mutex<HashMap<N, Arc<Semaphore>, RandomState>>);

/// A request slot of a host. It is released on drop.
pub(crate) struct Slot<'a> {
    slots: &'a Slots,
    host: Arc<str>,
    share: Share,
    permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Slots {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), by_host: Named::default(), by_share: Named::default() }
    }

    pub(crate) async fn acquire(&self, host: &Arc<str>, share: &Arc<str>, gauges: &Gauges) -> Slot<'_> {
        let share = (share.clone(), host.clone());
        let of_share = self.by_share.get(&share, (self.limit * 3).div_ceil(4));
        let of_host = self.by_host.get(host, self.limit);
        let mut slot = Slot { slots: self, host: host.clone(), share, permits: [None, None] };
        if of_share.available_permits() == 0 || of_host.available_permits() == 0 {
            gauges.waited_for_slot.fetch_add(1, Ordering::Relaxed);
        }
        slot.permits[0] = Some(of_share.acquire_owned().await.expect("slots are never closed"));
        slot.permits[1] = Some(of_host.acquire_owned().await.expect("slots are never closed"));
        slot
    }
}

impl<N> Default for Named<N> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<N: Clone + Eq + Hash> Named<N> {
    fn get(&self, name: &N, limit: usize) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name.clone()).or_insert_with(|| Arc::new(Semaphore::new(limit))).clone()
    }

    /// Removes a semaphore that has no holder and no waiter.
    fn forget(&self, name: &N) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(name).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            all.remove(name);
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.permits = [None, None];
        self.slots.by_host.forget(&self.host);
        self.slots.by_share.forget(&self.share);
    }
}

/// Budget of body bytes that the process holds at a time.
///
/// A quarter of the budget is reserved for the first piece of each body, so that large slow answers do not block small
/// ones.
#[derive(Debug)]
pub(crate) struct Bytes {
    first: Arc<Semaphore>,
    more: Arc<Semaphore>,
    total: usize,
}

/// A share of the byte budget. It is released on drop.
#[derive(Debug)]
pub(crate) struct Held {
    first: OwnedSemaphorePermit,
    more: Option<OwnedSemaphorePermit>,
}

impl Bytes {
    pub(crate) fn new(bytes: usize) -> Self {
        let total = (bytes / UNIT).clamp(2, u32::MAX as usize / 2);
        let first = total / 4 + 1;
        Self { first: Arc::new(Semaphore::new(first)), more: Arc::new(Semaphore::new(total - first)), total }
    }

    /// Returns the size of the whole budget in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.total * UNIT
    }

    /// Takes `bytes` from the budget. Returns `None` if they are not free.
    pub(crate) fn try_hold(&self, bytes: usize) -> Option<Held> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        if let Ok(first) = self.first.clone().try_acquire_many_owned(units) {
            return Some(Held { first, more: None });
        }
        let first = self.first.clone().try_acquire_many_owned(0).ok()?;
        let more = self.more.clone().try_acquire_many_owned(units).ok()?;
        Some(Held { first, more: Some(more) })
    }

    /// Waits until `bytes` are free for the first piece of a body.
    pub(crate) async fn hold(&self, bytes: usize, gauges: &Gauges) -> Held {
        Held { first: Self::wait(&self.first, self.total / 4 + 1, bytes, gauges).await, more: None }
    }

    /// Waits until `bytes` are free for more of a body. If the larger part of the budget can never provide all of them,
    /// the rest comes from the part for first pieces, so that a single body can use the whole budget.
    pub(crate) async fn grow(&self, held: &mut Held, bytes: usize, gauges: &Gauges) {
        let (first, all) = (self.total / 4 + 1, self.total - self.total / 4 - 1);
        let have = held.more.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let units = bytes.div_ceil(UNIT);
        let of_more = units.min(all - have);
        let more = Self::wait(&self.more, all, of_more * UNIT, gauges).await;
        match &mut held.more {
            Some(held) => held.merge(more),
            None => held.more = Some(more),
        }
        let rest = (units - of_more).min(first - held.first.num_permits());
        if rest > 0 {
            held.first.merge(Self::wait(&self.first, first, rest * UNIT, gauges).await);
        }
    }

    /// Waits for `bytes`, capped at the size of the semaphore, so that the wait can end.
    async fn wait(from: &Arc<Semaphore>, all: usize, bytes: usize, gauges: &Gauges) -> OwnedSemaphorePermit {
        let units = bytes.div_ceil(UNIT).min(all) as u32;
        if from.available_permits() < units as usize {
            gauges.waited_for_bytes.fetch_add(1, Ordering::Relaxed);
        }
        from.clone().acquire_many_owned(units).await.expect("the budget is never closed")
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        (self.first.num_permits() + self.more.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)) * UNIT
    }

    /// Releases the share beyond `bytes`. The part for first pieces is released first.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = (self.bytes() / UNIT).saturating_sub(bytes.div_ceil(UNIT));
        let of_first = self.first.num_permits().min(surplus);
        drop(self.first.split(of_first));
        drop(self.more.as_mut().and_then(|more| more.split(surplus - of_first)));
    }
}

/// Limits the open connections of the process, including idle ones.
#[derive(Debug)]
pub(crate) struct Sockets(Arc<Semaphore>);

impl Sockets {
    pub(crate) fn new(limit: usize) -> Self {
        Self(Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Takes a socket. Returns `None` if none is free.
    pub(crate) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }

    /// Waits until a socket is free.
    pub(crate) async fn take(&self) -> OwnedSemaphorePermit {
        self.0.clone().acquire_owned().await.expect("sockets are never closed")
    }
}
