//! Alerts: what the notifier learns, and its actions for the store.
//!
//! The changes of alerts are written in the transaction of the change that led to them, and are shown after it.

use super::Driver;
use crate::alerts::{AlertRules, KnownReading};
use crate::message::Withdrawn;
use crate::outbox::Removal;
use model::{
    AlertChange, AlertState, Cause, Class, CommandError, Delivery, Event, EventKind, Failure, Kind, SequencedEvent,
    Status, Subject, TargetId,
};
use notify::{Action, Input, Now, Outcome, Polled, Trouble};
use scheduler::Finish;
use std::cell::LazyCell;
use std::collections::BTreeSet;

/// Changes of alerts with their events.
#[derive(Default)]
pub(super) struct AlertStep {
    pub changes: Vec<AlertChange>,
    pub events: Vec<Event>,
}

impl AlertStep {
    pub(super) const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.events.is_empty()
    }

    fn add(&mut self, later: Self) {
        self.changes.extend(later.changes);
        self.events.extend(later.events);
    }
}

impl Driver {
    fn notifier_now(&self) -> Now {
        Now { moment: self.wiring.clock.now(), wall: self.wiring.clock.wall() }
    }

    /// Lets time pass for the notifier, if it has something to do at this time.
    pub(super) fn pass_alert_time(&mut self) {
        if self.notifier.next_wakeup().is_some_and(|at| at <= self.wiring.clock.now()) {
            self.apply_to_alerts(Input::Tick);
        }
    }

    /// Applies an input that is not a poll, and hands the changed alerts to the store.
    pub(super) fn apply_to_alerts(&mut self, input: Input<'_>) {
        self.apply_to_alerts_then(input, || {});
    }

    /// Applies an input that is not a poll, hands the changed alerts to the store, and calls `then` when they are on
    /// disk.
    pub(super) fn apply_to_alerts_then(&mut self, input: Input<'_>, then: impl FnOnce() + Send + 'static) {
        self.notifier.apply(input, self.notifier_now());
        let step = self.drain_alerts();
        self.store_alerts(step, then);
    }

    /// Notes what is not sent any more.
    pub(super) fn not_sent(&mut self, withdrawn: Withdrawn) {
        let step = self.take_back(withdrawn);
        self.store_alerts(step, || {});
    }

    /// Shows the notifier what is not sent any more. Returns the changes of deliveries and alerts.
    fn take_back(&mut self, Withdrawn { unsent, changes }: Withdrawn) -> AlertStep {
        self.notifier.apply(Input::NotSent(unsent), self.notifier_now());
        let mut step = AlertStep { changes, events: Vec::new() };
        step.add(self.drain_alerts());
        step
    }

    /// Hands changed alerts to the store, and calls `then` when they are on disk.
    fn store_alerts(&self, step: AlertStep, then: impl FnOnce() + Send + 'static) {
        if step.is_empty() {
            return then();
        }
        let AlertStep { changes, events } = step;
        let (read_model, bus, shown) = (self.wiring.read_model.clone(), self.wiring.bus.clone(), changes.clone());
        let outbox = self.outbox.clone();
        let publish = Box::new(move |stored: Vec<SequencedEvent>| {
            outbox.stored(&shown);
            read_model.change_alerts(shown);
            stored.into_iter().for_each(|event| bus.announce(event));
            then();
        });
        self.wiring.store.writer().alerts(changes, events, publish);
    }

    /// Shows the notifier the result of a poll, and whether it changed the known state. Returns the alerts that it
    /// changed.
    pub(super) fn observe(
        &mut self,
        id: &TargetId,
        (finish, is_change): (Finish, bool),
        failure: Option<&Failure>,
    ) -> AlertStep {
        let Some(tracked) = self.targets.get(id).filter(|_| finish != Finish::Skipped) else {
            return AlertStep::default();
        };
        let is_unreachable = self.scheduler.status(id).is_some_and(|status| status.unreachable);
        let (target, now) = (tracked.target.clone(), self.notifier_now());
        let known = target.known();
        let reading = KnownReading::new(&known, &target.config.kind);
        let outcome = match failure {
            None if is_change => Outcome::Report(&reading),
            None => Outcome::Repeated(&reading),
            Some(failure) => Outcome::Failed {
                is_network: failure.cause == Cause::Unreachable,
                unreachable: is_unreachable.then_some(failure.message.as_str()),
            },
        };
        self.notifier.apply(Input::Polled(Polled { target: id, outcome }), now);
        drop(known);
        self.drain_alerts()
    }

    fn drain_alerts(&mut self) -> AlertStep {
        let clock = self.wiring.clock;
        // Most reports change no alert.
        let at = LazyCell::new(move || clock.wall());
        let (mut step, mut removal) = (AlertStep::default(), Removal::default());
        for action in self.notifier.drain() {
            let kind = match action {
                Action::Save(record) => {
                    step.changes.push(AlertChange::Save(record));
                    continue;
                }
                Action::Forget(subject) => {
                    step.changes.push(AlertChange::Forget(subject));
                    continue;
                }
                Action::Firing(subject) => {
                    let record = self.notifier.record(&subject);
                    let status = record.map_or(Status::Critical, |record| record.status);
                    let message = record.and_then(|record| record.message.clone());
                    EventKind::AlertFiring { alert: subject.to_string(), status, message }
                }
                Action::Resolved(subject) => EventKind::AlertResolved { alert: subject.to_string() },
                Action::Suppressed(subject, by) => {
                    EventKind::AlertSuppressed { alert: subject.to_string(), by: by.to_string() }
                }
                Action::HandedOver(fingerprint) => {
                    removal.elsewhere.insert(fingerprint);
                    continue;
                }
                Action::Withdraw(fingerprint) => {
                    removal.seen.insert(fingerprint);
                    continue;
                }
                Action::Notify(notification) => {
                    self.deliver(Delivery::new(notification, *at), &mut step);
                    continue;
                }
            };
            step.events.push(Event { at: *at, kind });
        }
        if !removal.is_empty() {
            let withdrawn = self.outbox.withdraw(&removal);
            step.add(self.take_back(withdrawn));
        }
        step
    }

    /// Queues a delivery, which is sent once it is on disk.
    fn deliver(&mut self, delivery: Delivery, step: &mut AlertStep) {
        let channel = delivery.notification.channel.clone();
        step.changes.push(AlertChange::Deliver(Box::new(delivery.clone())));
        if let Some(count) = self.outbox.queue(delivery) {
            self.notifier.apply(Input::Undelivered(channel, count), self.notifier_now());
        }
    }

    /// Takes over the rules and targets of a new configuration.
    pub(super) fn configure_alerts(&mut self, rules: AlertRules) {
        let specs = self.targets.values().map(|tracked| rules.spec(&tracked.target)).collect();
        self.apply_to_alerts(Input::Settings(rules.settings(&self.wiring.plugins)));
        self.outbox.configure(&rules.channels, &self.wiring.plugins);
        let served_by_plugins = rules.channels.values().filter(|channel| !channel.config.is_email());
        self.channel_kinds = served_by_plugins.map(|channel| channel.config.kind.clone()).collect();
        self.apply_to_alerts(Input::Silences(rules.silences));
        self.apply_to_alerts(Input::Targets(specs));
        self.report_plugins();
    }

    /// Reports the kinds of targets and channels that no plugin serves.
    pub(super) fn report_plugins(&mut self) {
        let kinds: BTreeSet<&Kind> = (self.targets.values())
            .filter(|tracked| tracked.target.config.enabled)
            .map(|tracked| &tracked.target.config.kind)
            .chain(&self.channel_kinds)
            .collect();
        let targets = |kind: &Kind| {
            let count = self.targets.values().filter(|tracked| tracked.target.config.kind == *kind).count();
            if count == 1 { "1 target is".to_owned() } else { format!("{count} targets are") }
        };
        let lacking = kinds.iter().filter(|kind| self.wiring.plugins.get(kind).is_none()).map(|kind| {
            let suffers = match self.channel_kinds.contains(*kind) {
                true => "its channels do not deliver".to_owned(),
                false => format!("{} not polled", targets(kind)),
            };
            let message = Some(format!("{suffers}: drop a plugin for it into the plugin directory"));
            Trouble { name: kind.to_string(), title: format!("no plugin serves kind {kind}"), message }
        });
        let quarantined = self.scheduler.quarantined().map(|(kind, _)| Trouble {
            name: kind.to_string(),
            title: format!("the plugin of kind {kind} is in quarantine"),
            message: Some(format!(
                "it failed for several targets; {} not polled until a probe succeeds",
                targets(kind)
            )),
        });
        let troubles = lacking.chain(quarantined).collect();
        self.apply_to_alerts(Input::Troubles(Class::Plugin, troubles));
    }

    /// Acknowledges an alert, or takes that back if `by` is `None`.
    pub(super) fn acknowledge(&mut self, subject: Subject, by: Option<String>) -> Result<(), CommandError> {
        match self.notifier.record(&subject) {
            None => return Err(CommandError::Missing(format!("there is no alert {subject}"))),
            Some(record) if record.state == AlertState::Resolved => {
                return Err(CommandError::Conflict(format!("the alert {subject} is over")));
            }
            Some(_) => {}
        }
        self.apply_to_alerts(Input::Acknowledge { subject, by });
        Ok(())
    }
}
