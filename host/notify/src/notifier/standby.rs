//! Alerts of targets that one device of a fleet polls at a time. The device that polls has them, and says how they end:
//! a device that only stands by does not know.

use super::Notifier;
use crate::alert::Alert;
use crate::input::{Action, Now, TakenOver, Unsent};
use crate::message::fingerprint;
use model::{AlertRecord, AlertState, LastPoller, Resolution, Subject, TargetId, TargetTraits};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Notifier {
    /// Whether another device may poll the target of an alert, which is no longer a target of this host.
    pub(super) fn is_on_standby(&self, subject: &Subject) -> bool {
        let shared_by = self.alerts.get(subject).and_then(|alert| alert.record.traits.shared_by.as_ref());
        shared_by.is_some_and(|deployment| self.settings.standby.contains(deployment))
    }

    /// Leaves an alert to another device: this host sends nothing about it, not even its end, until it polls the target
    /// again.
    pub(super) fn hand_over(&mut self, subject: &Subject, now: Now) {
        self.leave_groups(subject, now);
        let is_new = |alert: &&mut Alert| !alert.is_handed_over || alert.is_open();
        let Some(alert) = self.alerts.get_mut(subject).filter(is_new) else { return };
        if alert.record.state == AlertState::Pending && alert.record.notified.is_empty() {
            return self.forget(subject);
        }
        if !alert.record.notified.is_empty() {
            self.actions.push(Action::HandedOver(fingerprint(&self.settings.installation, &alert.record)));
        }
        alert.is_handed_over = true;
        if alert.is_open() {
            alert.hand_over(now);
            self.resolved.insert((now.wall, subject.clone()));
            self.changed.insert(subject.clone());
            self.unsettle_dependents(subject);
        }
    }

    /// A target that another device may have polled is one of this host alone.
    pub(super) fn keep_to_itself(&mut self, subject: &Subject) {
        if let Some(alert) = self.alerts.get_mut(subject).filter(|alert| alert.is_handed_over) {
            alert.is_handed_over = false;
            alert.forget_notified();
            self.changed.insert(subject.clone());
        }
    }

    /// This device polls the targets of a deployment from now on, and continues their alerts.
    pub(super) fn take_over(&mut self, taken: TakenOver, now: Now) {
        let TakenOver { deployment, alerts, by } = taken;
        self.taken_over.insert(deployment.clone());
        let mut records: BTreeMap<Subject, AlertRecord> =
            alerts.into_iter().map(|record| (record.subject.clone(), record)).collect();
        let of_deployment = |alert: &Alert| alert.record.traits.shared_by.as_deref() == Some(&*deployment);
        let shared = self.alerts.iter().filter(|(_, alert)| of_deployment(alert));
        self.unsettled.extend(shared.map(|(subject, _)| subject.clone()));
        let held = self.alerts.iter().filter(|(_, alert)| alert.is_handed_over && of_deployment(alert));
        for subject in held.map(|(subject, _)| subject.clone()).collect::<Vec<_>>() {
            if by != LastPoller::Another {
                // This host knows at least as much as the record says.
                records.remove(&subject);
            }
            self.resume(&subject, by, now);
        }
        for (subject, record) in records {
            let target = subject.target().and_then(|target| self.targets.get_mut(target));
            let traits = match &target {
                Some(target) if target.spec.traits.shared_by.as_deref() != Some(&*deployment) => continue,
                Some(target) => target.spec.traits.clone(),
                None => {
                    let (name, shared_by) = (subject.name().to_owned(), Some(deployment.clone()));
                    Arc::new(TargetTraits { name, shared_by, ..TargetTraits::default() })
                }
            };
            let is_removed = target.is_none();
            if let Some(target) = target {
                target.is_settled = false;
            }
            self.install(AlertRecord { traits, ..record }, now);
            if is_removed {
                self.end(&subject, Resolution::Removed, now);
            }
        }
        self.restore_groups(now);
    }

    /// Continues an alert that this host had before.
    fn resume(&mut self, subject: &Subject, by: LastPoller, now: Now) {
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        alert.is_handed_over = false;
        match by {
            LastPoller::ThisDevice => {}
            LastPoller::Unknown => alert.set_all_maybe_notified(),
            // The record of that device says which messages the channels took, and what goes on.
            LastPoller::Another => {
                alert.forget_notified();
                if alert.is_open() {
                    let record = alert.record_mut();
                    (record.since, record.acknowledged) = (now.wall, None);
                }
            }
        }
        let ended = alert.record.ended.filter(|(_, why)| *why == Resolution::HandedOver);
        if let Some((at, _)) = ended.filter(|_| by != LastPoller::Another) {
            let record = alert.record_mut();
            (record.state, record.ended) = (AlertState::Firing, None);
            self.resolved.remove(&(at, subject.clone()));
            if let Some(target) = subject.target().and_then(|target| self.targets.get_mut(target)) {
                target.is_settled = false;
            }
            self.await_report(subject, now);
            self.unsettle_dependents(subject);
        }
        self.changed.insert(subject.clone());
        self.unsettled.insert(subject.clone());
    }

    /// Takes an alert of another device as one of this host.
    fn install(&mut self, record: AlertRecord, now: Now) {
        let subject = record.subject.clone();
        self.leave_groups(&subject, now);
        let mut record = AlertRecord { state: AlertState::Firing, ..record };
        let begun = self.alerts.get(&subject).filter(|alert| alert.is_open());
        if let Some(begun) = begun {
            // It was seen here already: what was notified meanwhile counts as well.
            let known: Vec<_> = record.notified.iter().map(|last| last.channel.clone()).collect();
            let more = begun.record.notified.iter().filter(|last| !known.contains(&last.channel)).cloned();
            record.notified.extend(more.collect::<Vec<_>>());
            record.notified.sort_by(|one, other| one.channel.cmp(&other.channel));
            record.message.clone_from(&begun.record.message);
            record.status = begun.record.status;
        }
        let is_seen = begun.is_some();
        self.forget(&subject);
        let mut alert = Alert::restored(Arc::new(record), now);
        alert.is_only_known_elsewhere = !is_seen;
        self.alerts.insert(subject.clone(), alert);
        self.changed.insert(subject.clone());
        self.unsettled.insert(subject.clone());
        self.unsettle_dependents(&subject);
        if !is_seen {
            // A channel that was not notified of it yet is, once this device sees it.
            self.await_report(&subject, now);
        }
    }

    /// Messages about alerts did not arrive, or may not have: what is still true of them is sent again. Of several
    /// messages about one alert, the first one says what the channel knows.
    pub(super) fn not_sent(&mut self, unsent: Vec<Unsent>, now: Now) {
        for Unsent { channel, subject, before } in unsent.into_iter().rev() {
            let Some(alert) = self.alerts.get_mut(&subject) else { continue };
            if alert.take_back(&channel, before, now) {
                self.changed.insert(subject.clone());
                self.unsettled.insert(subject);
            }
        }
    }

    /// The alerts of a target, or of one of its dependencies, of which only another device reported the dependency.
    pub fn known_elsewhere(&self, target: &TargetId, dependency: Option<&str>) -> Vec<Subject> {
        let is_meant = |subject: &&Subject| {
            let is_named = dependency.is_none_or(|name| subject.dependency_name() == Some(name));
            is_named && subject.dependency_name().is_some() && self.is_only_known_elsewhere(subject)
        };
        self.subjects_of(target).filter(is_meant).cloned().collect()
    }

    /// Whether only another device reported the dependency of an alert: the reports of this one never had it.
    pub(super) fn is_only_known_elsewhere(&self, subject: &Subject) -> bool {
        self.alerts.get(subject).is_some_and(|alert| alert.is_only_known_elsewhere)
    }
}
