//! The scheduler itself: inputs in, actions out.

mod outcomes;
mod places;

use crate::bucket::Bucket;
use crate::hosts::Hosts;
use crate::spread;
use crate::target::Target;
use crate::{Breaker, Place, Queue, Saved, Settings, TargetSpec, TargetStatus};
use model::{Cause, EventKind, Kind, Moment, TargetId};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Transient failures in a row that make a dead letter.
const DEAD_LETTER_FAILURES: u32 = 5;
/// Results of one target that may wait for the database before it is polled no more.
const MAX_UNWRITTEN: u8 = 5;
/// A probe comes this much later at most, as a fraction, so that those who failed together are not tried together.
const PROBE_SPREAD: f64 = 0.1;
/// No delay is longer, whatever a machine sent.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

/// What the scheduler is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The host starts with these targets, and with what is known of their schedules.
    Started(Vec<(TargetSpec, Option<Saved>)>),
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
    /// Whether a plugin serves a kind.
    KindServed(Kind, bool),
    /// An operator wants something.
    Asked(TargetId, Ask),
    /// Nothing more is to be started.
    ShuttingDown,
    /// Nothing but time.
    Tick,
}

/// What a change of a target means for its schedule.
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

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Poll at once, in whatever state it is.
    PollNow,
    /// Take it out of the dead letters and poll at once.
    Retry,
    /// Close its breaker, forget its failures, and poll at once.
    ResetBreaker,
    /// Poll it again.
    Enable,
    /// Poll it no more; what is known stays.
    Disable,
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
}

/// How often things happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Polls started.
    pub started: u64,
    /// Polls that ended with a report.
    pub succeeded: u64,
    /// Polls that ended without one.
    pub failed: u64,
    /// Polls held back because too many were in flight, or by the token bucket.
    pub held_by_caps: u64,
    /// Polls that waited for a slot of their host.
    pub held_by_hosts: u64,
    /// Polls left out because the target's results were not yet written.
    pub skipped_unwritten: u64,
    /// Polls that never got an instance slot.
    pub skipped_no_slot: u64,
}

#[derive(Debug)]
struct Flight {
    host: Arc<str>,
    kind: Kind,
    due: Moment,
    /// The target was changed or removed since; its outcome says nothing any more.
    void: bool,
}

/// When to poll whom.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    rng: Pcg64Mcg,
    targets: HashMap<TargetId, Target>,
    queue: Queue,
    /// Due, and held back by nothing but a cap over the process.
    ready: Queue,
    hosts: Hosts,
    flights: HashMap<TargetId, Flight>,
    in_flight_by_kind: BTreeMap<Kind, usize>,
    unserved: HashSet<Kind>,
    /// Dead letters that a success of another target of their origin may revive.
    hopeful: BTreeMap<Arc<str>, BTreeSet<TargetId>>,
    bucket: Bucket,
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
}

impl Scheduler {
    /// A scheduler without targets. The seed decides every jitter.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            rng: Pcg64Mcg::seed_from_u64(seed),
            targets: HashMap::new(),
            queue: Queue::new(),
            ready: Queue::new(),
            hosts: Hosts::default(),
            flights: HashMap::new(),
            in_flight_by_kind: BTreeMap::new(),
            unserved: HashSet::new(),
            hopeful: BTreeMap::new(),
            bucket: Bucket::new(),
            held: 0,
            step: 0,
            entered: 0,
            left: 0,
            stopping: false,
            counters: Counters::default(),
            actions: Vec::new(),
        }
    }

    /// Takes an input, and starts whatever is due.
    pub fn apply(&mut self, input: Input, now: Moment) {
        self.step += 1;
        (self.entered, self.left) = (0, 0);
        match input {
            Input::Started(targets) => self.start(targets, now),
            Input::Added(spec) => self.add(spec, now),
            Input::Changed(spec, change) => self.change(spec, change, now),
            Input::Removed(target) => self.remove(&target),
            Input::Finished(target, finish) => self.finish(&target, finish, now),
            Input::Unwritten(target, count) => self.with(&target, |target| target.unwritten = count),
            Input::Settings(settings) => self.set(settings, now),
            Input::KindServed(kind, served) => self.serve(kind, served, now),
            Input::Asked(target, ask) => self.ask(&target, ask, now),
            Input::ShuttingDown => self.stopping = true,
            Input::Tick => {}
        }
        self.dispatch(now);
    }

    /// Takes what is to be done since the last time.
    pub fn drain(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When time alone will cause an action; none while nothing is queued or nothing may start.
    pub fn next_wakeup(&self) -> Option<Moment> {
        if self.stopping {
            return None;
        }
        let due = self.queue.peek().map(|entry| entry.due);
        let room = !self.ready.is_empty() && self.flights.len() < self.settings.max_in_flight;
        let token = room.then(|| self.bucket.next(self.settings.rate_per_second));
        due.into_iter().chain(token).min()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How often things happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Targets that wait for their due time, a host or a cap.
    pub fn depth(&self) -> usize {
        self.queue.len() + self.ready.len() + self.hosts.waiting()
    }

    /// How many targets of each kind are queued.
    pub fn depth_by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut depth = self.queue.by_kind().clone();
        let elsewhere = (self.targets.values())
            .filter(|target| matches!(target.place, Place::Ready | Place::WaitingForHost))
            .map(|target| &target.spec.kind);
        for kind in elsewhere {
            *depth.entry(kind.clone()).or_default() += 1;
        }
        depth
    }

    /// How many targets are due within `window` from now, those that wait for a host or a cap among them.
    pub fn due_within(&self, now: Moment, window: Duration) -> usize {
        let waiting = self.ready.len() + self.hosts.waiting();
        waiting + self.queue.peek_due(now.after(window), usize::MAX).len()
    }

    /// Polls in flight, by kind.
    pub fn in_flight(&self) -> &BTreeMap<Kind, usize> {
        &self.in_flight_by_kind
    }

    /// One target's schedule.
    pub fn status(&self, target: &TargetId, now: Moment) -> Option<TargetStatus> {
        self.targets.get(target).map(|target| target.status(&self.settings, now))
    }

    /// What of one target's schedule is to be stored.
    pub fn saved(&self, target: &TargetId, now: Moment) -> Option<Saved> {
        self.targets.get(target).map(|target| target.saved(now))
    }

    // --- targets come, change and go -------------------------------------------------------------------------------

    fn start(&mut self, mut targets: Vec<(TargetSpec, Option<Saved>)>, now: Moment) {
        targets.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        let mut overdue = Vec::new();
        for (spec, saved) in targets {
            let first = saved.is_none();
            let id = spec.id.clone();
            let enabled = spec.enabled;
            let mut target = Target {
                spec,
                place: Place::Disabled,
                schedule: saved.unwrap_or_else(|| Saved::new(now)),
                unwritten: 0,
                ready_since: 0,
            };
            let latest = target.latest_due(&self.settings, now);
            target.schedule.due = target.schedule.due.min(latest);
            if first || target.schedule.due <= now {
                overdue.push((id.clone(), target.spec.url_hash, target.bounds(&self.settings).base));
            }
            self.targets.insert(id.clone(), target);
            self.index_hope(&id);
            if first && enabled {
                self.emit(EventKind::ServiceStarted { target: id.clone() });
            }
            self.settle(&id);
        }
        let delays = spread::delays(&overdue.iter().map(|&(_, hash, interval)| (hash, interval)).collect::<Vec<_>>());
        for ((id, ..), delay) in overdue.into_iter().zip(delays) {
            self.with(&id, |target| target.schedule.due = now.after(delay));
            self.settle(&id);
        }
    }

    fn add(&mut self, spec: TargetSpec, now: Moment) {
        let id = spec.id.clone();
        if self.targets.contains_key(&id) {
            return self.change(spec, Change::Reset, now);
        }
        if spec.enabled {
            self.emit(EventKind::ServiceStarted { target: id.clone() });
        }
        let target = Target { spec, place: Place::Disabled, schedule: Saved::new(now), unwritten: 0, ready_since: 0 };
        self.targets.insert(id.clone(), target);
        self.void_flight(&id);
        self.settle(&id);
        self.persist(&id, true);
    }

    fn change(&mut self, spec: TargetSpec, change: Change, now: Moment) {
        let id = spec.id.clone();
        let Some(target) = self.targets.get(&id) else { return self.add(spec, now) };
        let was_enabled = target.spec.enabled;
        self.take_out(&id);
        self.forget_hope(&id);
        let enabled = spec.enabled;
        self.with(&id, |target| {
            target.spec = spec;
            match change {
                Change::Reset => {
                    target.schedule.reset();
                    target.schedule.due = now;
                }
                Change::PollNow => target.schedule.due = now,
                Change::Requeue | Change::Nothing => {}
            }
        });
        if change == Change::Reset {
            self.void_flight(&id);
        }
        if change == Change::Requeue {
            self.recompute(&id, now);
        }
        self.index_hope(&id);
        match (was_enabled, enabled) {
            (false, true) => self.emit(EventKind::ServiceStarted { target: id.clone() }),
            (true, false) => self.emit(EventKind::ServiceStopped { target: id.clone() }),
            _ => {}
        }
        self.settle(&id);
        self.persist(&id, true);
    }

    fn remove(&mut self, id: &TargetId) {
        self.take_out(id);
        self.forget_hope(id);
        self.void_flight(id);
        if self.targets.remove(id).is_some_and(|target| target.spec.enabled) {
            self.emit(EventKind::ServiceStopped { target: id.clone() });
        }
    }

    fn set(&mut self, settings: Settings, now: Moment) {
        let (before, slots) = (std::mem::replace(&mut self.settings, settings), self.settings.max_per_host);
        let cadence = |settings: &Settings| (settings.cadence, settings.base, settings.min, settings.max);
        if cadence(&before) != cadence(&self.settings) {
            let mut ids: Vec<TargetId> = self.targets.keys().cloned().collect();
            ids.sort_unstable();
            for id in ids {
                self.take_out(&id);
                self.recompute(&id, now);
                self.settle(&id);
            }
        }
        if slots > before.max_per_host {
            for id in self.hosts.released(slots) {
                self.make_ready(&id);
            }
        }
    }

    fn serve(&mut self, kind: Kind, served: bool, now: Moment) {
        let known = if served { !self.unserved.remove(&kind) } else { !self.unserved.insert(kind.clone()) };
        if known {
            return;
        }
        let mut ids: Vec<TargetId> = self
            .targets
            .values()
            .filter(|target| target.spec.kind == kind)
            .map(|target| target.spec.id.clone())
            .collect();
        ids.sort_unstable();
        for id in ids {
            self.take_out(&id);
            if served {
                self.with(&id, |target| target.schedule.due = target.schedule.due.max(now));
            }
            self.settle(&id);
        }
    }

    fn ask(&mut self, id: &TargetId, ask: Ask, now: Moment) {
        let Some(target) = self.targets.get_mut(id) else { return };
        let enabled = target.spec.enabled;
        match ask {
            Ask::PollNow => {}
            Ask::Enable => target.spec.enabled = true,
            Ask::Disable => target.spec.enabled = false,
            Ask::Retry => {}
            Ask::ResetBreaker => {
                target.schedule.failures = 0;
                target.schedule.breaker = Breaker::CLOSED;
            }
        }
        match (enabled, target.spec.enabled) {
            (false, true) => self.emit(EventKind::ServiceStarted { target: id.clone() }),
            (true, false) => self.emit(EventKind::ServiceStopped { target: id.clone() }),
            _ => {}
        }
        if matches!(ask, Ask::Retry | Ask::ResetBreaker) {
            self.revive(id);
        }
        self.take_out(id);
        if ask != Ask::Disable {
            self.with(id, |target| target.schedule.due = target.schedule.due.min(now));
        }
        self.settle(id);
        self.persist(id, ask != Ask::PollNow);
    }

    // --- small helpers ---------------------------------------------------------------------------------------------

    fn count_flight(&mut self, kind: &Kind, begins: bool) {
        let count = self.in_flight_by_kind.entry(kind.clone()).or_default();
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
    }

    fn with(&mut self, id: &TargetId, change: impl FnOnce(&mut Target)) {
        if let Some(target) = self.targets.get_mut(id) {
            change(target);
        }
    }

    /// Notes whether a neighbour's success may revive a target.
    fn index_hope(&mut self, id: &TargetId) {
        let Some(target) = self.targets.get(id) else { return };
        let schedule = &target.schedule;
        if schedule.dead.is_some() && !schedule.revived && schedule.last_cause == Some(Cause::Unreachable) {
            self.hopeful.entry(target.spec.origin.clone()).or_default().insert(id.clone());
        } else {
            self.forget_hope(id);
        }
    }

    fn forget_hope(&mut self, id: &TargetId) {
        let Some(target) = self.targets.get(id) else { return };
        if let Some(hopeful) = self.hopeful.get_mut(&target.spec.origin) {
            hopeful.remove(id);
            if hopeful.is_empty() {
                self.hopeful.remove(&target.spec.origin);
            }
        }
    }

    fn emit(&mut self, event: EventKind) {
        self.actions.push(Action::Emit(event));
    }

    fn persist(&mut self, id: &TargetId, urgent: bool) {
        self.actions.push(Action::Persist { target: id.clone(), urgent });
    }
}

#[cfg(test)]
mod tests;
