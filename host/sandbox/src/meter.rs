//! Measures the CPU time of polls.
//!
//! CPU time is that of the thread inside the `poll` of the call's future. Counting epoch ticks would charge a waiting
//! guest for whole ticks, and a plain epoch deadline would kill it. The wall clock would charge it for other work of
//! the machine.
//!
//! Reading the CPU clock of a thread is a system call, reading the monotonic clock is not. A short turn is therefore
//! charged by the monotonic clock. A longer one is charged by the smaller of the monotonic clock and the CPU clock
//! since its last reading on the same thread: neither is less than the CPU time of the turn.

use crate::ticker::Ticker;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// Counts the CPU time of one poll.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of CPU time up to the last measurement.
    used: AtomicU64,
    /// The clocks at the last measurement. They are read again at each turn, because turns may run on different
    /// threads.
    wall: AtomicU64,
    cpu: AtomicU64,
    demote: AtomicBool,
    /// Whether the guest was interrupted by an epoch in the current turn.
    interrupted: AtomicBool,
}

impl Meter {
    /// Returns the CPU time up to the last measurement, at most a few milliseconds ago while the guest runs.
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Measures and returns the CPU time so far. It must be called on the thread of the current turn.
    pub(crate) fn measure(&self) -> Duration {
        let before = Reading { wall: self.wall.load(Ordering::Relaxed), cpu: self.cpu.load(Ordering::Relaxed) };
        let (turn, now) = before.until_now();
        self.see(now);
        Duration::from_nanos(self.used.fetch_add(turn, Ordering::Relaxed) + turn)
    }

    fn see(&self, reading: Reading) {
        self.wall.store(reading.wall, Ordering::Relaxed);
        self.cpu.store(reading.cpu, Ordering::Relaxed);
    }

    /// Requests that the call moves to the slow lane.
    pub(crate) fn demote(&self) {
        self.demote.store(true, Ordering::Relaxed);
    }

    /// Records that the turn ends because the guest was interrupted within its budget. The check of the next epoch
    /// decides about its CPU time. It knows the guest's functions, [`Metered`] does not.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_demoted(&self) -> bool {
        self.demote.load(Ordering::Relaxed)
    }
}

/// The error of a call that has used its CPU time.
#[derive(Debug, thiserror::Error)]
#[error("the CPU time is exhausted")]
pub(crate) struct CpuExhausted;

/// The CPU time after which a call moves to the slow lane, and the CPU time after which it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub healthy: Duration,
    pub most: Duration,
}

/// A future whose turns are measured. It ends when the CPU time exceeds the budget. Epochs check the running guest,
/// this checks the host's work for the guest.
pub(crate) struct Metered<'a, T> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    meter: Arc<Meter>,
    budget: Budget,
    ticker: Arc<Ticker>,
}

impl<'a, T> Metered<'a, T> {
    pub(crate) fn new(
        meter: Arc<Meter>,
        budget: Budget,
        ticker: Arc<Ticker>,
        future: impl Future<Output = T> + Send + 'a,
    ) -> Self {
        Self { future: Some(Box::pin(future)), meter, budget, ticker }
    }
}

impl<T> Future for Metered<'_, T> {
    type Output = Result<T, CpuExhausted>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.meter.see(Reading::now());
        let this = &mut *self;
        let Some(future) = &mut this.future else { return Poll::Ready(Err(CpuExhausted)) };
        let turn = this.ticker.enter();
        let result = future.as_mut().poll(context);
        drop(turn);
        let used = self.meter.measure();
        let interrupted = self.meter.interrupted.swap(false, Ordering::Relaxed);
        match result {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending if used > self.budget.most && !interrupted => {
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

/// Returns the result of `work` and its CPU time on this thread.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Reading::now();
    let done = work();
    (done, Duration::from_nanos(began.until_now().0))
}

/// A turn that ends within this time is charged by the monotonic clock, in nanoseconds.
const SHORT: u64 = 500_000;
/// The CPU clock of a thread is read again after this time, in nanoseconds.
const STALE: u64 = 10_000_000;

/// The clocks of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    wall: u64,
    /// The CPU clock when it was last read on this thread, at most [`STALE`] before `wall`.
    cpu: u64,
}

thread_local! {
    /// The last reading of this thread's CPU clock.
    static LAST: Cell<Reading> = const { Cell::new(Reading { wall: 0, cpu: 0 }) };
}

impl Reading {
    fn now() -> Self {
        let (wall, last) = (wall_nanos(), LAST.get());
        let cpu = if wall.saturating_sub(last.wall) < STALE { last.cpu } else { Self::read_cpu(wall) };
        Self { wall, cpu }
    }

    /// Returns an upper bound of the CPU time since this reading of the same thread, and the clocks now. The bound is
    /// greater only by other work of the thread shortly before, and only if the thread was preempted.
    fn until_now(self) -> (u64, Self) {
        let wall = wall_nanos();
        let took = wall.saturating_sub(self.wall);
        if took < SHORT {
            return (took, Self { wall, ..self });
        }
        let cpu = Self::read_cpu(wall);
        (took.min(cpu.saturating_sub(self.cpu)), Self { wall, cpu })
    }

    fn read_cpu(wall: u64) -> u64 {
        let cpu = thread_cpu_nanos();
        LAST.set(Self { wall, cpu });
        cpu
    }
}

/// Returns the CPU time of this thread.
pub(crate) fn thread_cpu_time() -> Duration {
    Duration::from_nanos(thread_cpu_nanos())
}

/// Returns the CPU time of this thread in nanoseconds.
fn thread_cpu_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

fn wall_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

/// No other function of this crate reads a clock.
fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_work_counts_as_cpu_time() {
        let meter = Arc::new(Meter::default());
        let busy = |cpu: Duration| {
            let meter = meter.clone();
            move || while meter.measure() < cpu {}
        };
        // A thread that waits for other threads uses no CPU time.
        let others = || while thread_cpu_nanos() < 200_000_000 {};
        let half = busy(Duration::from_millis(5));
        let budget = Budget { healthy: Duration::from_millis(2), most: Duration::from_secs(1) };
        let metered = Metered::new(meter.clone(), budget, Arc::default(), async move {
            half();
            std::thread::spawn(others).join().unwrap();
            tokio::task::yield_now().await;
        });
        metered.await.unwrap();
        assert!(meter.is_demoted());
        let used = meter.used();
        assert!((Duration::from_millis(5)..Duration::from_millis(100)).contains(&used), "{used:?}");
        // The next turn may run on another thread, with a different CPU clock.
        let whole = busy(used + Duration::from_millis(5));
        let elsewhere = Metered::new(meter.clone(), budget, Arc::default(), async move { whole() });
        tokio::spawn(elsewhere).await.unwrap().unwrap();
        let more = meter.used() - used;
        assert!((Duration::from_millis(5)..Duration::from_millis(100)).contains(&more), "{more:?}");
    }

    /// The budget may be exceeded between the epoch's measurement and the one at the end of the turn.
    #[tokio::test]
    async fn an_interrupted_guest_is_judged_at_its_next_epoch() {
        let (budget, most) =
            (Budget { healthy: Duration::ZERO, most: Duration::from_millis(1) }, Duration::from_millis(2));
        for (interrupted, ends) in [(true, false), (false, true)] {
            let meter = Arc::new(Meter::default());
            let own = meter.clone();
            let guest = Metered::new(meter, budget, Arc::default(), async move {
                while own.measure() < most {}
                if interrupted {
                    own.interrupt();
                }
                tokio::task::yield_now().await;
            });
            assert_eq!(guest.await.is_err(), ends, "interrupted: {interrupted}");
        }
    }

    #[tokio::test]
    async fn cpu_time_of_the_host_counts_for_the_call() {
        let meter = Arc::new(Meter::default());
        let (budget, own) = (Budget { healthy: Duration::ZERO, most: Duration::from_millis(3) }, meter.clone());
        let endless = Metered::new(meter.clone(), budget, Arc::default(), async move {
            loop {
                let begun = own.measure();
                while own.measure() < begun + Duration::from_millis(1) {}
                tokio::task::yield_now().await;
            }
        });
        let ended: Result<std::convert::Infallible, CpuExhausted> = endless.await;
        assert!(ended.is_err() && meter.used() >= Duration::from_millis(3));
    }
}
