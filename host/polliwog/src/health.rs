//! Whether the threads that everything depends on still work.
//!
//! The driver, the lanes and the database's writer each have a [`Pulse`]. A thread of its own compares them every second. A
//! host whose driver has ended would look well to everybody while it polls nothing; so the first thread that ends or stands
//! still makes `/healthz` and `/readyz` fail, is named in the log, and ends the process, so that a supervisor starts it
//! again. With systemd's `WatchdogSec=` the supervisor is told as well, for as long as all is well.

use engine::Clock;
use model::{Moment, Pulse};
use sd_notify::NotifyState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How often the pulses are compared.
const LOOK: Duration = Duration::from_secs(1);
/// A thread that works and does not beat for so long stands still. Longer than a transaction on a slow disk takes.
const STILL: Duration = Duration::from_secs(60);
/// A look that comes so late says that all threads stood still, this one too.
const STOPPED: Duration = Duration::from_secs(10);
/// Between the log line and the end, so that probes and readers of the log can see why.
const NOTICE: Duration = Duration::from_secs(2);
/// The exit code of a host that has lost a thread: EX_SOFTWARE of sysexits.h.
const LOST: i32 = 70;

/// What is watched, and what was found.
pub(crate) struct Health {
    pulses: Vec<Arc<Pulse>>,
    failed: RwLock<Option<String>>,
    /// The host is to end: threads that end are right.
    ending: AtomicBool,
}

/// A pulse as it was when it was last compared.
struct Watched {
    pulse: Arc<Pulse>,
    beats: Option<u64>,
    since: Moment,
}

impl Health {
    /// Of these threads.
    pub(crate) fn new(pulses: Vec<Arc<Pulse>>) -> Arc<Self> {
        Arc::new(Self { pulses, failed: RwLock::default(), ending: AtomicBool::new(false) })
    }

    /// What is wrong with this process, in one sentence.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on threads may end.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
        tell(&[NotifyState::Stopping]);
    }

    /// Watches until the host ends, from a thread that nothing else depends on.
    pub(crate) fn watch(self: Arc<Self>, clock: Clock) -> std::io::Result<()> {
        tell(&[NotifyState::Ready]);
        let mut watched: Vec<Watched> = (self.pulses.iter())
            .map(|pulse| Watched { pulse: pulse.clone(), beats: None, since: clock.now() })
            .collect();
        let look = move || {
            let mut looked = clock.now();
            while !self.ending.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                let now = clock.now();
                // The whole process was stopped, or its machine: nobody could beat.
                if now.since(std::mem::replace(&mut looked, now)) > STOPPED {
                    watched.iter_mut().for_each(|watched| watched.since = now);
                }
                match watched.iter_mut().find_map(|watched| watched.failure(now)) {
                    Some(failure) if !self.ending.load(Ordering::Relaxed) => self.give_up(failure),
                    _ => tell(&[NotifyState::Watchdog]),
                }
            }
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(look).map(drop)
    }

    fn give_up(&self, failure: String) {
        tracing::error!("{failure}; this process ends with code {LOST}, so that it can be started again");
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
        (still >= STILL).then(|| format!("the thread {name} has stood still for {} s", still.as_secs()))
    }
}

/// Tells the service manager, where there is one.
fn tell(states: &[NotifyState<'_>]) {
    // A service manager that does not listen is no trouble of ours.
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
    fn a_thread_that_ends_or_stands_still_is_found() {
        let pulse = Pulse::new("driver");
        let mut watched = watched(&pulse);
        let at = |seconds| Moment::START.after(Duration::from_secs(seconds));
        assert_eq!(watched.failure(at(1001)), None);
        assert_eq!(watched.failure(at(1060)), None);
        assert!(watched.failure(at(1061)).unwrap().contains("driver has stood still for 60 s"));
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
