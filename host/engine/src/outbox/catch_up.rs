//! Channels that are tried again after a while.

use super::channel::Channel;
use super::reduction::{Changed, Removal, without};
use super::{Outbox, UNSTORED};
use crate::message::{Message, Withdrawn};
use model::{AlertChange, Before, Delivery, DeliveryState, Moment};
use notify::Unsent;

impl From<Changed> for Withdrawn {
    fn from(Changed { delivery, unsent }: Changed) -> Self {
        Self { unsent, changes: vec![AlertChange::Deliver(Box::new(delivery))] }
    }
}

impl Outbox {
    /// Removes news that later news replace, from channels in trouble that are tried again.
    pub(super) fn catch_up(&self, now: Moment) {
        let (mut changes, mut withdrawn) = (Vec::new(), Withdrawn::default());
        {
            let mut state = self.state();
            for (name, channel) in &mut state.channels {
                let before = channel.count();
                for changed in channel.catch_up(now, now.after(UNSTORED)) {
                    match changed.unsent.is_empty() {
                        true => changes.push(AlertChange::Deliver(Box::new(changed.delivery))),
                        false => withdrawn.add(changed.into()),
                    }
                }
                let left = channel.count();
                if left < before {
                    let count = before - left;
                    tracing::info!(
                        "channel {name}: {count} notifications are not sent, because later ones replace them"
                    );
                }
            }
        }
        if !changes.is_empty() {
            self.write_changes(changes, Vec::new(), || {});
        }
        if !withdrawn.unsent.is_empty() {
            self.report(Message::NotSent(withdrawn));
        }
    }

    /// Removes alerts from what waits.
    pub(crate) fn withdraw(&self, removal: &Removal) -> Withdrawn {
        let mut withdrawn = Withdrawn::default();
        let changed: Vec<Changed> =
            self.state().channels.values_mut().flat_map(|channel| channel.withdraw(removal)).collect();
        changed.into_iter().for_each(|changed| withdrawn.add(changed.into()));
        if !withdrawn.changes.is_empty() {
            // There may be room for others.
            self.0.wake.notify_one();
        }
        withdrawn
    }

    /// Removes what was withdrawn during an attempt from its delivery, before that is tried again. `None` if nothing is
    /// left of it.
    pub(super) fn without_withdrawn(&self, delivery: Delivery) -> Option<Delivery> {
        let name = delivery.notification.channel.clone();
        let withdrawn = self.state().channels.get_mut(&name).map(Channel::take_withdrawn).unwrap_or_default();
        let Some(mut changed) = without(&delivery, &withdrawn) else { return Some(delivery) };
        if let Some(channel) = self.state().channels.get_mut(&name) {
            channel.skip_told_later(delivery.notification.number, &mut changed.unsent);
        }
        if changed.delivery.state != DeliveryState::Replaced {
            let Changed { delivery, unsent } = changed;
            self.report(Message::NotSent(Withdrawn { unsent, changes: Vec::new() }));
            return Some(delivery);
        }
        self.finish(changed.delivery.clone(), self.0.parts.clock.now());
        self.report(Message::NotSent(changed.into()));
        None
    }

    /// Sends what is still true of the messages that a channel lost, unless later news about it wait.
    pub(super) fn send_lost_again(&self, channel: &str) {
        let lost = {
            let mut state = self.state();
            let waiting = state.channels.get(channel).map(Channel::subjects).unwrap_or_default();
            let mut lost = state.lost.take(channel);
            lost.retain(|subject| !waiting.contains(subject));
            lost
        };
        if !lost.is_empty() {
            // Its receiver may have taken a part of them.
            let unsent = |subject| Unsent { channel: channel.to_owned(), subject, before: Before::Unknown };
            let unsent = lost.into_iter().map(unsent).collect();
            self.report(Message::NotSent(Withdrawn { unsent, changes: Vec::new() }));
        }
    }

    /// Ends a delivery of which nothing is left to send. That says nothing about the channel.
    pub(super) fn complete(&self, delivery: Delivery) {
        if let Some(why) = delivery.refusals() {
            self.failed(&delivery.notification.channel, &why, true);
            return self.give_up(delivery, why);
        }
        let done = Delivery { state: DeliveryState::Delivered, next_attempt: None, error: None, ..delivery };
        self.finish(done.clone(), self.0.parts.clock.now());
        self.write(done, Vec::new());
    }
}
