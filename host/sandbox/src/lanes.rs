//! The runtimes of polls.
//!
//! A lane is a current-thread runtime on its own thread. There is one lane per core, and as many are in use as the load
//! needs, because two threads that wake for half of the polls each cost more than one that wakes for all of them. A
//! target runs on the same lane until the number of used lanes changes. The slow lane runs polls that have used more
//! CPU than a healthy poll. It checks its timers and its queue after every turn, so that endless loops share it fairly.

use crate::meter::thread_cpu_time;
use model::{Alive, Pulse, TargetId};
use std::future::Future;
use std::hash::BuildHasher;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Interval of the signs of life of a lane, and of the choice of how many lanes are in use.
const BEAT: Duration = Duration::from_secs(5);
/// If a lane is busier than this, in thousandths, one more is used.
const CROWDED: u32 = 500;
/// If the lanes in use would be less busy than this with one less, in thousandths, one less is used. It is well below
/// [`CROWDED`], so that their number does not swing.
const SPARE: u32 = 350;

/// All lanes of a process.
pub struct Lanes {
    lanes: Vec<Lane>,
    load: Arc<Load>,
    slow: Option<Runtime>,
    pulses: Vec<Arc<Pulse>>,
}

/// How busy the lanes are, and how many of them are in use.
struct Load {
    /// The CPU time of each lane in its last interval, in thousandths of the interval.
    busy: Vec<AtomicU32>,
    used: AtomicUsize,
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
        // All lanes at first: a start has many polls to catch up with.
        let busy = (0..count.get()).map(|_| AtomicU32::new(0)).collect();
        let load = Arc::new(Load { busy, used: AtomicUsize::new(count.get()) });
        let lanes = (0..count.get()).zip(&pulses);
        let lanes = lanes.map(|(index, pulse)| Lane::start(pulse, egress, (load.clone(), index)));
        let lanes = lanes.collect::<io::Result<_>>()?;
        let slow = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("slow-lane")
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()?;
        slow.spawn(beat(Alive(pulses[count.get()].clone()), || ()));
        Ok(Self { lanes, load, slow: Some(slow), pulses })
    }

    /// Returns the signs of life of all lanes.
    pub fn pulses(&self) -> &[Arc<Pulse>] {
        &self.pulses
    }

    /// Runs work on the lanes of its targets. Each lane is woken once for all of its work.
    pub fn spawn_all<W, F>(&self, all: impl IntoIterator<Item = (TargetId, W)>, run: fn(W) -> F)
    where
        W: Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut by_lane: Vec<Vec<W>> = self.lanes.iter().map(|_| Vec::new()).collect();
        for (target, work) in all {
            by_lane[self.index_of(&target)].push(work);
        }
        for (lane, works) in self.lanes.iter().zip(by_lane).filter(|(_, works)| !works.is_empty()) {
            lane.handle.spawn(async move {
                for work in works {
                    tokio::spawn(run(work));
                }
            });
        }
    }

    /// Returns the egress of a target's lane.
    pub fn egress(&self, target: &TargetId) -> egress::Lane {
        self.of(target).egress.clone()
    }

    pub(crate) fn slow(&self) -> &Handle {
        self.slow.as_ref().expect("only drop removes the slow lane").handle()
    }

    fn of(&self, target: &TargetId) -> &Lane {
        &self.lanes[self.index_of(target)]
    }

    fn index_of(&self, target: &TargetId) -> usize {
        let hash = foldhash::fast::FixedState::default().hash_one(target);
        hash as usize % self.load.used.load(Ordering::Relaxed)
    }
}

impl Load {
    /// Notes how busy a lane was. The first lane, which is always in use, then chooses how many are.
    fn note(&self, lane: usize, busy: u32) {
        self.busy[lane].store(busy, Ordering::Relaxed);
        if lane == 0 {
            let busy: Vec<u32> = self.busy.iter().map(|busy| busy.load(Ordering::Relaxed)).collect();
            self.used.store(lanes_to_use(self.used.load(Ordering::Relaxed), &busy), Ordering::Relaxed);
        }
    }
}

/// Returns how many lanes to use, if `used` are in use now and each of all lanes is so busy, in thousandths.
fn lanes_to_use(used: usize, busy: &[u32]) -> usize {
    let in_use = &busy[..used];
    if in_use.iter().any(|busy| *busy > CROWDED) {
        return (used + 1).min(busy.len());
    }
    let with_one_less = in_use.iter().sum::<u32>().checked_div(used as u32 - 1);
    if with_one_less.is_some_and(|busy| busy < SPARE) { used - 1 } else { used }
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
    fn start(pulse: &Arc<Pulse>, egress: &egress::Egress, (load, index): (Arc<Load>, usize)) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        // Shut down in the background, because a hanging name lookup must not delay the end.
        let alive = Alive(pulse.clone());
        let run = move || {
            let mut last = (Instant::now(), thread_cpu_time());
            let measure = move || {
                let now = (Instant::now(), thread_cpu_time());
                let (wall, cpu) = (now.0.duration_since(last.0), now.1.saturating_sub(last.1));
                last = now;
                load.note(index, (cpu.as_secs_f64() * 1000.0 / wall.as_secs_f64().max(0.001)) as u32);
            };
            runtime.spawn(beat(alive, measure));
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name(pulse.name().to_owned()).spawn(run)?;
        let egress = egress.lane(handle.clone());
        Ok(Self { handle, egress, stop: Some(stop), thread: Some(thread) })
    }
}

/// Reports signs of life of a runtime until the runtime ends, and calls `measure` after each interval.
async fn beat(alive: Alive, mut measure: impl FnMut()) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        alive.0.beat();
        ticks.tick().await;
        measure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lanes_are_used_as_the_load_needs() {
        let cases: [(usize, &[u32], usize); 10] = [
            (1, &[100, 0], 1),
            (1, &[CROWDED, 0], 1),
            (1, &[CROWDED + 1, 0], 2),
            (2, &[CROWDED + 1, 10], 2),
            (2, &[200, 200], 2),
            (2, &[170, 170], 1),
            (2, &[0, 0], 1),
            (4, &[340, 340, 340, 20], 3),
            (4, &[400, 400, 400, 20], 4),
            (1, &[1000], 1),
        ];
        for (used, busy, expected) in cases {
            assert_eq!(lanes_to_use(used, busy), expected, "{used} of {busy:?}");
        }
    }
}
