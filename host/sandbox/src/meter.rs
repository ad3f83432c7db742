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

/// The CPU time of a call ran out.
#[derive(Debug, thiserror::Error)]
#[error("CPU time ran out")]
pub(crate) struct CpuExhausted;

/// What a call may use before it is moved to the slow lane, and before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub healthy: Duration,
    pub most: Duration,
}

/// A future whose turns are measured. It ends when they are too much: epochs look at a guest while it runs, this looks at
/// what the host does for it.
pub(crate) struct Metered<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    meter: Arc<Meter>,
    budget: Budget,
}

impl<'a, T> Metered<'a, T> {
    pub(crate) fn new(meter: Arc<Meter>, budget: Budget, future: impl Future<Output = T> + Send + 'a) -> Self {
        Self { future: Some(Box::pin(future)), meter, budget }
    }
}

impl<T> Future for Metered<'_, T> {
    type Output = Result<T, CpuExhausted>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.meter.seen.store(thread_cpu_nanos(), Ordering::Relaxed);
        let Some(future) = &mut self.future else { return Poll::Ready(Err(CpuExhausted)) };
        let result = future.as_mut().poll(context);
        let used = self.meter.look();
        match result {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending if used > self.budget.most => {
                self.future = None;
                Poll::Ready(Err(CpuExhausted))
            }
            Poll::Pending => {
                if used > self.budget.healthy {
                    self.meter.demote();
                }
                Poll::Pending
            }
        }
    }
}

/// What `work` gives, and the CPU time that it took on this thread.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = thread_cpu_nanos();
    let done = work();
    (done, Duration::from_nanos(thread_cpu_nanos().saturating_sub(began)))
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
        let budget = Budget { healthy: Duration::from_millis(2), most: Duration::from_secs(1) };
        let metered = Metered::new(meter.clone(), budget, async move {
            half();
            std::thread::spawn(others).join().unwrap();
            tokio::task::yield_now().await;
        });
        metered.await.unwrap();
        assert!(meter.is_demoted());
        let used = meter.used();
        assert!((Duration::from_millis(5)..Duration::from_millis(100)).contains(&used), "{used:?}");
        // The next turn may be on another thread, which has used more or less by then.
        let whole = busy(used + Duration::from_millis(5));
        let elsewhere = Metered::new(meter.clone(), budget, async move { whole() });
        tokio::spawn(elsewhere).await.unwrap().unwrap();
        let more = meter.used() - used;
        assert!((Duration::from_millis(5)..Duration::from_millis(100)).contains(&more), "{more:?}");
    }
    #[tokio::test]
    async fn what_the_host_does_for_a_call_ends_it_too() {
        let meter = Arc::new(Meter::default());
        let (budget, own) = (Budget { healthy: Duration::ZERO, most: Duration::from_millis(3) }, meter.clone());
        let endless = Metered::new(meter.clone(), budget, async move {
            loop {
                let begun = own.look();
                while own.look() < begun + Duration::from_millis(1) {}
                tokio::task::yield_now().await;
            }
        });
        let ended: Result<std::convert::Infallible, CpuExhausted> = endless.await;
        assert!(ended.is_err() && meter.used() >= Duration::from_millis(3));
    }
}
