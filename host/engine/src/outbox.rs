//! Sends notifications: one attempt at a time for each channel, in the order in which they were made.
//!
//! A delivery is a row that is written with the change that led to it, and is sent after that commit. Its outcome is
//! written before the next delivery of the channel is sent. A kill between the receiver's answer and that commit
//! therefore repeats one notification of each channel, and loses none.
//!
//! While the database accepts nothing, deliveries are sent after [`UNSTORED`]: a full disk must not silence the alert
//! about it.

mod catch_up;
mod channel;
mod commands;
mod lost;
mod progress;
mod reduction;
mod retries;
mod sender;
mod sessions;
mod troubles;
mod values;

use crate::bus::Bus;
use crate::clock::Clock;
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::sessions::End;
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use channel::Channel;
use egress::Egress;
use lost::Lost;
use model::{
    AlertChange, AlertRecord, AlertState, ChannelState, Class, Delivery, DeliveryState, Event, EventKind,
    FailureCategory, Moment, Notification, SequencedEvent, TargetId,
};
use notify::{MAX_OPEN, Trouble};
pub(crate) use reduction::Removal;
use retries::{EXPIRES, after_failure};
use sandbox::Sandbox;
use scheduler::Change;
use sender::{Attempted, Sender};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Store;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A delivery that is not on disk is sent after this time, and so is the next one of its channel.
const UNSTORED: Duration = Duration::from_secs(20);
/// The time that attempts in flight have to end at a shutdown.
const GRACE: Duration = Duration::from_secs(10);
/// The longest wait until the channels are checked again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A channel is in trouble after this many failed attempts in a row: the first retries take about a minute.
const TROUBLE: u32 = 5;
/// Why the deliveries of a removed channel are given up.
const GONE: &str = "the channel is not in the configuration any more";

/// The parts of the host that the outbox uses.
pub(crate) struct OutboxParts {
    pub clock: Clock,
    pub sandbox: Arc<Sandbox>,
    /// Connects to mail servers.
    pub egress: Egress,
    /// Stores outcomes.
    pub store: Arc<Store>,
    pub bus: Bus,
    /// Leads to the driver.
    pub mailbox: Mailbox,
    /// Wakes the agent of a fleet.
    pub reported: Arc<Notify>,
}

/// Sends notifications. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<Inner>);

struct Inner {
    parts: OutboxParts,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    channels: BTreeMap<String, Channel>,
    /// The channels for which the driver holds alerts back, because too many deliveries wait.
    full: BTreeSet<String>,
    lost: Lost,
    /// The channels whose trouble the driver knows.
    troubles: Vec<Trouble>,
    /// Messages for the driver. It must not wait for its own mailbox, so that another task sends them.
    reports: Vec<Message>,
}

impl State {
    /// Reports to the driver the channels that have room again, whatever made it: deliveries that were sent, given up,
    /// expired, replaced or withdrawn, or a channel that was removed.
    fn report_room(&mut self) {
        let Self { channels, full, reports, .. } = self;
        full.retain(|name| {
            let left = channels.get(name).map_or(0, Channel::count);
            if left < MAX_OPEN {
                reports.push(Message::Undelivered(name.clone(), left));
            }
            left >= MAX_OPEN
        });
    }
}

/// One attempt.
struct Attempt {
    outbox: Outbox,
    target: Arc<RuntimeTarget>,
    sender: Sender,
    delivery: Delivery,
}

impl Attempt {
    async fn run(self) {
        let Self { outbox, target, sender, delivery } = self;
        let (channel, number) = (delivery.notification.channel.clone(), delivery.notification.number);
        let guard = InFlight { outbox: outbox.clone(), channel: channel.clone() };
        let notification = delivery.rest();
        if notification.alerts.is_empty() {
            // The host ended between the last alert and the end of the attempt, or later news replaced the others.
            outbox.complete(delivery);
            return drop(guard);
        }
        let parts = &outbox.0.parts;
        let attempt = sandbox::Attempt {
            notification,
            created: delivery.created,
            number: delivery.attempts.saturating_add(1),
            progress: Arc::new(outbox.progress_of(&channel, number)),
        };
        let mut attempted = sender.send((&parts.sandbox, &parts.egress), &target, attempt, parts.clock.wall()).await;
        outbox.keep(&target, attempted.stored.take());
        outbox.ended(&channel, number, attempted);
        drop(guard);
    }
}

/// Frees the channel when an attempt ends, even by a panic or because its lane stops.
struct InFlight {
    outbox: Outbox,
    channel: String,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(channel) = self.outbox.state().channels.get_mut(&self.channel) {
            channel.is_busy = false;
        }
        self.outbox.0.wake.notify_one();
    }
}

impl Outbox {
    /// Creates the outbox with the deliveries that waited when the host last ended, those that were given up, and the
    /// alerts of that time.
    pub(crate) fn new(
        parts: OutboxParts,
        (waiting, given_up): (Vec<Delivery>, Vec<Delivery>),
        alerts: &[Arc<AlertRecord>],
    ) -> Self {
        let mut state = State { lost: Lost::restored(&given_up, alerts), ..State::default() };
        let is_open = |alert: &&Arc<AlertRecord>| alert.state != AlertState::Resolved;
        for alert in alerts.iter().filter(is_open).filter(|alert| alert.subject.class() == Class::Channel) {
            let name = alert.subject.name().to_owned();
            state.channels.entry(name.clone()).or_default().trouble(alert.message.clone());
            state.troubles.push(Trouble { name, title: alert.title.clone(), message: alert.message.clone() });
        }
        let (now, wall) = (parts.clock.now(), parts.clock.wall());
        for mut delivery in waiting {
            let at = delivery.next_attempt.map_or(now, |at| now.after(at.since(wall)));
            let channel = state.channels.entry(delivery.notification.channel.clone()).or_default();
            if channel.count() == 0 {
                // It may have been in flight.
                delivery.notification.forget_before();
            }
            channel.queue(delivery, at, None);
        }
        Self(Arc::new(Inner { parts, state: Mutex::new(state), wake: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the configured channels and the plugins. Deliveries of a channel that is not configured are given up.
    pub(crate) fn configure(&self, channels: &BTreeMap<TargetId, Arc<RuntimeTarget>>, plugins: &PluginSet) {
        let (mut given_up, mut removed, mut ended, mut changed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        {
            let mut state = self.state();
            let State { channels: held, lost, .. } = &mut *state;
            for (name, channel) in &mut *held {
                if !channels.keys().any(|id| id.as_str() == name) {
                    if let Some((before, sender)) = channel.runtime.take() {
                        removed.push(name.clone());
                        ended.push((before, sender, End::Gone));
                    }
                    lost.removed(name);
                    given_up.extend(channel.take_all());
                }
            }
            held.retain(|name, channel| channel.is_busy || channels.keys().any(|id| id.as_str() == name));
            for (id, target) in channels {
                let plugin = || plugins.get(&target.config.kind).cloned().map(Sender::Plugin);
                let sender = target.account.clone().map(Sender::Mail).or_else(plugin);
                let channel = held.entry(id.to_string()).or_default();
                let is_same = channel.runtime.as_ref().map(|(before, _)| Arc::ptr_eq(before, target));
                // A corrected address or secret is tried at once. It may have been corrected while the host was down,
                // or the channel may have been removed then.
                let may_be_corrected = channel.is_in_trouble || lost.has(id.as_str());
                if !is_same.unwrap_or(!may_be_corrected) | lost.is_back(id.as_str()) {
                    channel.hurry(self.0.parts.clock.now());
                    changed.push(id.to_string());
                }
                if let Some((before, earlier)) = channel.runtime.replace((target.clone(), sender)) {
                    target.keep_values_of(&before);
                    if target.change_from(&before) == Change::Reset {
                        ended.push((before, earlier, End::Gone));
                    } else if target.plugin != before.plugin {
                        ended.push((before, earlier, End::Paused));
                    }
                }
            }
        }
        let is_gone = |trouble: &Trouble| !channels.keys().any(|id| id.as_str() == trouble.name);
        let has_gone = self.state().troubles.iter().any(is_gone);
        if has_gone {
            self.report_troubles();
        }
        changed.iter().for_each(|name| self.send_lost_again(name));
        given_up.into_iter().for_each(|delivery| self.give_up(delivery, GONE.to_owned()));
        removed.iter().for_each(|name| self.forget_values(name));
        self.end_sessions(ended);
        self.0.wake.notify_one();
    }

    /// Takes a new delivery that is about to be written. Returns the number of those that wait if it is too large: the
    /// driver holds alerts back then, until [`Message::Undelivered`].
    pub(crate) fn queue(&self, delivery: Delivery) -> Option<usize> {
        let now = self.0.parts.clock.now();
        let mut state = self.state();
        let name = delivery.notification.channel.clone();
        let channel = state.channels.entry(name.clone()).or_default();
        channel.queue(delivery, now, Some(now.after(UNSTORED)));
        let count = Some(channel.count()).filter(|count| *count >= MAX_OPEN);
        if count.is_some() {
            state.full.insert(name);
        }
        drop(state);
        // It may be the next one that is due.
        self.0.wake.notify_one();
        count
    }

    /// Notes that changes of alerts are on disk, among them deliveries.
    pub(crate) fn stored(&self, changes: &[AlertChange]) {
        let mut is_news = false;
        // Another device continues with what is open here, and with what its receivers were notified of.
        let is_shared = |change: &AlertChange| match change {
            AlertChange::Save(alert) => alert.traits.shared_by.is_some(),
            AlertChange::Deliver(_) => true,
            _ => false,
        };
        if changes.iter().any(is_shared) {
            self.0.parts.reported.notify_one();
        }
        for change in changes {
            let AlertChange::Deliver(delivery) = change else { continue };
            let Notification { channel, number, .. } = &delivery.notification;
            if let Some(channel) = self.state().channels.get_mut(channel) {
                channel.stored(*number);
            }
            is_news = true;
        }
        if is_news {
            self.0.wake.notify_one();
        }
    }

    /// Returns the state of each channel.
    pub fn channels(&self) -> Vec<ChannelState> {
        let state = self.state();
        let configured = state.channels.iter().filter_map(|(name, channel)| channel.shown(name));
        configured.collect()
    }

    /// Sends until the host ends, then waits for the attempts in flight.
    pub async fn run(self, ending: CancellationToken) {
        while !ending.is_cancelled() {
            let wait = self.start_due();
            self.send_reports().await;
            tokio::select! {
                () = self.0.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
                () = ending.cancelled() => {}
            }
        }
        let idle = async {
            while self.state().channels.values().any(|channel| channel.is_busy) {
                self.0.wake.notified().await;
            }
        };
        // An attempt that takes longer is repeated after the next start.
        let _ = tokio::time::timeout(GRACE, idle).await;
        self.end_all_sessions().await;
    }

    /// Starts the attempts that are due. Returns the time until the next one.
    fn start_due(&self) -> Duration {
        let Inner { parts, .. } = &*self.0;
        let (now, wall) = (parts.clock.now(), parts.clock.wall());
        let (mut attempts, mut expired) = (Vec::new(), Vec::new());
        let mut next = now.after(LONGEST_WAIT);
        self.catch_up(now);
        self.state().report_room();
        for channel in self.state().channels.values_mut() {
            expired.extend(channel.take_expired(|delivery| wall.since(delivery.created) >= EXPIRES));
            match channel.due(now) {
                Ok(Some((target, sender, delivery))) => {
                    let attempt = Attempt { outbox: self.clone(), target, sender, delivery };
                    attempts.push((attempt.target.id().clone(), attempt));
                }
                Ok(None) => {}
                Err(later) => next = next.min(later),
            }
        }
        for delivery in expired {
            let last = delivery.error.clone().unwrap_or_else(|| "it was not tried".to_owned());
            self.give_up(delivery, format!("it was not delivered within 24 hours; last: {last}"));
        }
        if !attempts.is_empty() {
            parts.sandbox.lanes().spawn_all(attempts, Attempt::run);
        }
        next.since(now)
    }

    /// Handles the end of an attempt.
    fn ended(&self, name: &str, number: u64, attempted: Attempted) {
        let clock = &self.0.parts.clock;
        let (now, wall) = (clock.now(), clock.wall());
        let Some(delivery) = self.state().channels.get_mut(name).and_then(|channel| channel.delivery(number)) else {
            return;
        };
        let attempts = delivery.attempts.saturating_add(1);
        let mut delivery = Delivery { attempts, last_attempt: Some(wall), ..delivery };
        if attempted.may_have_arrived {
            delivery.notification.forget_before();
        }
        let failure = match attempted.result {
            Ok(refused) => {
                self.state().channels.get_mut(name).map(Channel::take_withdrawn);
                // An alert that was refused is lost.
                if let Some(why) = delivery.refusals() {
                    self.failed(name, &why, true);
                    return self.give_up(delivery, why);
                }
                let (state, error) = (DeliveryState::Delivered, refused.clone());
                let done = Delivery { state, next_attempt: None, error, ..delivery };
                self.state().lost.taken(&done);
                self.finish(done.clone(), now);
                self.succeeded(name, refused);
                return self.write(done, Vec::new());
            }
            Err(failure) => failure,
        };
        let why = failure.message.clone();
        let Some(delivery) = self.without_withdrawn(delivery) else { return self.failed(name, &why, false) };
        let is_first = delivery.attempts == 1;
        if self.state().channels.get(name).is_none_or(|channel| channel.runtime.is_none()) {
            return self.give_up(delivery, GONE.to_owned());
        }
        if failure.category == FailureCategory::Permanent {
            self.failed(name, &why, true);
            return self.give_up(delivery, why);
        }
        // A delivery that replaced others waits as long as they would.
        let of = |channel: &Channel| channel.in_a_row(&delivery).max(channel.failing.saturating_add(1));
        let in_a_row = self.state().channels.get(name).map_or(delivery.attempts, of);
        let wait = after_failure(in_a_row, failure.retry_after);
        let delivery = Delivery { next_attempt: Some(clock.at(now.after(wait))), error: Some(why.clone()), ..delivery };
        if let Some(channel) = self.state().channels.get_mut(name) {
            channel.queue(delivery.clone(), now.after(wait), Some(now.after(UNSTORED)));
        }
        self.failed(name, &why, failure.category == FailureCategory::Misconfigured);
        let what = if delivery.progress.is_empty() { "notification" } else { "the rest of notification" };
        tracing::warn!("channel {name} did not take {what} {number}: {why}; it is tried again in {wait:?}");
        let event = EventKind::DeliveryFailed { channel: name.to_owned(), number, is_over: false, message: why };
        self.write(delivery, if is_first { vec![event] } else { Vec::new() });
    }

    /// Stores that a delivery is not tried any more.
    fn give_up(&self, delivery: Delivery, why: String) {
        let (name, number) = (delivery.notification.channel.clone(), delivery.notification.number);
        tracing::error!("notification {number} for channel {name} is given up: {why}");
        let event = EventKind::DeliveryFailed { channel: name.clone(), number, is_over: true, message: why.clone() };
        let state = DeliveryState::Undeliverable;
        let over = Delivery { state, next_attempt: None, error: Some(why), ..delivery };
        {
            let mut state = self.state();
            state.lost.given_up(&over);
            if let Some(channel) = state.channels.get_mut(&name) {
                channel.undeliverable += 1;
            }
        }
        self.finish(over.clone(), self.0.parts.clock.now());
        self.write(over, vec![event]);
    }

    /// Removes a delivery that is over. The next one of its channel waits until that is on disk.
    fn finish(&self, delivery: Delivery, now: Moment) {
        let (name, number) = (delivery.notification.channel, delivery.notification.number);
        if let Some(channel) = self.state().channels.get_mut(&name) {
            channel.finish(number, now.after(UNSTORED));
        }
        self.0.wake.notify_one();
    }

    fn report(&self, message: Message) {
        self.state().reports.push(message);
        self.0.wake.notify_one();
    }

    /// Sends the messages for the driver.
    async fn send_reports(&self) {
        let reports = std::mem::take(&mut self.state().reports);
        if reports.is_empty() {
            return;
        }
        let mailbox = self.0.parts.mailbox.clone();
        // The driver is gone only when the host ends.
        let sent = tokio::task::spawn_blocking(move || {
            for report in reports {
                let _ = mailbox.send(report);
            }
        });
        let _ = sent.await;
    }

    /// Writes the state of a delivery, with events.
    fn write(&self, delivery: Delivery, kinds: Vec<EventKind>) {
        self.write_then(delivery, kinds, || {});
    }

    /// Writes the state of a delivery, with events, and calls `then` when it is on disk.
    fn write_then(&self, delivery: Delivery, kinds: Vec<EventKind>, then: impl FnOnce() + Send + 'static) {
        self.write_changes(vec![AlertChange::Deliver(Box::new(delivery))], kinds, then);
    }

    fn write_changes(&self, changes: Vec<AlertChange>, kinds: Vec<EventKind>, then: impl FnOnce() + Send + 'static) {
        let at = self.0.parts.clock.wall();
        let events = kinds.into_iter().map(|kind| Event { at, kind }).collect();
        let (outbox, bus) = (self.clone(), self.0.parts.bus.clone());
        let written = changes.clone();
        let publish = Box::new(move |stored: Vec<SequencedEvent>| {
            stored.into_iter().for_each(|event| bus.announce(event));
            outbox.stored(&written);
            then();
        });
        self.0.parts.store.writer().alerts(changes, events, publish);
    }
}
