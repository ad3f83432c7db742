//! The runtimes of polls.
//!
//! A lane is a current-thread runtime on its own thread. There is one lane per core, and a target always runs on the
//! same lane. The slow lane runs polls that have used more CPU than a healthy poll. It checks its timers and its queue
//! after every turn, so that endless loops share it fairly.

use model::{Alive, Pulse, TargetId};
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Interval of the signs of life of a lane.
const BEAT: Duration = Duration::from_secs(5);

/// All lanes of a process.
pub struct Lanes {
    lanes: Vec<Lane>,
    slow: Option<Runtime>,
    pulses: Vec<Arc<Pulse>>,
}

struct Lane {
    handle: Handle,
    egress: egress::Lane,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lanes {
    /// Starts `count` lanes and the slow lane.
    pub fn start(count: NonZeroUsize, egress: &egress::Egress) -> io::Result<Self> {
        let pulses: Vec<Arc<Pulse>> = (0..count.get())
            .map(|index| Pulse::new(format!("lane-{index}")))
            .chain([Pulse::new("slow-lane")])
            .collect();
        let lanes =
            pulses.iter().take(count.get()).map(|pulse| Lane::start(pulse, egress)).collect::<io::Result<_>>()?;
        let slow = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("slow-lane")
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()?;
        slow.spawn(beat(Alive(pulses[count.get()].clone())));
        Ok(Self { lanes, slow: Some(slow), pulses })
    }

    /// Returns the signs of life of all lanes.
    pub fn pulses(&self) -> &[Arc<Pulse>] {
        &self.pulses
    }

    /// Runs a future on a target's lane.
    pub fn spawn(&self, target: &TargetId, future: impl Future<Output = ()> + Send + 'static) {
        self.of(target).handle.spawn(future);
    }

    /// Returns the egress of a target's lane.
    pub fn egress(&self, target: &TargetId) -> egress::Lane {
        self.of(target).egress.clone()
    }

    pub(crate) fn slow(&self) -> &Handle {
        self.slow.as_ref().expect("only drop removes the slow lane").handle()
    }

    fn of(&self, target: &TargetId) -> &Lane {
        let mut hasher = DefaultHasher::new();
        target.hash(&mut hasher);
        &self.lanes[hasher.finish() as usize % self.lanes.len()]
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            drop(lane.stop.take());
        }
        for lane in &mut self.lanes {
            // The last poll may drop the lanes on one of their own threads, which cannot join itself.
            let is_own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
            if let Some(thread) = lane.thread.take().filter(|thread| !is_own(thread)) {
                let _ = thread.join();
            }
        }
        if let Some(slow) = self.slow.take() {
            slow.shutdown_background();
        }
    }
}

impl Lane {
    fn start(pulse: &Arc<Pulse>, egress: &egress::Egress) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        // Shut down in the background, because a hanging name lookup must not delay the end.
        let alive = Alive(pulse.clone());
        let run = move || {
            runtime.spawn(beat(alive));
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(pulse.name().to_owned()).spawn(run)?;
        let egress = egress.lane(handle.clone());
        Ok(Self { handle, egress, stop: Some(stop), thread: Some(thread) })
    }
}

/// Reports signs of life of a runtime until the runtime ends.
async fn beat(alive: Alive) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        alive.0.beat();
        ticks.tick().await;
    }
}
