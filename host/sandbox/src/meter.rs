//! How much CPU a poll has used.
//!
//! CPU is the time spent inside the call future's own `poll`. Counting epoch slices would charge a guest that waited for a
//! full one, and a plain epoch deadline would kill it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Counts one poll's CPU. Read from the epoch callback while the guest runs.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of finished turns.
    used: AtomicU64,
    /// When the turn under way began; 0 when none is.
    began: AtomicU64,
    demote: AtomicBool,
}

impl Meter {
    /// CPU used so far, the turn under way included.
    pub(crate) fn used(&self) -> Duration {
        let began = self.began.load(Ordering::Relaxed);
        let turn = if began == 0 { 0 } else { monotonic_nanos().saturating_sub(began) };
        Duration::from_nanos(self.used.load(Ordering::Relaxed) + turn)
    }

    /// Asks whoever polls the future to move it to the slow lane.
    pub(crate) fn demote(&self) {
        self.demote.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_demoted(&self) -> bool {
        self.demote.load(Ordering::Relaxed)
    }
}

/// A future whose turns are measured.
pub(crate) struct Metered<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    meter: Arc<Meter>,
}

impl<'a, T> Metered<'a, T> {
    pub(crate) fn new(meter: Arc<Meter>, future: impl Future<Output = T> + Send + 'a) -> Self {
        Self { future: Box::pin(future), meter }
    }
}

impl<T> Future for Metered<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let began = monotonic_nanos();
        self.meter.began.store(began, Ordering::Relaxed);
        let result = self.future.as_mut().poll(context);
        self.meter.began.store(0, Ordering::Relaxed);
        self.meter.used.fetch_add(monotonic_nanos().saturating_sub(began), Ordering::Relaxed);
        result
    }
}

/// Nanoseconds since the first call, from 1. The one place of this room that reads a clock.
#[allow(clippy::disallowed_methods, reason = "CPU time is measured here and nowhere else")]
fn monotonic_nanos() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
}
