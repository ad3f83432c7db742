//! The queue and the state of one channel. Pure: it takes the time and returns what is due.

use super::reduction::{Changed, Removal, reduce, without};
use super::sender::Sender;
use crate::target::RuntimeTarget;
use model::{ChannelState, Delivery, DeliveryState, Moment, Subject, Timestamp};
use notify::Unsent;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One channel.
#[derive(Default)]
pub(super) struct Channel {
    /// Its definition and its sender, which is missing if no plugin serves its kind; `None` if it is not configured.
    pub runtime: Option<(Arc<RuntimeTarget>, Option<Sender>)>,
    /// The deliveries that wait, by their number.
    queue: BTreeMap<u64, Queued>,
    /// Whether an attempt is in flight.
    pub is_busy: bool,
    /// The alerts of which nothing more is sent since the attempt began.
    withdrawn: Removal,
    /// The delivery whose outcome is being written, and when the next one is sent all the same.
    unsettled: Option<(u64, Moment)>,
    /// The failed attempts since the last success.
    pub failing: u32,
    /// The delivery of which a part was taken last, and its attempts before that one.
    progressed: Option<(u64, u32)>,
    /// Whether operators are notified of its state.
    pub is_in_trouble: bool,
    /// Why the last attempt failed; `None` if it succeeded.
    pub problem: Option<String>,
    delivered: u64,
    failed_attempts: u64,
    pub undeliverable: u64,
    last_success: Option<Timestamp>,
}

struct Queued {
    delivery: Delivery,
    /// When it is due.
    at: Moment,
    /// When it is sent although it is not on disk; `None` if it is on disk.
    unstored: Option<Moment>,
}

/// The parts of an attempt.
type Due = (Arc<RuntimeTarget>, Sender, Delivery);

impl Channel {
    /// Adds a delivery, or replaces its earlier state. It is sent at `at`, and not before it is on disk or `unstored`.
    pub(super) fn queue(&mut self, delivery: Delivery, at: Moment, unstored: Option<Moment>) {
        self.queue.insert(delivery.notification.number, Queued { delivery, at, unstored });
    }

    pub(super) fn count(&self) -> usize {
        self.queue.len()
    }

    /// The alerts that the waiting deliveries are about.
    pub(super) fn subjects(&self) -> BTreeSet<Subject> {
        self.queue.values().flat_map(|queued| queued.delivery.rest().into_subjects()).collect()
    }

    /// Restores the trouble that operators were notified of before a restart. It is over with the next success.
    pub(super) fn trouble(&mut self, why: Option<String>) {
        self.is_in_trouble = true;
        self.problem = why;
    }

    /// Notes that the present state of a delivery is on disk.
    pub(super) fn stored(&mut self, number: u64) {
        if let Some(queued) = self.queue.get_mut(&number) {
            queued.unstored = None;
        }
        self.unsettled = self.unsettled.filter(|(unsettled, _)| *unsettled != number);
    }

    /// Returns the attempt that is due and marks the channel as busy; `None` if nothing waits. Fails with the time of
    /// the next one.
    pub(super) fn due(&mut self, now: Moment) -> Result<Option<Due>, Moment> {
        let Some((target, Some(sender))) = self.runtime.clone() else { return Ok(None) };
        let Some((_, first)) = self.queue.first_key_value().filter(|_| !self.is_busy) else { return Ok(None) };
        let at = [Some(first.at), first.unstored, self.unsettled.map(|(_, until)| until)];
        match at.into_iter().flatten().max() {
            Some(later) if later > now => Err(later),
            _ => {
                self.is_busy = true;
                Ok(Some((target, sender, first.delivery.clone())))
            }
        }
    }

    /// Returns a delivery that waits.
    pub(super) fn delivery(&self, number: u64) -> Option<Delivery> {
        self.queue.get(&number).map(|queued| queued.delivery.clone())
    }

    /// Removes a delivery whose outcome is being written.
    pub(super) fn finish(&mut self, number: u64, until: Moment) {
        if self.queue.remove(&number).is_some() {
            self.unsettled = Some((number, until));
        }
    }

    /// Removes all deliveries, except the one in flight.
    pub(super) fn take_all(&mut self) -> Vec<Delivery> {
        let kept = if self.is_busy { self.queue.pop_first() } else { None };
        let taken = std::mem::take(&mut self.queue).into_values().map(|queued| queued.delivery).collect();
        self.queue.extend(kept);
        taken
    }

    /// Removes the deliveries that are too old, except the one in flight.
    pub(super) fn take_expired(&mut self, is_expired: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let in_flight = self.in_flight();
        let expired =
            self.queue.iter().filter(|(number, queued)| Some(**number) != in_flight && is_expired(&queued.delivery));
        let numbers: Vec<u64> = expired.map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| self.queue.remove(number)).map(|queued| queued.delivery).collect()
    }

    /// Reduces what waits to what is still true, if the channel failed for a while and is tried again now. Returns the
    /// deliveries that changed. They are not sent before they are on disk or `unstored`.
    pub(super) fn catch_up(&mut self, now: Moment, unstored: Moment) -> Vec<Changed> {
        let is_tried_again =
            |first: &Queued| first.at <= now && first.unstored.is_none() && first.delivery.attempts > 0;
        let first = self.queue.values().next();
        if self.is_busy || !self.is_in_trouble || !first.is_some_and(is_tried_again) {
            return Vec::new();
        }
        // The row of another one is still to be written.
        let stored = self.queue.values().filter(|queued| queued.unstored.is_none());
        let changed = reduce(&stored.map(|queued| &queued.delivery).collect::<Vec<_>>());
        changed.iter().for_each(|changed| self.replace(&changed.delivery, Some(unstored)));
        changed
    }

    /// Removes alerts from the deliveries that wait, and from the one in flight if its attempt fails. Returns what
    /// changed.
    pub(super) fn withdraw(&mut self, removal: &Removal) -> Vec<Changed> {
        let in_flight = self.in_flight();
        if in_flight.is_some() {
            self.withdrawn.elsewhere.extend(removal.elsewhere.iter().cloned());
            self.withdrawn.seen.extend(removal.seen.iter().cloned());
        }
        let waiting = self.queue.iter().filter(|(number, _)| Some(**number) != in_flight);
        let changed: Vec<Changed> = waiting.filter_map(|(_, queued)| without(&queued.delivery, removal)).collect();
        changed.iter().for_each(|changed| self.replace(&changed.delivery, None));
        changed
    }

    /// Removes the alerts that a later delivery is about, too. What the channel knew before this one is what it knows
    /// before that one.
    pub(super) fn skip_told_later(&mut self, number: u64, unsent: &mut Vec<Unsent>) {
        unsent.retain(|Unsent { subject, before, .. }| {
            let later = self.queue.range_mut(number + 1..).map(|(_, queued)| &mut queued.delivery.notification);
            let follow = later.into_iter().find_map(|notification| notification.before_of(subject));
            follow.map(|follow| follow.clone_from(before)).is_none()
        });
    }

    /// Returns what was withdrawn during the attempt that ended.
    pub(super) fn take_withdrawn(&mut self) -> Removal {
        std::mem::take(&mut self.withdrawn)
    }

    /// The number of the delivery in flight.
    fn in_flight(&self) -> Option<u64> {
        self.queue.first_key_value().map(|(number, _)| *number).filter(|_| self.is_busy)
    }

    /// Replaces a delivery by its later state; `unstored` as in [`Channel::queue`].
    fn replace(&mut self, delivery: &Delivery, unstored: Option<Moment>) {
        let number = delivery.notification.number;
        if delivery.state == DeliveryState::Replaced {
            self.queue.remove(&number);
        } else if let Some(queued) = self.queue.get_mut(&number) {
            queued.delivery = delivery.clone();
            queued.unstored = unstored.or(queued.unstored);
        }
    }

    /// Makes all deliveries due.
    pub(super) fn hurry(&mut self, now: Moment) {
        self.queue.values_mut().for_each(|queued| queued.at = now);
    }

    /// Makes one delivery due. Returns whether it waits.
    pub(super) fn hurry_one(&mut self, number: u64, now: Moment) -> bool {
        let found = self.queue.get_mut(&number);
        found.map(|queued| queued.at = now).is_some()
    }

    /// Notes a success, and why a part of the receivers was refused.
    pub(super) fn succeeded(&mut self, wall: Timestamp, refused: Option<String>) {
        self.delivered += 1;
        self.failing = 0;
        self.last_success = Some(wall);
        self.is_in_trouble = refused.is_some();
        self.problem = refused;
    }

    /// Notes that the receiver took or refused an alert of a delivery: it works, although it may not take all at once.
    pub(super) fn progressed(&mut self, delivery: &Delivery) {
        self.failing = 0;
        self.progressed = Some((delivery.notification.number, delivery.attempts));
    }

    /// Returns the number of attempts of a delivery since the last one of which a part was taken, with that one.
    pub(super) fn in_a_row(&self, delivery: &Delivery) -> u32 {
        match self.progressed {
            Some((number, before)) if number == delivery.notification.number => {
                delivery.attempts.saturating_sub(before)
            }
            _ => delivery.attempts,
        }
    }

    pub(super) fn failed(&mut self, why: &str) {
        self.failing = self.failing.saturating_add(1);
        self.failed_attempts += 1;
        self.problem = Some(why.to_owned());
    }

    /// The state for readers; `None` if it is not configured.
    pub(super) fn shown(&self, name: &str) -> Option<ChannelState> {
        let (target, sender) = self.runtime.as_ref()?;
        let lacks = || format!("no plugin serves kind {}", target.config.kind);
        Some(ChannelState {
            name: name.to_owned(),
            kind: target.config.kind.to_string(),
            url: target.config.shown_url(),
            waiting: self.queue.len(),
            oldest: self.queue.values().map(|queued| queued.delivery.created).min(),
            delivered: self.delivered,
            failed_attempts: self.failed_attempts,
            undeliverable: self.undeliverable,
            last_success: self.last_success,
            problem: if sender.is_none() { Some(lacks()) } else { self.problem.clone() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample_notification;
    use model::{AlertEvent, Before, DeliveryState};

    #[test]
    fn an_attempt_of_which_a_part_was_taken_begins_a_new_row() {
        let now = Timestamp::from_millis(0);
        let delivery = |number, attempts| Delivery {
            notification: model::Notification { number, ..sample_notification("pager", (AlertEvent::Firing, 3), now) },
            state: DeliveryState::Waiting,
            created: now,
            attempts,
            last_attempt: None,
            next_attempt: None,
            error: None,
            progress: Vec::new(),
        };
        let mut channel = Channel::default();
        for attempts in 1..4 {
            channel.failed("no");
            assert_eq!(channel.in_a_row(&delivery(7, attempts)), attempts);
        }
        for attempts in 3..6 {
            channel.progressed(&delivery(7, attempts));
            channel.failed("too many requests");
            assert_eq!((channel.in_a_row(&delivery(7, attempts + 1)), channel.failing), (1, 1));
        }
        assert_eq!(channel.in_a_row(&delivery(7, 8)), 3, "no part was taken since");
        assert_eq!(channel.in_a_row(&delivery(8, 2)), 2, "another one");
    }

    #[test]
    fn an_alert_of_which_a_later_delivery_says_more_is_not_unsent() {
        let at = Timestamp::from_millis(0);
        let delivery = |number, alerts| {
            let mut delivery = Delivery::new(sample_notification("ops", (AlertEvent::Firing, alerts), at), at);
            delivery.notification.number = number;
            delivery
        };
        let subjects: Vec<Subject> = delivery(1, 3).notification.into_subjects().collect();
        for (later, left) in [(vec![2, 3], &subjects[2..]), (vec![], &subjects[..])] {
            let mut channel = Channel::default();
            later.iter().for_each(|number| channel.queue(delivery(*number, 2), Moment::default(), None));
            let unsent = |subject: &Subject| {
                let (channel, subject) = ("ops".to_owned(), subject.clone());
                Unsent { channel, subject, before: Before::Nothing }
            };
            let mut unsent: Vec<Unsent> = subjects.iter().map(unsent).collect();
            channel.skip_told_later(1, &mut unsent);
            assert_eq!(unsent.into_iter().map(|unsent| unsent.subject).collect::<Vec<_>>(), left);
            for (number, before) in later.into_iter().zip([Before::Nothing, Before::Unknown]) {
                let told = channel.delivery(number).unwrap().notification.alerts;
                assert!(told.iter().all(|alert| alert.before == before), "{number}");
            }
        }
    }
}
