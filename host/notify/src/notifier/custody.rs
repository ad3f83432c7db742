//! Alerts of targets that one device of a fleet polls at a time. The device that polls has them, and says how they end:
//! a device that only stands by does not know.

use super::Notifier;
use crate::alert::Alert;
use crate::input::{Action, Now};
use crate::message::fingerprint;
use model::{AlertRecord, AlertState, Resolution, Subject, TargetId};
use std::sync::Arc;

impl Notifier {
    /// Whether another device may poll the target of an alert, which is no longer a target of this host.
    pub(super) fn is_handed_over(&self, subject: &Subject) -> bool {
        let shared_by = self.alerts.get(subject).and_then(|alert| alert.record.traits.shared_by.as_ref());
        shared_by.is_some_and(|deployment| self.settings.standby.contains(deployment))
    }

    /// Ends an alert on this host without a message: for receivers it goes on.
    pub(super) fn hand_over(&mut self, subject: &Subject, now: Now) {
        self.leave_groups(subject, now);
        let Some(alert) = self.alerts.get_mut(subject).filter(|alert| alert.is_open()) else { return };
        let was_firing = alert.record.state == AlertState::Firing;
        self.actions.push(Action::HandedOver(fingerprint(&self.settings.installation, &alert.record)));
        if !was_firing {
            return self.forget(subject);
        }
        let record = alert.record_mut();
        record.flapping = None;
        record.notified.clear();
        alert.resolve(Resolution::HandedOver, now);
        self.resolved.insert((now.wall, subject.clone()));
        self.changed.insert(subject.clone());
        self.unsettle_dependents(subject);
    }

    /// Continues the alerts of another device. Those that fire here already stay as they are.
    pub(super) fn take_over(&mut self, records: Vec<AlertRecord>, now: Now) {
        for record in records {
            let subject = record.subject.clone();
            let target = subject.target().and_then(|target| self.targets.get_mut(target));
            let Some(target) = target.filter(|target| target.spec.is_enabled) else { continue };
            if self.alerts.get(&subject).is_some_and(|alert| alert.record.state == AlertState::Firing) {
                continue;
            }
            target.is_settled = false;
            let record = AlertRecord { state: AlertState::Firing, traits: target.spec.traits.clone(), ..record };
            self.leave_groups(&subject, now);
            self.forget(&subject);
            let mut taken = Alert::restored(Arc::new(record), now);
            taken.is_only_known_elsewhere = true;
            self.alerts.insert(subject.clone(), taken);
            self.changed.insert(subject.clone());
            self.unsettled.insert(subject.clone());
            self.unsettle_dependents(&subject);
            // If no receiver was notified of it yet, this device sees it first.
            self.await_report(&subject, now);
        }
        self.restore_groups(now);
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
