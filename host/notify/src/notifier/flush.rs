//! Making notifications of the groups that are due.

use super::Notifier;
use crate::groups::Batch;
use crate::input::{Action, Now};
use crate::message::{self, Frame};
use model::{AlertEvent, Notification, NotifiedAlert, Subject};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most alerts that a notification lists.
pub const LISTED: usize = 100;
/// Most rounds of one input. The second finds nothing unless a route has no wait; the bound keeps a fault from hanging
/// the caller.
const ROUNDS: usize = 16;
/// Most alerts of a chain of explanations. Chains have no cycles; this bounds the work all the same.
const CHAIN: usize = 64;

impl Notifier {
    /// Makes the notifications that are due, and settles their alerts again.
    pub(super) fn flush(&mut self, now: Now) {
        for _ in 0..ROUNDS {
            let batches = self.groups.take_due(now.moment);
            if batches.is_empty() {
                return;
            }
            let explained = self.count_explained();
            for batch in batches {
                self.notify(batch, &explained, now);
            }
            // Without a wait, what is still to be notified is due at once.
            self.settle(now);
        }
    }

    fn notify(&mut self, batch: Batch, explained: &BTreeMap<Subject, u32>, now: Now) {
        let Batch { key, members } = batch;
        let route = self.settings.routes.iter().find(|route| route.name == key.route);
        let address = self.settings.address.as_deref();
        let frame = Frame { installation: &self.settings.installation, address, channel: &key.channel, at: now.wall };
        let mut listed = Vec::new();
        for subject in &members {
            let Some(alert) = self.alerts.get(subject) else { continue };
            let Some(event) = self.news(alert, &key.channel, route, now) else { continue };
            let suppresses = explained.get(subject).copied().unwrap_or(0);
            listed.push(message::describe(alert, event, suppresses, frame));
        }
        for notified in &listed {
            let Some(alert) = self.alerts.get_mut(&notified.subject) else { continue };
            alert.set_notified(&key.channel, notified.event, now);
            self.changed.insert(notified.subject.clone());
        }
        self.unsettled.extend(members);
        listed.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let needs_all = self.settings.channels.get(&key.channel).is_some_and(|channel| channel.needs_every_alert);
        let link = self.settings.address.as_ref().map(|address| format!("{address}/alerts"));
        while !listed.is_empty() {
            let rest = listed.split_off(LISTED.min(listed.len()));
            let (unlisted, rest) = if needs_all { (Vec::new(), rest) } else { (rest, Vec::new()) };
            self.actions.push(Action::Notify(Notification {
                number: self.next,
                // Numbers begin again if the database is lost; the time does not.
                id: format!("{}-{}-{}", self.settings.installation, now.wall.as_millis(), self.next),
                channel: key.channel.clone(),
                route: key.route.clone(),
                group: key.labels.clone(),
                alerts: listed,
                omitted: u32::try_from(unlisted.len()).unwrap_or(u32::MAX),
                unlisted: unlisted.into_iter().map(Into::into).collect(),
                link: link.clone(),
            }));
            self.next += 1;
            listed = rest;
        }
    }

    /// The number of alerts that each alert explains, directly or through others.
    fn count_explained(&self) -> BTreeMap<Subject, u32> {
        let mut counts = BTreeMap::new();
        let explained = |subject: &Subject| self.alerts.get(subject)?.record.suppressed_by.as_ref();
        for subject in self.alerts.keys() {
            let chain = std::iter::successors(explained(subject), |by| explained(by));
            for by in chain.take(CHAIN) {
                *counts.entry(by.clone()).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// The order in a notification: what fires before what is over, the worst status first, then the oldest.
fn rank(alert: &NotifiedAlert) -> (bool, Reverse<model::Status>, model::Timestamp, &Subject) {
    let is_over = alert.event == AlertEvent::Resolved;
    (is_over, Reverse(alert.status), alert.since, &alert.subject)
}
