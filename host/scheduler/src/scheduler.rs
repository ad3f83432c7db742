//! The scheduler itself: inputs in, actions out.

mod outcomes;
mod places;
mod quarantine;
mod reads;
mod targets;

use crate::bucket::Bucket;
use crate::hosts::Hosts;
use crate::queue::Slot;
use crate::rates::Usual;
use crate::record::Record;
use crate::target::{Flight, Spending, Target, Turn};
use crate::{Queue, Settings, TargetSpec};
use model::{Ask, Cause, Counters, EventKind, Kind, Moment, Place, Schedule, TargetId};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Results of one target that may wait for the database before it is polled no more.
pub const MAX_UNWRITTEN: u8 = 5;
/// No delay is longer, whatever a machine sent.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);
/// A poll that takes longer leaves its slot of `max_in_flight` to another, and makes its target a slow one.
pub const SLOW: Duration = Duration::from_secs(1);
/// A host that wakes this much later than it asked to has slept; what fell due meanwhile is spread as at a start.
const SLEPT: Duration = Duration::from_secs(30);

/// What the scheduler is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The host starts with these targets, and with what is known of their schedules.
    Started(Vec<(TargetSpec, Option<Schedule<Moment>>)>),
    /// A target is new.
    Added(TargetSpec),
    /// A target is another than before.
    Changed(TargetSpec, Change),
    /// A target is gone.
    Removed(TargetId),
    /// A poll ended.
    Finished(TargetId, Finish),
    /// This many results of a target wait for the database.
    Unwritten(TargetId, u8),
    /// The settings are these now.
    Settings(Settings),
    /// Whether a plugin serves a kind; served again means that it is another version now.
    KindServed(Kind, bool),
    /// An operator wants something.
    Asked(TargetId, Ask),
    /// Nothing more is to be started.
    ShuttingDown,
    /// Nothing but time.
    Tick,
}

/// What a change of a target means for its schedule. Several at once: the first of these that is among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// URL, TLS, kind or secrets: everything starts anew, and it is polled at once.
    Reset,
    /// Settings of its kind: it is polled at once.
    PollNow,
    /// Interval or cadence: its next poll is computed again.
    Requeue,
    /// Name or labels: nothing.
    Nothing,
}

/// How a poll ended, as far as the next one is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// There is a report.
    Success {
        /// Whether a dependency's status changed.
        changed: bool,
        /// Whether a dependency that is not skipped is critical.
        critical: bool,
    },
    /// Failed; another try may help.
    Transient {
        /// What it was about.
        cause: Cause,
        /// How long the source asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Failed, and fails again until somebody changes something.
    Permanent {
        /// What it was about.
        cause: Cause,
        /// How long the source asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The plugin failed, not the target.
    PluginFault,
    /// It never began.
    Skipped,
}

/// What the scheduler wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Poll this target; the poll was due at that moment.
    Start(TargetId, Moment),
    /// Tell that this happened.
    Emit(EventKind),
    /// The schedule of this target changed. Urgent: streaks, breaker or dead letter, not only the next due time.
    Persist {
        /// Whose schedule.
        target: TargetId,
        /// Whether it must not be lost.
        urgent: bool,
    },
    /// The target is in another place than at the last drain.
    Moved(TargetId, Place),
}

/// When to poll whom.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    rng: Pcg64Mcg,
    /// Who waits for a due time; its slots number the targets too.
    queue: Queue,
    targets: Vec<Option<Target>>,
    /// Due, and held back by nothing but a cap over the process.
    ready: BTreeSet<Turn>,
    /// The same, of targets that were slow or failed last time: they share half of `max_in_flight`.
    doubtful: BTreeSet<Turn>,
    /// Polls under way that take from that half.
    doubtful_in_flight: usize,
    hosts: Hosts,
    in_flight: usize,
    /// When those of them began that take a slot of `max_in_flight`, by their numbers.
    young: BTreeMap<u64, Moment>,
    in_flight_by_kind: BTreeMap<Kind, usize>,
    /// Polls under way of targets that are gone.
    orphans: HashMap<TargetId, Flight>,
    unserved: HashSet<Kind>,
    /// What is held against plugins; of most nothing.
    records: BTreeMap<Kind, Record>,
    /// Dead letters that a success of another target of their origin may revive.
    hopeful: BTreeMap<Arc<str>, BTreeMap<TargetId, Slot>>,
    bucket: Bucket,
    /// How often targets change, taken all together.
    usual: Usual,
    /// What all targets spend.
    spending: Spending,
    /// The latest moment that was heard of; time does not go back.
    latest: Moment,
    /// Polls that a cap over the process held back at the end of the last step.
    held: usize,
    /// Counts calls of `apply`.
    step: u64,
    /// Targets that became ready in this step, and those of them that did not stay so.
    entered: u64,
    left: u64,
    stopping: bool,
    counters: Counters,
    actions: Vec<Action>,
    /// Targets whose place may have changed since the last drain.
    moved: Vec<Slot>,
}

impl Scheduler {
    /// A scheduler without targets. The seed decides every jitter.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            rng: Pcg64Mcg::seed_from_u64(seed),
            queue: Queue::new(),
            targets: Vec::new(),
            ready: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            doubtful_in_flight: 0,
            hosts: Hosts::default(),
            in_flight: 0,
            young: BTreeMap::new(),
            in_flight_by_kind: BTreeMap::new(),
            orphans: HashMap::new(),
            unserved: HashSet::new(),
            records: BTreeMap::new(),
            hopeful: BTreeMap::new(),
            bucket: Bucket::new(),
            usual: Usual::new(),
            spending: Spending::default(),
            latest: Moment::from_nanos(i64::MIN),
            held: 0,
            step: 0,
            entered: 0,
            left: 0,
            stopping: false,
            counters: Counters::default(),
            actions: Vec::new(),
            moved: Vec::new(),
        }
    }

    /// Takes an input, and starts whatever is due. A moment before the last one counts as the last one.
    pub fn apply(&mut self, input: Input, now: Moment) {
        let now = now.max(self.latest);
        self.step += 1;
        (self.entered, self.left) = (0, 0);
        self.wake(now);
        match input {
            Input::Started(targets) => self.start(targets, now),
            Input::Added(spec) => self.add(spec, now),
            Input::Changed(spec, change) => self.change(spec, change, now),
            Input::Removed(target) => self.remove(&target),
            Input::Finished(target, finish) => self.finish(&target, finish, now),
            Input::Unwritten(target, count) => {
                if let Some(slot) = self.queue.slot(&target) {
                    self.target_mut(slot).unwritten = count;
                    if self.target(slot).place == Place::Quarantined {
                        // It may be a probe now.
                        self.put_aside(slot);
                    }
                }
            }
            Input::Settings(settings) => self.set(settings, now),
            Input::KindServed(kind, served) => self.serve(kind, served, now),
            Input::Asked(target, ask) => self.ask(&target, ask, now),
            Input::ShuttingDown => self.stopping = true,
            Input::Tick => {}
        }
        self.choose_probes(now);
        self.dispatch(now);
        if self.next_probe().is_some_and(|at| at <= now) {
            // A probe was left out when its turn came; another one takes its place.
            self.choose_probes(now);
            self.dispatch(now);
        }
    }

    /// Takes the actions since the last drain, those that only say where targets are now last.
    pub fn drain(&mut self) -> Vec<Action> {
        let mut actions = std::mem::take(&mut self.actions);
        for slot in std::mem::take(&mut self.moved) {
            let Some(target) = self.targets.get_mut(slot.index()).and_then(Option::as_mut) else { continue };
            if target.place != target.announced {
                target.announced = target.place;
                actions.push(Action::Moved(target.spec.id.clone(), target.place));
            }
        }
        actions
    }

    /// When time alone will cause an action; none while nothing is queued or nothing may start.
    pub fn next_wakeup(&self) -> Option<Moment> {
        if self.stopping {
            return None;
        }
        let waits = !self.ready.is_empty() || (!self.doubtful.is_empty() && self.may_doubt());
        let room = waits && self.young.len() < self.max_in_flight();
        let token = room.then(|| self.bucket.next(self.settings.rate_per_second));
        let slot = if waits && !room { self.next_to_leave() } else { None };
        let probe = self.next_probe();
        self.queue.next_due().into_iter().chain(token).chain(slot).chain(probe).min()
    }

    fn max_in_flight(&self) -> usize {
        self.settings.max_in_flight.max(1)
    }

    /// Whether one more target that was slow or failed last time may be polled.
    fn may_doubt(&self) -> bool {
        self.doubtful_in_flight < (self.max_in_flight() / 2).max(1)
    }

    fn target(&self, slot: Slot) -> &Target {
        self.targets[slot.index()].as_ref().expect("a registered slot has a target")
    }

    fn target_mut(&mut self, slot: Slot) -> &mut Target {
        self.targets[slot.index()].as_mut().expect("a registered slot has a target")
    }

    fn emit(&mut self, event: EventKind) {
        self.actions.push(Action::Emit(event));
    }

    fn persist(&mut self, slot: Slot, urgent: bool) {
        let target = self.queue.id(slot).clone();
        self.actions.push(Action::Persist { target, urgent });
    }
}

#[cfg(test)]
mod tests;
