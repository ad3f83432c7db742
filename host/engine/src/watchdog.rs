//! Monitors the host's essential threads.
//!
//! The driver, the lanes and the database's writer each have a [`Pulse`], which a watchdog thread checks every second.
//! A host whose driver has ended would seem healthy while it polls nothing. So when a thread ends or hangs, the
//! watchdog logs its name, makes `/healthz` and `/readyz` fail, and ends the process, so that a supervisor restarts
//! it. With systemd's `WatchdogSec=`, the watchdog also notifies systemd while all threads work.

use crate::clock::Clock;
use model::{Moment, Pulse};
use sd_notify::NotifyState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The interval of the checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A thread that does not beat for this long hangs. Longer than a transaction on a slow disk.
const STILL: Duration = Duration::from_secs(60);
/// If the time between two checks is longer than this, the whole process was stopped.
const STOPPED: Duration = Duration::from_secs(10);
/// The time between the log line and the end of the process, for probes and log readers.
const NOTICE: Duration = Duration::from_secs(2);
/// The exit code of a host that has lost a thread: EX_SOFTWARE of sysexits.h.
const LOST: i32 = 70;

/// The monitored threads and the first failure.
#[derive(Debug)]
pub struct Health {
    pulses: Vec<Arc<Pulse>>,
    failed: RwLock<Option<String>>,
    /// The host is shutting down, so threads may end.
    ending: AtomicBool,
}

/// A pulse and its state at the last check.
struct Watched {
    pulse: Arc<Pulse>,
    beats: Option<u64>,
    since: Moment,
}

impl Health {
    /// Monitors the threads with these pulses.
    pub fn new(pulses: Vec<Arc<Pulse>>) -> Arc<Self> {
        Arc::new(Self { pulses, failed: RwLock::default(), ending: AtomicBool::new(false) })
    }

    /// The failure of this process, in one sentence; `None` while all threads work.
    pub fn failure(&self) -> Option<String> {
        self.failed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Announces the shutdown: from now on threads may end.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        notify(&[NotifyState::Stopping]);
    }

    /// Starts the watchdog thread, which runs until the host ends.
    ///
    /// # Errors
    /// If the system starts no further thread.
    pub fn watch(self: Arc<Self>, clock: Clock) -> std::io::Result<()> {
        notify(&[NotifyState::Ready]);
        let mut watched: Vec<Watched> = (self.pulses.iter())
            .map(|pulse| Watched { pulse: pulse.clone(), beats: None, since: clock.now() })
            .collect();
        let watch = move || {
            let mut checked = clock.now();
            while !self.ending.load(Ordering::Relaxed) {
                std::thread::sleep(INTERVAL);
                let now = clock.now();
                // The process or its machine was stopped, so no thread could beat.
                if now.since(std::mem::replace(&mut checked, now)) > STOPPED {
                    watched.iter_mut().for_each(|watched| watched.since = now);
                }
                match watched.iter_mut().find_map(|watched| watched.failure(now)) {
                    Some(failure) if !self.ending.load(Ordering::Relaxed) => self.give_up(failure),
                    _ => notify(&[NotifyState::Watchdog]),
                }
            }
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch).map(drop)
    }

    fn give_up(&self, failure: String) {
        tracing::error!("{failure}; this process exits with code {LOST}, so that a supervisor can restart it");
        *self.failed.write().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        std::thread::sleep(NOTICE);
        std::process::exit(LOST);
    }
}

impl Watched {
    fn failure(&mut self, now: Moment) -> Option<String> {
        let name = self.pulse.name();
        if self.pulse.has_ended() {
            return Some(format!("the thread {name} has ended"));
        }
        let beats = Some(self.pulse.beats());
        if beats != self.beats {
            (self.beats, self.since) = (beats, now);
            return None;
        }
        let still = now.since(self.since);
        (still >= STILL).then(|| format!("the thread {name} has not responded for {} s", still.as_secs()))
    }
}

/// Notifies the service manager, if there is one.
fn notify(states: &[NotifyState<'_>]) {
    // Ignore the error: the host works without a service manager.
    let _ = sd_notify::notify(states);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Alive;

    fn watched(pulse: &Arc<Pulse>) -> Watched {
        Watched { pulse: pulse.clone(), beats: None, since: Moment::START }
    }

    #[test]
    fn a_thread_that_ends_or_hangs_is_detected() {
        let pulse = Pulse::new("driver");
        let mut watched = watched(&pulse);
        let at = |seconds| Moment::START.after(Duration::from_secs(seconds));
        assert_eq!(watched.failure(at(1001)), None);
        assert_eq!(watched.failure(at(1060)), None);
        assert!(watched.failure(at(1061)).unwrap().contains("driver has not responded for 60 s"));
        pulse.beat();
        assert_eq!(watched.failure(at(1062)), None, "it works again");
        let panicked = std::thread::spawn({
            let alive = Alive(pulse.clone());
            move || {
                let _alive = alive;
                std::panic::resume_unwind(Box::new("a panic without a message"));
            }
        });
        assert!(panicked.join().is_err());
        assert!(watched.failure(at(1063)).unwrap().contains("driver has ended"));
    }
}
