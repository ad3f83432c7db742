//! Commands of operators: testing a channel, and trying a notification again.

use super::{Outbox, UNSTORED};
use crate::sample::test_notification;
use model::{CommandError, Delivery, DeliveryState};
use sandbox::Collected;
use std::sync::Arc;

impl Outbox {
    /// Sends a test notification and waits for its outcome. It is not stored and not repeated.
    ///
    /// # Errors
    /// If there is no such channel, no plugin for it, or the receiver does not take the notification.
    pub async fn test(&self, name: &str) -> Result<(), CommandError> {
        let runtime = self.state().channels.get(name).and_then(|channel| channel.runtime.clone());
        let Some((target, sender)) = runtime else {
            return Err(CommandError::Missing(format!("there is no channel {name:?}")));
        };
        let kind = &target.config.kind;
        let sender = sender.ok_or_else(|| CommandError::Conflict(format!("no plugin serves kind {kind}")))?;
        let parts = &self.0.parts;
        let (means, now, progress) =
            ((&*parts.sandbox, &parts.egress), parts.clock.wall(), Arc::new(Collected::default()));
        let attempt = sandbox::Attempt::first(test_notification(name, now), now, progress.clone());
        let attempted = sender.send(means, &target, attempt, now).await;
        self.keep(&target, attempted.stored);
        match attempted.result {
            Ok(refused) => {
                let refused = refused.or_else(|| progress.take().into_iter().find_map(|alert| alert.refused));
                // It works again: what waits is tried now.
                if let Some(channel) = self.state().channels.get_mut(name) {
                    channel.hurry(parts.clock.now());
                }
                self.catch_up(parts.clock.now());
                self.send_lost_again(name);
                self.succeeded(name, refused.clone());
                self.0.wake.notify_one();
                let failed = |why| Err(CommandError::Conflict(format!("channel {name} delivers in part: {why}")));
                refused.map_or(Ok(()), failed)
            }
            Err(failure) => {
                self.failed(name, &failure.message, false);
                Err(CommandError::Conflict(format!("channel {name} does not deliver: {}", failure.message)))
            }
        }
    }

    /// Tries a delivery again: one that waits is tried at once, and one that was given up waits again.
    ///
    /// # Errors
    /// If its channel is not configured any more, or the receiver took it already.
    pub fn retry(&self, delivery: Delivery) -> Result<(), CommandError> {
        let (name, number) = (delivery.notification.channel.clone(), delivery.notification.number);
        let clock = &self.0.parts.clock;
        let now = clock.now();
        let renewed = {
            let mut state = self.state();
            let channel = state.channels.get_mut(&name).filter(|channel| channel.runtime.is_some());
            let Some(channel) = channel else {
                return Err(CommandError::Conflict(format!("there is no channel {name:?} any more")));
            };
            if channel.hurry_one(number, now) {
                None
            } else if delivery.state == DeliveryState::Delivered {
                return Err(CommandError::Conflict(format!("notification {number} was delivered already")));
            } else if delivery.state == DeliveryState::Replaced {
                return Err(CommandError::Conflict(format!("notification {number} was replaced by later ones")));
            } else {
                let waiting = DeliveryState::Waiting;
                let mut renewed = Delivery { state: waiting, created: clock.wall(), next_attempt: None, ..delivery };
                // An operator may have corrected the cause of the refusals.
                renewed.progress.retain(|alert| alert.refused.is_none());
                channel.queue(renewed.clone(), now, Some(now.after(UNSTORED)));
                Some(renewed)
            }
        };
        match renewed {
            Some(renewed) => self.write(renewed, Vec::new()),
            None => self.0.wake.notify_one(),
        }
        Ok(())
    }
}
