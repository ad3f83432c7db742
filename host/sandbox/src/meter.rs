//! How much CPU a poll has used.
//!
//! CPU is that of the thread inside the call future's own `poll`. Counting epoch slices would charge a guest that waited for a
//! full one, and a plain epoch deadline would kill it; the wall clock would charge it for what else the machine does.

use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Counts one poll's CPU.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds up to the last look.
    used: AtomicU64,
    /// What the thread's clock showed then. Nothing between turns, which may be on different threads.
    seen: AtomicU64,
    demote: AtomicBool,
}

impl Meter {
    /// CPU used up to the last look, which was a few milliseconds ago at most while the guest runs.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Looks at the clock, from the thread of the turn under way. CPU used so far.
    pub(crate) fn look(&self) -> Duration {
        let now = thread_cpu_nanos();
        let turn = now.saturating_sub(self.seen.swap(now, Ordering::Relaxed));
        Duration::from_nanos(self.used.fetch_add(turn, Ordering::Relaxed) + turn)
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
        self.meter.seen.store(thread_cpu_nanos(), Ordering::Relaxed);
        let result = self.future.as_mut().poll(context);
        self.meter.look();
        result
    }
}

/// CPU time of this thread in nanoseconds. The one place of this room that reads a clock.
fn thread_cpu_nanos() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_costs_nothing_and_work_does() {
        let meter = Arc::new(Meter::default());
        let busy = |cpu: Duration| {
            let meter = meter.clone();
            move || while meter.look() < cpu {}
        };
        // A thread that waits while others work uses no CPU, whatever the clock on the wall says.
        let others = || while thread_cpu_nanos() < 200_000_000 {};
        let half = busy(Duration::from_millis(5));
        Metered::new(meter.clone(), async move {
            half();
            std::thread::spawn(others).join().unwrap();
            tokio::task::yield_now().await;
        })
        .await;
        let used = meter.used();
        assert!((Duration::from_millis(5)..Duration::from_millis(100)).contains(&used), "{used:?}");
        // The next turn may be on another thread, which has used more or less by then.
        let whole = busy(used + Duration::from_millis(5));
        let elsewhere = Metered::new(meter.clone(), async move { whole() });
        tokio::spawn(elsewhere).await.unwrap();
        let more = meter.used() - used;
        assert!((Duration::from_millis(5)..Duration::from_millis(100)).contains(&more), "{more:?}");
    }
}
