//! The clock by which running guests are interrupted.
//!
//! A thread ticks every 2 ms while guests run. An idle host polls a few times a second, and 500 wake-ups a second would
//! cost more than its polls. So the thread sleeps when the guests of about one poll have come and gone since the last
//! tick, and the next guest wakes it. If no guest runs, the next tick comes after 4 ms, and so does the first one
//! after a sleep. A guest that never returns is noticed as soon as with ticks every 2 ms, 2 to 4 ms after it began: a
//! tick that comes later finds that it has used its 2 ms.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// Interval at which the CPU time of running guests is checked.
const TICK: Duration = Duration::from_millis(2);
/// The interval while guests come and go, and after a sleep.
const PASSING: Duration = Duration::from_millis(4);
/// About the number of entries into the guest in a poll with one request. With no more per interval, the thread sleeps.
const ENTRIES_OF_A_POLL: u64 = 3;

/// The state that the thread shares with the runtimes of guests.
#[derive(Default)]
pub(crate) struct Ticker {
    /// How often guests were entered, and how often they were left.
    entered: AtomicU64,
    left: AtomicU64,
    sleeps: AtomicBool,
    stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

/// A guest that may run. The drop ends its turn.
pub(crate) struct Turn<'a>(&'a Ticker);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::SeqCst);
    }
}

impl Ticker {
    /// Starts a thread that calls `tick` while guests run, until it returns false.
    pub(crate) fn start(tick: impl Fn() -> bool + Send + 'static) -> io::Result<Arc<Self>> {
        let ticker = Arc::new(Self::default());
        let own = ticker.clone();
        let thread = thread::Builder::new().name("epoch".to_owned()).spawn(move || own.run(tick))?;
        // Only this function sets it.
        let _ = ticker.thread.set(thread.thread().clone());
        Ok(ticker)
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Begins a turn of a guest.
    pub(crate) fn enter(&self) -> Turn<'_> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            self.wake();
        }
        Turn(self)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn run(&self, tick: impl Fn() -> bool) {
        let mut seen = 0;
        loop {
            // Read in this order: a guest that enters in between counts as running.
            let left = self.left.load(Ordering::SeqCst);
            let entered = self.entered.load(Ordering::SeqCst);
            let is_running = entered != left;
            if !is_running && entered - seen <= ENTRIES_OF_A_POLL {
                self.sleep(entered);
            }
            seen = entered;
            thread::sleep(if is_running { TICK } else { PASSING });
            if self.stopped.load(Ordering::SeqCst) || !tick() {
                return;
            }
        }
    }

    /// Sleeps until a guest enters, unless one has entered since `seen`.
    fn sleep(&self, seen: u64) {
        self.sleeps.store(true, Ordering::SeqCst);
        // A guest that enters after this check sees the flag and wakes the thread. If it does so before `park`, `park`
        // returns at once.
        while self.entered.load(Ordering::SeqCst) == seen && !self.stopped.load(Ordering::SeqCst) {
            thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn ticker() -> (Arc<Ticker>, Receiver<()>) {
        let (sender, ticks) = channel();
        (Ticker::start(move || sender.send(()).is_ok()).unwrap(), ticks)
    }

    #[test]
    fn it_ticks_while_a_guest_runs_and_after_it_has_slept() {
        let (ticker, ticks) = ticker();
        for _ in 0..3 {
            let turn = ticker.enter();
            while ticks.try_recv().is_ok() {}
            for _ in 0..5 {
                ticks.recv().unwrap();
            }
            drop(turn);
            while !ticker.sleeps.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
        ticker.stop();
        while ticks.recv().is_ok() {}
    }

    #[test]
    fn it_sleeps_without_guests_and_ends() {
        let (ticker, ticks) = ticker();
        while !ticker.sleeps.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert_eq!(ticks.try_iter().count(), 0);
        ticker.stop();
        assert!(ticks.recv().is_err(), "the thread has ended without a tick");
    }
}
