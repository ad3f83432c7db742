//! Dependencies that are unknown or no longer reported: what becomes of their alerts.

use super::Notifier;
use super::observe::Proof;
use crate::alert;
use crate::input::Now;
use model::{AlertRecord, AlertState, Resolution, Status, Subject, Timestamp};
use std::time::Duration;

/// How long an alert that is pending waits for its dependency to be reported again, if missing ones do not alert.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);

impl Notifier {
    /// An operator wants no alerts about what is unknown.
    pub(super) fn end_vague(&mut self, subject: &Subject, now: Now) {
        if self.alerts.get(subject).is_some_and(|alert| alert.record.status == Status::Unknown) {
            self.end(subject, Resolution::Disabled, now);
        }
    }

    /// Whether an alert says only that its dependency is no longer reported: it had no alert before.
    pub(super) fn is_only_missing(&self, subject: &Subject, warns: bool) -> bool {
        let is_warning = |record: &AlertRecord| record.status == Status::Warning && !warns;
        self.alerts.get(subject).is_some_and(|alert| alert::is_absence(&alert.record) && is_warning(&alert.record))
    }

    /// A dependency that was seen to be wrong is unknown. An alert that is pending is confirmed if that lasts.
    pub(super) fn lose_sight(&mut self, subject: &Subject, message: Option<&str>, proof: Proof, now: Now) {
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        let was_out_of_sight = std::mem::replace(&mut alert.is_out_of_sight, true);
        let is_firing = alert.record.state == AlertState::Firing;
        // It is not seen to recover.
        if is_firing && alert.streak > 0 {
            alert.streak = 0;
            self.unsettled.insert(subject.clone());
        }
        if let Proof::Lasting(long) = proof {
            let at = alert.confirm_at(now.moment.after(long));
            self.timers.extend(at.map(|at| (at, subject.clone())));
        }
        if is_firing && alert::is_absence(&alert.record) {
            alert.record_mut().message = message.map(str::to_owned);
            self.changed.insert(subject.clone());
        }
        if !was_out_of_sight {
            // It explains less than before.
            self.unsettle_dependents(subject);
        }
    }

    /// A dependency is no longer reported. That ends no alert that fires, and one that is pending only after a while.
    pub(super) fn miss(&mut self, subject: &Subject, since: Timestamp, now: Now) {
        let Some(alert) = self.alerts.get_mut(subject).filter(|alert| alert.is_open()) else { return };
        if alert.record.state == AlertState::Firing {
            alert.streak = 0;
        }
        let was_out_of_sight = std::mem::replace(&mut alert.is_out_of_sight, true);
        let is_forgotten = alert.lasts_until.is_none() && now.wall.since(since) >= FORGOTTEN;
        match alert.record.state {
            AlertState::Firing if !alert::is_absence(&alert.record) => {
                let message = alert::absence(since, alert.record.message.as_deref());
                alert.record_mut().message = Some(message);
                (alert.awaits, alert.seen) = (None, Some(now.moment));
                self.changed.insert(subject.clone());
                self.unsettled.insert(subject.clone());
            }
            AlertState::Pending if is_forgotten && !alert::is_vague(&alert.record) => {
                self.end(subject, Resolution::Missing, now);
            }
            _ => {}
        }
        if !was_out_of_sight {
            self.unsettle_dependents(subject);
        }
    }
}
