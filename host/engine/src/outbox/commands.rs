//! Commands of operators: testing a channel, and trying a notification again.

use super::reduction::remove_unlisted;
use super::{Outbox, UNSTORED};
use crate::sample::test_notification;
use model::{AlertRecord, CommandError, Delivery, DeliveryState, LastNotified, Subject};
use sandbox::Collected;
use std::collections::BTreeSet;
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

    /// Tries a delivery again: one that waits is tried at once, and one that was given up waits again. Of the latter,
    /// only those of its alerts are sent that the channel was notified of last by it: `alerts` are all that are known.
    ///
    /// # Errors
    /// If its channel is not configured any more, or the receiver took it already, or later notifications replace it.
    pub fn retry(&self, delivery: Delivery, alerts: &[Arc<AlertRecord>]) -> Result<(), CommandError> {
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
                let delivery = newest(delivery, alerts).ok_or_else(|| {
                    let why = "later notifications say what is still true of it";
                    CommandError::Conflict(format!("notification {number} is not sent again: {why}"))
                })?;
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

/// Removes the alerts of which the channel was notified later, or that are not known any more. `None` if none is left.
fn newest(mut delivery: Delivery, alerts: &[Arc<AlertRecord>]) -> Option<Delivery> {
    let (channel, created) = (delivery.notification.channel.clone(), delivery.created);
    let is_last = |last: &LastNotified| last.channel == channel && last.at <= created;
    let newest = alerts.iter().filter(|alert| alert.notified.iter().any(is_last));
    let newest: BTreeSet<&Subject> = newest.map(|alert| &alert.subject).collect();
    delivery.notification.alerts.retain(|alert| newest.contains(&alert.subject));
    remove_unlisted(&mut delivery, |alert| !newest.contains(&alert.subject));
    (!delivery.notification.alerts.is_empty()).then_some(delivery)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample_notification;
    use model::{AlertEvent, AlertState, LastNotified, Status, Timestamp};

    #[test]
    fn what_later_news_replace_is_not_sent_again() {
        let at = Timestamp::from_millis;
        let delivery = Delivery::new(sample_notification("ops", (AlertEvent::Firing, 3), at(5)), at(5));
        let record = |place: usize, channel: &str, when: i64| {
            let last = LastNotified {
                channel: channel.to_owned(),
                event: AlertEvent::Firing,
                status: Status::Critical,
                at: at(when),
            };
            let subject = delivery.notification.alerts[place].subject.clone();
            Arc::new(AlertRecord {
                subject,
                state: AlertState::Firing,
                status: Status::Critical,
                since: at(1),
                ended: None,
                traits: Arc::default(),
                title: String::new(),
                message: None,
                object_link: None,
                ancestors: Vec::new(),
                changes: Vec::new(),
                flapping: None,
                acknowledged: None,
                suppressed_by: None,
                silenced_by: None,
                notified: vec![last],
            })
        };
        let alerts = [record(0, "ops", 5), record(1, "ops", 6), record(2, "other", 5)];
        let left = newest(delivery.clone(), &alerts).unwrap();
        assert_eq!(left.notification.alerts, delivery.notification.alerts[..1]);
        assert_eq!(newest(delivery.clone(), &alerts[1..]), None);
        assert_eq!(newest(delivery, &[]), None);
    }
}
