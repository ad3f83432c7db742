//! The driver: one loop over one enum of messages. Nothing else moves the scheduler.
//!
//! The loop hands polls to the lanes, hands their results to scheduler and store, and carries out commands. It wakes
//! at most every 2 ms, and every 4 ms under load, and handles all messages and due times of that moment in one turn.
//! Every trigger (time, a finished poll, a command, a reconfiguration) arrives through the same channel.
//!
//! A poll that changes something visits the loop twice: when it starts and when it ends. The store then owns its
//! result: the writer's queue defines the order of publications, and the writer's thread replaces the read model's
//! entry and announces the events after they are on disk. The loop is notified of a written result only if the target
//! had the maximum number of waiting results.

mod alerts;
mod carry_out;
mod commands;
mod deployments;
mod events;
mod flush;
mod gathering;
mod log;
mod poll;
mod reconfigure;
mod sessions;

use crate::alerts::{Alerting, share_traits};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::deployments::Deployments;
use crate::mailbox::{CAPACITY, Inbox, Mail, Mailbox};
use crate::message::Message;
use crate::outbox::{Outbox, OutboxParts};
use crate::read_model::{Entry, ReadModel, info, observed};
use crate::schedule_time::to_wall;
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use config::AssignedDeployment;
use egress::Egress;
use gathering::Gathering;
use metrics::{Metrics, TargetMetrics};
use model::{
    AlertChange, Alive, Cadence, DeploymentReport, Kind, LoopState, Moment, Place, Pulse, Schedule, SchedulerState,
    TargetId, TargetState,
};
use notify::{Notifier, Now};
use sandbox::Sandbox;
use scheduler::{Input, Scheduler};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use store::{Aliases, Changes, Store};
use tokio::sync::{Notify, oneshot};

/// The interval at which due times and volatile fields are written. A kill loses at most 30 s of them.
const FLUSH: Duration = Duration::from_secs(25);
/// The shortest time between two turns of the loop.
const TICK: Duration = Duration::from_millis(2);
/// The shortest time between two turns if the first started several polls. Under such load, half as many wake-ups save
/// an eighth of the CPU time of a poll.
const BUSY_TICK: Duration = Duration::from_millis(4);
/// The time that polls in flight have to end at a shutdown.
const GRACE: Duration = Duration::from_secs(15);
/// A target is overdue if it is this much later than its due time, unless an operator set a longest interval. The value
/// is Pulse's longest interval.
const OVERDUE: Duration = Duration::from_secs(300);

/// The parts of the host that the driver uses.
pub struct Wiring {
    /// The clock.
    pub clock: Clock,
    /// Runs polls.
    pub sandbox: Arc<Sandbox>,
    /// Connects to mail servers.
    pub egress: Egress,
    /// The plugins that serve.
    pub plugins: Arc<PluginSet>,
    /// Stores results.
    pub store: Arc<Store>,
    /// Announces events.
    pub bus: Bus,
    /// Counts polls.
    pub metrics: Arc<Metrics>,
    /// Shows results.
    pub read_model: Arc<ReadModel>,
    /// Canonical names of dependencies.
    pub aliases: Arc<Aliases>,
    /// Sends messages to the driver itself, for lanes and store.
    pub mailbox: Mailbox,
    /// Notified when a report for the operator of the fleet is written, or the alerts for another device changed.
    pub reported: Arc<Notify>,
}

/// Every sender of messages is gone: the host ends.
struct Disconnected;

/// A target that the driver polls.
struct Tracked {
    target: Arc<RuntimeTarget>,
    entry: Arc<Entry>,
    metrics: TargetMetrics,
    /// The consecutive failures of a target that was reported as unreachable; `None` while it is reachable.
    unreachable: Option<u32>,
}

/// The loop's state.
pub struct Driver {
    wiring: Wiring,
    scheduler: Scheduler,
    notifier: Notifier,
    /// Sends notifications.
    outbox: Outbox,
    targets: HashMap<TargetId, Tracked>,
    /// Targets whose schedule or volatile fields changed since the last flush, with changes to be written then.
    dirty: BTreeMap<TargetId, Changes>,
    gathering: Gathering,
    next_flush: Moment,
    last_start: Option<Moment>,
    /// The polls that start at the end of this turn.
    starting: Vec<(TargetId, poll::Work)>,
    /// The total duration of all polls, and their number.
    poll_time: (Duration, u64),
    turns: LoopState,
    /// The number of turns with messages that were not deferred since the last one without.
    streak: u32,
    /// The shortest time until the next turn.
    tick: Duration,
    /// A plugin went into quarantine or came out of it.
    plugins_changed: bool,
    /// The kinds of the channels, without email.
    channel_kinds: BTreeSet<Kind>,
    ending: Option<(oneshot::Sender<()>, Moment)>,
    deployments: Deployments,
}

impl Driver {
    /// Prepares the loop: `targets` with their schedules from before a restart.
    pub fn new(
        wiring: Wiring,
        mut scheduler: Scheduler,
        targets: Vec<(Arc<RuntimeTarget>, Option<Schedule<Moment>>)>,
        Alerting { rules, records: mut alerts, waiting, given_up, last, removed }: Alerting,
    ) -> Self {
        let now = wiring.clock.now();
        let parts = OutboxParts {
            clock: wiring.clock,
            sandbox: wiring.sandbox.clone(),
            egress: wiring.egress.clone(),
            store: wiring.store.clone(),
            bus: wiring.bus.clone(),
            mailbox: wiring.mailbox.clone(),
            reported: wiring.reported.clone(),
        };
        let specs: Vec<_> = targets.iter().map(|(target, _)| rules.spec(target)).collect();
        share_traits(&mut alerts, &specs);
        wiring.read_model.change_alerts(alerts.iter().cloned().map(AlertChange::Save).collect());
        let wall = wiring.clock.wall();
        let settings = rules.settings(&wiring.plugins);
        let outbox = Outbox::new(parts, (waiting, given_up), &alerts);
        removed.iter().for_each(|channel| outbox.forget_values(channel));
        let notifier = Notifier::new(settings, specs, alerts, last + 1, Now { moment: now, wall });
        let kinds: BTreeSet<Kind> = targets.iter().map(|(target, _)| target.config.kind.clone()).collect();
        for kind in kinds.into_iter().filter(|kind| wiring.plugins.get(kind).is_none()) {
            scheduler.apply(Input::KindServed(kind, false), now);
        }
        // Targets that fell due while the host was down have a new due time. It is written by the first turns: after a
        // second kill, the next start would find the old one and poll its target again.
        let restored = targets.iter().filter(|(_, schedule)| schedule.is_some());
        let dirty = restored.map(|(target, _)| (target.id().clone(), Changes::default())).collect();
        let runtime: Vec<_> = targets.iter().map(|(target, _)| target.clone()).collect();
        let specs = targets.into_iter().map(|(target, schedule)| (target.spec(), schedule)).collect();
        scheduler.apply(Input::Started(specs), now);
        let turns = LoopState { capacity: CAPACITY, ..LoopState::default() };
        let mut driver = Self {
            wiring,
            scheduler,
            notifier,
            outbox,
            targets: HashMap::new(),
            dirty,
            gathering: Gathering::default(),
            next_flush: now.after(FLUSH),
            last_start: None,
            starting: Vec::new(),
            poll_time: (Duration::ZERO, 0),
            turns,
            streak: 0,
            tick: TICK,
            plugins_changed: false,
            channel_kinds: BTreeSet::new(),
            ending: None,
            deployments: Deployments::default(),
        };
        for target in runtime {
            driver.track(target);
        }
        driver.configure_alerts(rules);
        driver.publish_scheduler();
        driver.begin_flush();
        driver
    }

    /// Returns the outbox, which the caller runs.
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    /// Takes over the deployments that this host was assigned, and the last report about each from an earlier run.
    pub fn deployed(mut self, assigned: BTreeMap<String, AssignedDeployment>, reported: Vec<DeploymentReport>) -> Self {
        self.deployments = Deployments::new(assigned, reported);
        self.report_deployments();
        self
    }

    /// Runs until the host ends. `pulse` shows that the thread works.
    pub fn run(mut self, inbox: &Inbox, pulse: &Arc<Pulse>) {
        let alive = Alive(pulse.clone());
        self.carry_out(None);
        self.hand_over();
        let mut woken = self.wiring.clock.now();
        loop {
            let Ok(first) = self.wait(inbox, woken) else { return };
            alive.0.beat();
            woken = self.wiring.clock.now();
            self.turn(inbox.take_deferred(), first.into_iter().chain(inbox.take()), woken);
            if self.is_over() {
                return;
            }
        }
    }

    /// Waits for the next turn; the last one began at `woken`. Returns the message that ended the wait, if one did.
    /// Fails if no sender is left.
    ///
    /// After two turns in a row with messages, or if a poll is due before the next tick, the loop sleeps until that
    /// tick even if there are more: then their senders need not wake it. A single message is handled at once: an idle
    /// host would sleep and wake for nothing.
    fn wait(&self, inbox: &Inbox, woken: Moment) -> Result<Option<Mail>, Disconnected> {
        let patience = self.patience();
        let is_due = self.wiring.clock.now().after(patience) <= woken.after(self.tick);
        let is_busy = self.streak >= 2 || self.gathering.is_active() || is_due;
        let first = if is_busy {
            None
        } else {
            match inbox.wait(patience, !self.scheduler.has_waiting() && self.ending.is_none()) {
                Ok(mail) => Some(mail),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(Disconnected),
            }
        };
        // Messages that arrive within the tick are handled in the same turn.
        let early = self.tick.saturating_sub(self.wiring.clock.now().since(woken));
        if !early.is_zero() && (first.is_none() || self.streak > 0) {
            std::thread::sleep(early);
        }
        Ok(first)
    }

    /// How long the loop may wait for a message.
    fn patience(&self) -> Duration {
        let ending = self.ending.as_ref().map(|(_, until)| *until);
        let next = self.scheduler.next_wakeup().into_iter().chain([self.next_flush]).chain(ending);
        let next = next.chain(self.notifier.next_wakeup()).min();
        next.map_or(FLUSH, |next| next.since(self.wiring.clock.now()))
    }

    /// One turn: all messages, then due times, then a part of a flush if it is time. Measures itself.
    fn turn(&mut self, deferred: Vec<Message>, mails: impl Iterator<Item = Mail>, woken: Moment) {
        let (mut prompt, mut oldest) = (0, None);
        let count = deferred.len();
        deferred.into_iter().for_each(|message| self.handle(message));
        for Mail { sent, message } in mails {
            prompt += 1;
            oldest = oldest.max(Some(woken.since(sent)));
            self.handle(message);
        }
        self.apply(Input::Tick);
        if std::mem::take(&mut self.plugins_changed) {
            self.report_plugins();
        }
        self.pass_alert_time();
        self.tick = if self.starting.len() > 1 { BUSY_TICK } else { TICK };
        self.hand_over();
        self.flush();
        self.streak = if prompt > 0 { self.streak.saturating_add(1) } else { 0 };
        self.measure(self.wiring.clock.now().since(woken), count + prompt, oldest);
        self.publish_scheduler();
    }

    fn measure(&mut self, took: Duration, messages: usize, oldest: Option<Duration>) {
        self.wiring.metrics.turn(took, oldest);
        let turns = &mut self.turns;
        turns.turns += 1;
        turns.busy += took;
        turns.longest = turns.longest.max(took);
        turns.handled += messages as u64;
        turns.messages = messages;
        turns.most_messages = turns.most_messages.max(messages);
        turns.oldest = oldest.unwrap_or_default();
        turns.oldest_ever = turns.oldest_ever.max(turns.oldest);
    }

    /// Handles one message: gives it to the scheduler and carries out the resulting actions.
    fn handle(&mut self, message: Message) {
        match message {
            Message::Finished(finished) => self.finished(finished),
            Message::Written(id) => self.written(&id),
            Message::Command(target, command) => self.command(&target, command),
            Message::Acknowledge(subject, by, reply) => {
                // The caller may have left.
                let _ = reply.send(self.acknowledge(subject, by));
            }
            Message::NotSent(withdrawn) => self.not_sent(withdrawn),
            Message::TakenOver(taken, reply) => {
                // The agent may have ended.
                let reply = move || {
                    let _ = reply.send(());
                };
                self.apply_to_alerts_then(notify::Input::TakenOver(taken), reply);
            }
            Message::Troubles(class, troubles) => self.apply_to_alerts(notify::Input::Troubles(class, troubles)),
            Message::Undelivered(channel, count) => {
                self.apply_to_alerts(notify::Input::Undelivered(channel, count));
            }
            Message::Reconfigured(reconfigured) => self.reconfigure(*reconfigured),
            Message::Ping(reply) => {
                // The caller may have left.
                let _ = reply.send(());
            }
            Message::Shutdown(reply) => {
                self.apply(Input::ShuttingDown);
                self.ending = Some((reply, self.wiring.clock.now().after(GRACE)));
            }
        }
    }

    /// Gives the scheduler an input and carries out the resulting actions.
    fn apply(&mut self, input: Input) {
        self.scheduler.apply(input, self.wiring.clock.now());
        self.carry_out(None);
    }

    /// Adds a target that the scheduler knows to the read model.
    fn track(&mut self, target: Arc<RuntimeTarget>) {
        let id = target.id().clone();
        let Some(status) = self.scheduler.status(&id) else { return };
        let failures = status.schedule.failures.max(status.schedule.plugin_faults);
        let entry = self.wiring.read_model.add(TargetState {
            info: info(&target.config),
            place: status.place,
            enabled: status.enabled,
            cadence: status.cadence,
            schedule: to_wall(status.schedule, &self.wiring.clock),
            unreachable: status.unreachable,
            longest: status.longest,
            observed: Arc::new(observed(&target.known(), Arc::default())),
        });
        let metrics = self.wiring.metrics.target(&target.config.kind, &id);
        let unreachable = status.unreachable.then_some(failures);
        self.targets.insert(id, Tracked { target, entry, metrics, unreachable });
    }

    /// Publishes the scheduler's own state.
    fn publish_scheduler(&self) {
        let clock = &self.wiring.clock;
        let settings = self.scheduler.settings();
        let quarantined = self.scheduler.quarantined().map(|(kind, until)| (kind.clone(), clock.at(until)));
        self.wiring.read_model.set_scheduler(SchedulerState {
            adaptive: settings.cadence != Cadence::Fixed,
            counters: self.scheduler.counters(),
            in_flight: self.scheduler.in_flight().clone(),
            quarantined: quarantined.collect(),
            next: self.scheduler.next_due().map(|(target, due)| (target.clone(), clock.at(due))),
            last_start: self.last_start.map(|moment| clock.at(moment)),
            mean_poll: (self.poll_time.0)
                .checked_div(u32::try_from(self.poll_time.1).unwrap_or(u32::MAX))
                .unwrap_or_default(),
            overdue_after: settings.max.unwrap_or(OVERDUE),
            turns: self.turns,
        });
    }

    /// Whether the host may end now: no poll is in flight, or its time is over. Hands the rest to the store.
    fn is_over(&mut self) -> bool {
        let Some((_, until)) = &self.ending else { return false };
        let in_flight = self.scheduler.in_flight_count();
        if in_flight > 0 && self.wiring.clock.now() < *until {
            return false;
        }
        if in_flight > 0 {
            tracing::warn!("{in_flight} polls were still in flight after {GRACE:?}; they are given up");
        }
        for (id, tracked) in &self.targets {
            if tracked.entry.state().place == Place::InFlight {
                self.dirty.entry(id.clone()).or_default();
            }
        }
        self.flush_all();
        self.end_all_sessions();
        if let Some((reply, _)) = self.ending.take() {
            // The caller may have left.
            let _ = reply.send(());
        }
        true
    }
}
