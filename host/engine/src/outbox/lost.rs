//! Messages that were given up. Once an operator has changed the channel, what is still true of them is sent again.

use model::{AlertRecord, Delivery, NotifiedAlert, Subject, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The alerts of messages that were given up, by channel.
#[derive(Default)]
pub(super) struct Lost {
    alerts: BTreeMap<String, BTreeSet<Subject>>,
    /// The channels that were removed from the configuration.
    removed: BTreeSet<String>,
}

impl Lost {
    /// The alerts whose last message is among the deliveries that were given up before a restart.
    pub(super) fn restored(given_up: &[Delivery], alerts: &[Arc<AlertRecord>]) -> Self {
        let mut lost = Self::default();
        if given_up.is_empty() {
            return lost;
        }
        let notified = |alert: &Arc<AlertRecord>| {
            let last = alert.notified.iter().map(|last| ((last.channel.clone(), alert.subject.clone()), last.at));
            last.collect::<Vec<_>>()
        };
        let last: BTreeMap<(String, Subject), Timestamp> = alerts.iter().flat_map(notified).collect();
        for delivery in given_up {
            let channel = &delivery.notification.channel;
            for subject in not_taken(delivery) {
                if last.get(&(channel.clone(), subject.clone())).is_some_and(|at| *at <= delivery.created) {
                    lost.alerts.entry(channel.clone()).or_default().insert(subject);
                }
            }
        }
        lost
    }

    pub(super) fn given_up(&mut self, delivery: &Delivery) {
        self.alerts.entry(delivery.notification.channel.clone()).or_default().extend(not_taken(delivery));
    }

    /// A later message about the same alerts was taken.
    pub(super) fn taken(&mut self, delivery: &Delivery) {
        let Some(lost) = self.alerts.get_mut(&delivery.notification.channel) else { return };
        for subject in delivery.notification.clone().into_subjects() {
            lost.remove(&subject);
        }
    }

    pub(super) fn removed(&mut self, channel: &str) {
        self.removed.insert(channel.to_owned());
    }

    /// Returns whether a channel was removed, and is configured again now.
    pub(super) fn is_back(&mut self, channel: &str) -> bool {
        self.removed.remove(channel)
    }

    /// Returns whether a channel lost messages.
    pub(super) fn has(&self, channel: &str) -> bool {
        self.alerts.get(channel).is_some_and(|alerts| !alerts.is_empty())
    }

    pub(super) fn take(&mut self, channel: &str) -> BTreeSet<Subject> {
        self.alerts.remove(channel).unwrap_or_default()
    }
}

/// The alerts of a delivery that its receiver did not take, with those that it only counts.
fn not_taken(delivery: &Delivery) -> impl Iterator<Item = Subject> {
    let is_taken = |alert: &NotifiedAlert| {
        let mut known = delivery.progress.iter();
        known.any(|known| known.fingerprint == alert.fingerprint && known.refused.is_none())
    };
    let mut left = delivery.notification.clone();
    left.alerts.retain(|alert| !is_taken(alert));
    left.into_subjects()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample_notification;
    use model::{AlertEvent, AlertProgress};

    #[test]
    fn what_a_receiver_did_not_take_is_lost_until_it_takes_a_later_message() {
        let at = Timestamp::from_millis(1);
        let mut delivery = Delivery::new(sample_notification("ops", (AlertEvent::Firing, 3), at), at);
        let alerts = delivery.notification.alerts.clone();
        let progress = |place: usize, refused: Option<&str>| AlertProgress {
            fingerprint: alerts[place].fingerprint.clone(),
            refused: refused.map(str::to_owned),
        };
        delivery.progress = vec![progress(0, None), progress(1, Some("no"))];
        let counted = Subject::Other(model::Class::Host, "counted".into());
        let unlisted = model::UnlistedAlert { subject: counted.clone(), ..alerts[0].clone().into() };
        (delivery.notification.omitted, delivery.notification.unlisted) = (1, vec![unlisted]);
        let mut lost = Lost::default();
        lost.given_up(&delivery);
        let mut later = delivery.clone();
        later.notification.alerts = vec![alerts[2].clone()];
        later.notification.unlisted.clear();
        lost.taken(&later);
        assert_eq!(lost.take("ops"), [alerts[1].subject.clone(), counted].into());
        lost.given_up(&delivery);
        lost.taken(&delivery);
        assert_eq!(lost.take("ops"), BTreeSet::new());
    }
}
