//! Channels that are tried again after a while.

use super::{Outbox, UNSTORED};
use crate::message::Message;
use model::{AlertChange, Delivery, DeliveryState, Moment};
use notify::MAX_OPEN;

impl Outbox {
    /// Removes news that later news replace, from channels in trouble that are tried again.
    pub(super) fn catch_up(&self, now: Moment) {
        let mut changes = Vec::new();
        {
            let mut state = self.state();
            let super::State { channels, reports, .. } = &mut *state;
            for (name, channel) in channels {
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
                if left < before && before >= MAX_OPEN {
                    reports.push(Message::Undelivered(name.clone(), left));
                }
            }
        }
        if !changes.is_empty() {
            self.write_changes(changes, Vec::new(), || {});
        }
    }

    /// Removes an alert that another device notifies of from what waits. Returns the deliveries that changed, which the
    /// caller stores.
    pub(crate) fn hand_over(&self, fingerprint: &str) -> Vec<AlertChange> {
        let mut state = self.state();
        let changed = state.channels.values_mut().flat_map(|channel| channel.hand_over(fingerprint));
        changed.map(|delivery| AlertChange::Deliver(Box::new(delivery))).collect()
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
