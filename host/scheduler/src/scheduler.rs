//! The scheduler: it takes inputs and returns actions.

mod outcomes;
mod places;
mod quarantine;
mod reads;
mod targets;

use crate::bucket::Bucket;
use crate::hosts::Hosts;
use crate::queue::Slot;
use crate::rates::PopulationPrior;
use crate::record::Record;
use crate::target::{InFlight, ReadyEntry, Spending, Target};
use crate::{Queue, Settings, TargetSpec};
use model::{Ask, Cause, Counters, EventKind, Kind, Moment, Place, Schedule, TargetId};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// A target with this many unwritten results is not polled until the database accepts some of them.
pub const MAX_UNWRITTEN: u8 = 5;
/// Upper bound on every delay, whatever a server requested.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);
/// A poll that takes longer frees its slot of `max_in_flight` for another target, and its target counts as slow.
pub const SLOW: Duration = Duration::from_secs(1);
/// If a wake-up is later than requested by this time, the machine has slept; overdue polls are spread as at a start.
const SLEPT: Duration = Duration::from_secs(30);

/// An input of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The host started with these targets and their saved schedules; `None` for a target without one.
    Started(Vec<(TargetSpec, Option<Schedule<Moment>>)>),
    /// A target was added.
    Added(TargetSpec),
    /// A target changed.
    Changed(TargetSpec, Change),
    /// A target was removed.
    Removed(TargetId),
    /// A poll ended.
    Finished(TargetId, Finish),
    /// The number of a target's results that are not written to the database changed to this.
    Unwritten(TargetId, u8),
    /// The settings changed to these.
    Settings(Settings),
    /// A kind has a plugin (`true`) or not (`false`). A repeated `true` means that the plugin was replaced.
    KindServed(Kind, bool),
    /// An operator sent a command for a target.
    Asked(TargetId, Ask),
    /// The host is shutting down; no more polls are started.
    ShuttingDown,
    /// Time has passed.
    Tick,
}

/// The effect of a target's change on its schedule. If several apply, the first listed wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// URL, TLS, kind or secrets changed: the schedule is reset and the target is polled at once.
    Reset,
    /// Settings of its kind changed: the target is polled at once.
    PollNow,
    /// Interval or cadence changed: the next poll is computed again.
    Requeue,
    /// Name or labels changed: no effect on the schedule.
    Nothing,
}

/// How a poll ended, as far as it matters for the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The poll returned a report.
    Success {
        /// Whether a dependency's status changed.
        changed: bool,
        /// Whether a dependency that is not skipped is critical.
        critical: bool,
        /// When the plugin finds the next poll useful, from now.
        next_poll: Option<Duration>,
    },
    /// The poll failed; the next one may succeed.
    Transient {
        /// The cause of the failure.
        cause: Cause,
        /// The delay that the source requested (Retry-After).
        retry_after: Option<Duration>,
    },
    /// The poll failed and will fail again until the target or its configuration changes.
    Permanent {
        /// The cause of the failure.
        cause: Cause,
        /// The delay that the source requested (Retry-After).
        retry_after: Option<Duration>,
    },
    /// The plugin failed, not the target.
    PluginFault,
    /// The poll did not run because it got no instance slot.
    Skipped,
}

/// An action that the scheduler requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Poll this target. The moment is the due time of the poll.
    Start(TargetId, Moment),
    /// Publish this event.
    Emit(EventKind),
    /// Save the schedule of this target.
    Persist {
        /// The id of the target.
        target: TargetId,
        /// True if a streak, the breaker or the dead letter changed, and not only the next due time.
        urgent: bool,
    },
    /// The target is in a different place than at the last drain. An added target starts as [`Place::Disabled`].
    Moved(TargetId, Place),
}

/// Decides when each target is polled.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    rng: Pcg64Mcg,
    /// Targets that wait for their due time. Its slots also index `targets`.
    queue: Queue,
    targets: Vec<Option<Target>>,
    /// Due targets that only a process-wide cap holds back.
    ready: BTreeSet<ReadyEntry>,
    /// Like `ready`, for targets whose last poll was slow or failed. They share half of `max_in_flight`.
    doubtful: BTreeSet<ReadyEntry>,
    /// Polls in flight that count against that half.
    doubtful_in_flight: usize,
    hosts: Hosts,
    in_flight: usize,
    /// Start times of the polls in flight that count against `max_in_flight`, by poll number.
    young: BTreeMap<u64, Moment>,
    in_flight_by_kind: BTreeMap<Kind, usize>,
    /// Polls in flight of removed targets.
    orphans: HashMap<TargetId, InFlight>,
    unserved: HashSet<Kind>,
    /// Fault records of plugins, by kind; only of plugins with faults.
    records: BTreeMap<Kind, Record>,
    /// Dead letters that a success of another target of the same origin revives, by origin.
    revivable: BTreeMap<Arc<str>, BTreeMap<TargetId, Slot>>,
    bucket: Bucket,
    /// The rates of change over all targets.
    population_prior: PopulationPrior,
    /// The sum of all targets' spending.
    spending: Spending,
    /// The latest `now` of any input; time never goes back.
    latest: Moment,
    /// Polls that a process-wide cap held back at the end of the last step.
    held: usize,
    /// The number of calls of `apply`.
    step: u64,
    /// Targets that became ready in this step.
    entered: u64,
    /// Of these, targets that are no longer ready.
    left: u64,
    stopping: bool,
    counters: Counters,
    actions: Vec<Action>,
    /// Targets whose place may have changed since the last drain.
    moved: Vec<Slot>,
}

impl Scheduler {
    /// Creates a scheduler without targets. The seed determines all jitter.
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
            revivable: BTreeMap::new(),
            bucket: Bucket::new(),
            population_prior: PopulationPrior::new(),
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

    /// Applies an input and starts all due polls. A `now` before the previous one counts as the previous one.
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
                        // The target may be a probe now.
                        self.park(slot);
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
            // The chosen probe was skipped; choose another one.
            self.choose_probes(now);
            self.dispatch(now);
        }
    }

    /// Removes and returns the actions since the last drain; [`Action::Moved`] comes last.
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

    /// Returns when the next action follows from time alone; `None` if no target is queued or no poll may start.
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

    /// Returns true if one more target whose last poll was slow or failed may be polled.
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
