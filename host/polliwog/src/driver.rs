//! The driver: one loop over one enum of messages, which is all that moves the scheduler.
//!
//! It hands polls to the lanes, takes their results to scheduler and store, and announces what is on disk. It wakes at
//! most every 2 ms and handles all due times and finished polls then. Every trigger (time, a finished poll, a commit, a
//! person) comes in by the same channel and takes the same path.

mod events;
mod log;
mod moments;
mod wishes;
mod worker;

use crate::clock::Clock;
use crate::estate::{Published, Target};
use crate::plugins::PluginSet;
use model::{Alive, Event, Kind, Moment, Pulse, TargetId};
use sandbox::Sandbox;
use scheduler::{Action, Ask, Change, Counters, Explanation, Input, Place, Scheduler, Settings, TargetStatus};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;
use store::{Changes, Commit, Committed, Progress, Store};
use tokio::sync::oneshot;
use web::{Announcement, Announcer, CommandError, Metrics, PollMeasure};

pub(crate) use moments::{saved, wall};
pub(crate) use worker::Finished;

/// The driver wakes at most this often.
const TICK: Duration = Duration::from_millis(2);
/// What merely continued is written this often; the contract says 30 s at the latest.
const FLUSH: Duration = Duration::from_secs(25);
/// What is under way at a shutdown has this long.
const GRACE: Duration = Duration::from_secs(15);
/// Latency windows that are gathered for one target while the database takes nothing; older ones go.
const POINTS: usize = 100_000;
/// Results of one target that wait for the database before operators' wishes wait too.
const MAX_WAITING: usize = 5;
/// Messages that may wait. Each poll in flight sends one, each commit one, each web request one.
pub(crate) const MESSAGES: usize = 16_384;

/// What comes to the driver.
pub(crate) enum Message {
    /// A poll ended.
    Finished(Box<Finished>),
    /// A commit is on disk.
    Committed(Committed),
    /// Somebody wants to know how things stand.
    Snapshot(oneshot::Sender<Snapshot>),
    /// Somebody wants something of a target.
    Ask(TargetId, Ask, oneshot::Sender<Result<(), CommandError>>),
    /// Somebody has seen that a dependency of a target is missing, or that some are; answered with how many that were.
    Dismiss(TargetId, Option<String>, oneshot::Sender<Result<usize, CommandError>>),
    /// Somebody wants to know why a target runs next when it does.
    Explain(TargetId, oneshot::Sender<Option<Explained>>),
    /// Settings or targets are others now.
    Configured(Box<Configured>),
    /// The host is to end; answered when everything is handed to the store.
    Shutdown(oneshot::Sender<()>),
}

/// Why a target runs next when it does.
pub(crate) struct Explained {
    /// The scheduler's word.
    pub explanation: Explanation,
    /// Why its last poll failed.
    pub failure: Option<store::PollFailure>,
}

/// What is different from what runs.
pub(crate) struct Configured {
    /// The scheduler's settings.
    pub settings: Settings,
    /// Targets that are others now, with what that means; nothing for those that are new.
    pub changed: Vec<(Arc<Target>, Option<Change>)>,
    /// Targets that are gone.
    pub removed: Vec<TargetId>,
    /// Other names of dependencies.
    pub aliases: Arc<store::Aliases>,
    /// Who serves which kind.
    pub plugins: Arc<PluginSet>,
    /// The kind that another plugin serves now, or that none serves any more.
    pub plugged: Option<Kind>,
}

/// The scheduler at one moment.
pub(crate) struct Snapshot {
    /// Whether the cadence is adaptive.
    pub adaptive: bool,
    /// Targets that wait.
    pub depth: usize,
    /// Those of them that are due within 12 seconds.
    pub due_soon: usize,
    /// The depth by kind.
    pub depth_by_kind: BTreeMap<Kind, usize>,
    /// Polls in flight, by kind.
    pub in_flight: BTreeMap<Kind, usize>,
    /// Kinds whose plugin is in quarantine, with when it is tried again.
    pub quarantined: BTreeMap<Kind, Moment>,
    /// How often things happened.
    pub counters: Counters,
    /// Who is due next, of which kind, and when.
    pub next: Option<(TargetId, Moment)>,
    /// When a poll was last started.
    pub last_start: Option<Moment>,
    /// How long polls took altogether, and how many they were.
    pub poll_time: (Duration, u64),
    /// Every target's schedule, as far as it is on disk, and where it is now.
    pub targets: Vec<(Arc<Target>, TargetStatus)>,
    /// Targets that are more than their longest interval late.
    pub overdue: usize,
}

/// A result that is not yet on disk, and what is to be shown and told once it is.
struct Pending {
    /// Whether it is a commit of its own; one that changed nothing only keeps its place in the order.
    commits: bool,
    status: TargetStatus,
    shown: Option<Published>,
    measure: Option<PollMeasure>,
    told: Vec<Event>,
}

/// What a step means for one target.
#[derive(Default)]
struct Step {
    events: Vec<Event>,
    urgent: bool,
    finished: Option<Box<Finished>>,
    /// What an operator changed of what is known, and how that looks.
    dismissed: Option<(Changes, Published)>,
}

/// What the driver is made of.
pub(crate) struct Parts {
    /// Time.
    pub clock: Clock,
    /// Where polls run.
    pub sandbox: Arc<Sandbox>,
    /// Who runs them.
    pub plugins: Arc<PluginSet>,
    /// Where results go.
    pub store: Arc<Store>,
    /// Who is told.
    pub announcer: Announcer,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Other names of dependencies.
    pub aliases: Arc<store::Aliases>,
    /// Where messages come from, for the lanes.
    pub sender: SyncSender<Message>,
}

/// The loop's state.
pub(crate) struct Driver {
    parts: Parts,
    scheduler: Scheduler,
    targets: BTreeMap<TargetId, Arc<Target>>,
    /// What is on disk of each schedule.
    statuses: HashMap<TargetId, TargetStatus>,
    /// Polled since the last flush; with what is to be written then.
    dirty: BTreeMap<TargetId, Changes>,
    pending: HashMap<TargetId, VecDeque<Pending>>,
    /// Commits that are not yet on disk, of targets that were removed since.
    gone: HashMap<TargetId, usize>,
    next_flush: Moment,
    last_start: Option<Moment>,
    /// How long polls took altogether, and how many they were.
    poll_time: (Duration, u64),
    ending: Option<(oneshot::Sender<()>, Moment)>,
}

impl Driver {
    /// With targets and what is known of their schedules; kinds that nobody serves are a state of their targets.
    pub(crate) fn new(
        parts: Parts,
        mut scheduler: Scheduler,
        targets: Vec<(Arc<Target>, Option<scheduler::Saved>)>,
    ) -> Self {
        let now = parts.clock.now();
        let kinds: std::collections::BTreeSet<Kind> =
            targets.iter().map(|(target, _)| target.config.kind.clone()).collect();
        for kind in kinds.into_iter().filter(|kind| parts.plugins.get(kind).is_none()) {
            scheduler.apply(Input::KindServed(kind, false), now);
        }
        let restored = targets.iter().filter(|(_, saved)| saved.is_some());
        // What fell due while the host was down has another time now. It is written at once, or a second kill would find
        // the old one and poll its target again.
        let dirty = restored.map(|(target, _)| (target.id().clone(), Changes::default())).collect();
        let by_id = targets.iter().map(|(target, _)| (target.id().clone(), target.clone())).collect();
        let specs = targets.into_iter().map(|(target, saved)| (target.spec(), saved)).collect();
        scheduler.apply(Input::Started(specs), now);
        let mut driver = Self {
            parts,
            scheduler,
            targets: by_id,
            statuses: HashMap::new(),
            dirty,
            pending: HashMap::new(),
            gone: HashMap::new(),
            next_flush: now.after(FLUSH),
            last_start: None,
            poll_time: (Duration::ZERO, 0),
            ending: None,
        };
        let ids: Vec<TargetId> = driver.targets.keys().cloned().collect();
        for id in ids {
            driver.note_status(&id, now);
        }
        driver.flush();
        driver
    }

    /// Runs until the host ends.
    pub(crate) fn run(mut self, messages: &Receiver<Message>, pulse: &Arc<Pulse>) {
        let alive = Alive(pulse.clone());
        self.act(None);
        let mut woken = self.parts.clock.now();
        loop {
            let first = match messages.recv_timeout(self.patience()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            alive.0.beat();
            // What else comes within the tick is handled in the same turn.
            let early = TICK.saturating_sub(self.parts.clock.now().since(woken));
            if !early.is_zero() {
                std::thread::sleep(early);
            }
            woken = self.parts.clock.now();
            for message in first.into_iter().chain(messages.try_iter()) {
                self.handle(message);
            }
            self.apply(Input::Tick, None);
            if self.parts.clock.now() >= self.next_flush {
                self.flush();
            }
            if self.is_over() {
                return;
            }
        }
    }

    fn patience(&self) -> Duration {
        let next = self.scheduler.next_wakeup().into_iter().chain([self.next_flush]).min();
        let ending = self.ending.as_ref().map(|(_, until)| *until);
        let next = next.into_iter().chain(ending).min();
        next.map_or(FLUSH, |next| next.since(self.parts.clock.now()))
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Finished(finished) => {
                let id = finished.target.id();
                let input = Input::Finished(id.clone(), finished.finish);
                if !finished.learnt {
                    // The target is gone, or another one now: of the poll only its end counts.
                    self.parts.sandbox.forget(id);
                    self.apply(input, None);
                } else if self.targets.contains_key(id) {
                    self.apply(input, Some(finished));
                } else {
                    self.keep(&finished);
                    self.apply(input, None);
                }
            }
            Message::Committed(committed) => self.committed(committed),
            // Whoever asked may have left; then nobody wants the answer.
            Message::Snapshot(reply) => drop(reply.send(self.snapshot())),
            Message::Ask(target, ask, reply) => drop(reply.send(self.ask(&target, ask))),
            Message::Dismiss(target, name, reply) => drop(reply.send(self.dismiss(&target, name.as_deref()))),
            Message::Explain(target, reply) => {
                let now = self.parts.clock.now();
                let failure = self.targets.get(&target).and_then(|target| target.published().failure.clone());
                let explanation = self.scheduler.explain(&target, now);
                drop(reply.send(explanation.map(|explanation| Explained { explanation, failure })));
            }
            Message::Configured(configured) => self.configure(*configured),
            Message::Shutdown(reply) => {
                self.apply(Input::ShuttingDown, None);
                self.ending = Some((reply, self.parts.clock.now().after(GRACE)));
            }
        }
    }

    fn apply(&mut self, input: Input, finished: Option<Box<Finished>>) {
        self.scheduler.apply(input, self.parts.clock.now());
        self.act(finished);
    }

    /// Carries out what the scheduler wants done.
    fn act(&mut self, finished: Option<Box<Finished>>) {
        let at = self.parts.clock.wall();
        let mut steps: BTreeMap<TargetId, Step> = BTreeMap::new();
        if let Some(finished) = finished {
            let id = finished.target.id().clone();
            steps.entry(id).or_default().finished = Some(finished);
        }
        for action in self.scheduler.drain() {
            match action {
                Action::Start(target, due) => self.start(&target, due),
                Action::Emit(kind) => match kind.target().cloned() {
                    Some(target) => steps.entry(target).or_default().events.push(Event { at, kind }),
                    None => {
                        let failure = steps.values().find_map(|step| step.finished.as_ref()?.failure.as_ref());
                        log::of_plugin(&kind, &self.parts.plugins, failure);
                        self.parts.store.writer().event(Event { at, kind });
                    }
                },
                Action::Persist { target, urgent } => steps.entry(target).or_default().urgent |= urgent,
            }
        }
        for (target, step) in steps {
            self.settle(&target, step);
        }
    }

    fn start(&mut self, id: &TargetId, due: Moment) {
        let now = self.parts.clock.now();
        self.last_start = Some(now);
        let Some(target) = self.targets.get(id) else { return };
        self.parts.metrics.start(&target.config.kind, now.since(due));
        let Some(served) = self.parts.plugins.get(&target.config.kind) else { return };
        let work = worker::Work {
            clock: self.parts.clock,
            sandbox: self.parts.sandbox.clone(),
            served: served.clone(),
            target: target.clone(),
            aliases: self.parts.aliases.clone(),
            sender: self.parts.sender.clone(),
        };
        self.parts.sandbox.lanes().spawn(id, work.run());
    }

    /// What a step means for one target: a commit when something changed, else a note for the next flush.
    fn settle(&mut self, id: &TargetId, step: Step) {
        let now = self.parts.clock.now();
        let Step { mut events, urgent, finished, dismissed } = step;
        let known = self.targets.get(id).cloned().zip(self.scheduler.status(id, now));
        let Some((target, status)) = known else {
            // That a target is gone is told all the same.
            log::of_target(&events, None);
            return events.into_iter().for_each(|event| self.parts.store.writer().event(event));
        };
        let (mut changes, mut pending) =
            (Changes::default(), Pending { commits: true, status, shown: None, measure: None, told: vec![] });
        let polled = finished.is_some();
        if let Some(finished) = finished {
            let Finished { changes: found, shown, measure, told, at, failure, .. } = *finished;
            log::of_changes(id, &found, at);
            // What waits for the database came later than what is shown.
            let before = self.pending.get(id).and_then(|waiting| waiting.back()).map(|pending| &pending.status);
            let before = before.or_else(|| self.statuses.get(id));
            let reach = events::of_reach(id, (before, &pending.status), failure.as_ref());
            events.extend(events::of_poll(id, &found, failure.as_ref(), at));
            events.extend(reach.map(|kind| Event { at, kind }));
            log::of_target(&events, failure.as_ref());
            (changes, pending.shown, pending.measure, pending.told) = (found, shown, measure, told);
        } else {
            log::of_target(&events, None);
        }
        if let Some((forgotten, shown)) = dismissed {
            (changes, pending.shown) = (forgotten, Some(shown));
        }
        if !urgent && events.is_empty() && !changes.is_urgent() {
            merge(self.dirty.entry(id.clone()).or_default(), changes);
            let Some(waiting) = self.pending.get_mut(id) else {
                return self.publish(&target, pending, Vec::new());
            };
            // Results that came before are not on disk yet; they are shown first. Another due time is no result.
            if !polled {
                return;
            }
            waiting.push_back(Pending { commits: false, ..pending });
            let count = unwritten(waiting);
            self.scheduler.apply(Input::Unwritten(id.clone(), count), now);
            return self.act(None);
        }
        let Some(saved) = self.scheduler.saved(id, now) else { return };
        // What waited for the flush waits on, but for what this commit says better.
        forget_details(self.dirty.entry(id.clone()).or_default(), &changes);
        let waiting = self.pending.entry(id.clone()).or_default();
        waiting.push_back(pending);
        let count = unwritten(waiting);
        self.parts.store.writer().commit(Commit {
            target: id.clone(),
            kind: target.config.kind.clone(),
            at: self.parts.clock.wall(),
            changes,
            schedule: Some(wall(&saved, target.identity, &self.parts.clock)),
            events,
        });
        self.scheduler.apply(Input::Unwritten(id.clone(), count), now);
        self.act(None);
    }

    fn committed(&mut self, committed: Committed) {
        let Some(id) = committed.target else {
            return self.announce(committed.events);
        };
        // A commit of a target that was removed since: what it told is on disk, and nothing of it is shown any more.
        if let Some(count) = self.gone.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.gone.remove(&id);
            }
            return self.announce(committed.events);
        }
        let Some(mut waiting) = self.pending.remove(&id) else { return self.announce(committed.events) };
        let mut stored = committed.events;
        if let Some(target) = self.targets.get(&id).cloned() {
            // This commit, and after it what changed nothing, up to the next commit.
            while let Some(pending) = waiting.pop_front() {
                self.publish(&target, pending, std::mem::take(&mut stored));
                if waiting.front().is_none_or(|next| next.commits) {
                    break;
                }
            }
        }
        let count = unwritten(&waiting);
        if !waiting.is_empty() {
            self.pending.insert(id.clone(), waiting);
        }
        self.scheduler.apply(Input::Unwritten(id, count), self.parts.clock.now());
        self.act(None);
    }

    /// Shows and tells what is on disk.
    fn publish(&mut self, target: &Arc<Target>, pending: Pending, stored: Vec<store::StoredEvent>) {
        let Pending { status, shown, measure, told, .. } = pending;
        self.statuses.insert(target.id().clone(), status);
        if let Some(shown) = shown {
            *target.published() = shown;
        }
        if let Some(measure) = measure {
            self.poll_time = (self.poll_time.0 + measure.wall, self.poll_time.1 + 1);
            self.parts.metrics.poll(&target.config.kind, target.id(), measure);
        }
        for event in told {
            self.parts.announcer.announce(Announcement { sequence: None, event });
        }
        self.announce(stored);
    }

    fn announce(&self, stored: Vec<store::StoredEvent>) {
        for store::StoredEvent { sequence, event } in stored {
            self.parts.announcer.announce(Announcement { sequence: Some(sequence), event });
        }
    }

    fn note_status(&mut self, id: &TargetId, now: Moment) {
        if let Some(status) = self.scheduler.status(id, now) {
            self.statuses.insert(id.clone(), status);
        }
    }

    /// What a poll of a target that is gone had learnt before it went.
    fn keep(&mut self, finished: &Finished) {
        let id = finished.target.id().clone();
        let Finished { changes, failure, at, .. } = finished;
        let events = events::of_poll(&id, changes, failure.as_ref(), *at);
        if changes.is_urgent() || !events.is_empty() {
            *self.gone.entry(id.clone()).or_default() += 1;
            let kind = finished.target.config.kind.clone();
            let at = self.parts.clock.wall();
            self.parts.store.writer().commit(Commit {
                target: id,
                kind,
                at,
                changes: changes.clone(),
                schedule: None,
                events,
            });
        }
    }

    /// Writes what merely continued since the last time, unless the database has not taken the last of it: then it is
    /// gathered on.
    fn flush(&mut self) {
        self.next_flush = self.parts.clock.now().after(FLUSH);
        if self.parts.store.writer().gauges().flushes.load(Ordering::Relaxed) == 0 {
            self.flush_all();
        }
    }

    /// Writes what merely continued since the last time, in one row.
    fn flush_all(&mut self) {
        let (now, at) = (self.parts.clock.now(), self.parts.clock.wall());
        let dirty = std::mem::take(&mut self.dirty);
        let progress: Vec<Progress> = (dirty.into_iter())
            .filter_map(|(id, changes)| {
                let target = self.targets.get(&id)?;
                let schedule = wall(&self.scheduler.saved(&id, now)?, target.identity, &self.parts.clock);
                let progress = Progress::of(id, target.config.kind.clone(), schedule, &target.known());
                Some(Progress { changes, ..progress })
            })
            .collect();
        if !progress.is_empty() {
            self.parts.store.writer().progress(progress, at, self.parts.clock.is_plausible());
        }
    }

    fn is_over(&mut self) -> bool {
        let Some((_, until)) = &self.ending else { return false };
        let under_way: usize = self.scheduler.in_flight().values().sum();
        if under_way > 0 && self.parts.clock.now() < *until {
            return false;
        }
        if under_way > 0 {
            tracing::warn!("{under_way} polls were still under way after {GRACE:?}; they are given up");
        }
        let in_flight = |id: &&TargetId| {
            let status = self.scheduler.status(id, self.parts.clock.now());
            status.is_some_and(|status| status.place == Place::InFlight)
        };
        let given_up: Vec<TargetId> = self.targets.keys().filter(in_flight).cloned().collect();
        for id in given_up {
            self.dirty.entry(id).or_default();
        }
        self.flush_all();
        if let Some((reply, _)) = self.ending.take() {
            let _ = reply.send(());
        }
        true
    }
}

fn unwritten(waiting: &VecDeque<Pending>) -> u8 {
    u8::try_from(waiting.len()).unwrap_or(u8::MAX)
}

/// Adds what one more poll left for the flush.
fn merge(held: &mut Changes, more: Changes) {
    let names: HashSet<&str> = more.details.iter().map(|facts| facts.reported.name.as_str()).collect();
    held.details.retain(|facts| !names.contains(facts.reported.name.as_str()));
    drop(names);
    held.details.extend(more.details);
    held.points.extend(more.points);
    let surplus = held.points.len().saturating_sub(POINTS);
    held.points.drain(..surplus);
}

/// Takes out what a commit says better: an older description must not be written over it.
fn forget_details(held: &mut Changes, commit: &Changes) {
    let changed = commit.urgent.iter().chain(&commit.details).map(|facts| facts.reported.name.as_str());
    let names: HashSet<&str> = changed.chain(commit.forgotten.iter().map(String::as_str)).collect();
    if !names.is_empty() {
        held.details.retain(|facts| !names.contains(facts.reported.name.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Dependency, Outcome, Report, Status, Timestamp};
    use store::Known;

    #[test]
    fn an_older_description_is_not_written_over_a_newer_commit() {
        let mut known = Known::default();
        let mut learn = |status, description: &str| {
            let dependency = Dependency { description: Some(description.to_owned()), ..Dependency::new("db", status) };
            let report = Report { dependencies: vec![dependency], ..Report::default() };
            known.learn(Outcome::Success(report), Timestamp::from_millis(0), &store::Aliases::new())
        };
        learn(Status::Ok, "one");
        let mut held = Changes::default();
        merge(&mut held, learn(Status::Ok, "two"));
        merge(&mut held, learn(Status::Ok, "three"));
        assert_eq!(held.details.len(), 1);
        assert_eq!(held.details[0].reported.description.as_deref(), Some("three"));
        forget_details(&mut held, &learn(Status::Critical, "three"));
        assert!(held.details.is_empty(), "the commit is newer");
    }
}
