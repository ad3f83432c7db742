//! Channels that are tried again after a while.

use super::channel::Channel;
use super::reduction::{Removal, Without, without};
use super::{Outbox, UNSTORED};
use crate::message::Message;
use model::{AlertChange, Delivery, DeliveryState, Moment, Subject};

impl Outbox {
    /// Removes news that later news replace, from channels in trouble that are tried again.
    pub(super) fn catch_up(&self, now: Moment) {
        let mut changes = Vec::new();
        {
            let mut state = self.state();
            for (name, channel) in &mut state.channels {
                let before = channel.count();
                let changed = channel.catch_up(now, now.after(UNSTORED));
                changes.extend(changed.into_iter().map(|delivery| AlertChange::Deliver(Box::new(delivery))));
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
    }

    /// Removes alerts from what waits. Returns the deliveries that changed, which the caller stores, and the channels
    /// and alerts of the messages that are not sent.
    pub(crate) fn withdraw(&self, removal: &Removal) -> (Vec<AlertChange>, Vec<(String, Subject)>) {
        let mut state = self.state();
        let changed = state.channels.values_mut().flat_map(|channel| channel.withdraw(removal));
        let (mut changes, mut dropped) = (Vec::new(), Vec::new());
        for Without { delivery, removed } in changed {
            let channel = &delivery.notification.channel;
            dropped.extend(removed.into_iter().map(|subject| (channel.clone(), subject)));
            changes.push(AlertChange::Deliver(Box::new(delivery)));
        }
        drop(state);
        if !changes.is_empty() {
            // There may be room for others.
            self.0.wake.notify_one();
        }
        (changes, dropped)
    }

    /// Removes what was withdrawn during an attempt from its delivery, before that is tried again. `None` if nothing is
    /// left of it.
    pub(super) fn without_withdrawn(&self, delivery: Delivery) -> Option<Delivery> {
        let name = delivery.notification.channel.clone();
        let withdrawn = self.state().channels.get_mut(&name).map(Channel::take_withdrawn).unwrap_or_default();
        let Some(Without { delivery, removed }) = without(&delivery, &withdrawn) else { return Some(delivery) };
        self.report(Message::NotSent(removed.into_iter().map(|subject| (name.clone(), subject)).collect()));
        if delivery.state != DeliveryState::Replaced {
            return Some(delivery);
        }
        self.finish(delivery.clone(), self.0.parts.clock.now());
        self.write(delivery, Vec::new());
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
            let lost = lost.into_iter().map(|subject| (channel.to_owned(), subject)).collect();
            self.report(Message::NotSent(lost));
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
