//! Settling an alert: what holds it back, and which channels have something new to hear about it.

use super::Notifier;
use crate::alert::Alert;
use crate::blind::NETWORK;
use crate::groups::{GroupKey, GroupTimes, Joining};
use crate::input::{Action, Now};
use crate::message::fingerprint;
use crate::route::{self, Route};
use model::{AlertEvent, AlertState, Class, MAYBE, Moment, Resolution, Status, Subject, TargetId};
use std::time::Duration;

/// After the end of what held an alert back, the longest wait for another report that confirms it.
const AWAIT: Duration = Duration::from_secs(300);

impl Notifier {
    /// Settles all alerts for which something may have changed.
    pub(super) fn settle(&mut self, now: Now) {
        // All at once: each that fires may explain the others of its target.
        let has_lasted =
            |subject: &&Subject| self.alerts.get(*subject).is_some_and(|alert| alert.has_lasted(now.moment));
        for subject in self.unsettled.iter().filter(has_lasted).cloned().collect::<Vec<_>>() {
            let Some(alert) = self.alerts.get_mut(&subject) else { continue };
            self.actions.extend(alert.fire(now));
            self.unsettle_dependents(&subject);
            self.await_parent(&subject, now);
            self.changed.insert(subject);
        }
        loop {
            for target in std::mem::take(&mut self.unsettled_targets) {
                let subjects: Vec<Subject> = self.subjects_of(&target).cloned().collect();
                self.unsettled.extend(subjects);
            }
            let Some(subject) = self.unsettled.pop_first() else { return };
            self.hold_back(&subject, now);
            self.join_groups(&subject, now);
        }
    }

    /// Finds what holds an alert back.
    fn hold_back(&mut self, subject: &Subject, now: Now) {
        let Some(by) = self.alerts.get(subject).map(|alert| alert.record.suppressed_by.as_ref()) else { return };
        let is_misled = by.is_some_and(|by| self.alerts.get(by).is_none_or(|by| !by.is_open() && !by.has_fired()));
        if let Some(alert) = self.alerts.get_mut(subject).filter(|alert| is_misled && !alert.is_misled) {
            alert.is_misled = true;
            // The cause may be confirmed a moment later all the same.
            self.await_parent(subject, now);
        }
        let Some(alert) = self.alerts.get(subject) else { return };
        let (suppressed, silenced) = match alert.is_open() {
            true => (self.suppressor(subject, alert), self.silencer(alert)),
            false => (None, None),
        };
        let repeated = subject.target().and_then(|target| self.targets.get(target)).and_then(|target| target.repeated);
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        let is_new = alert.record.suppressed_by != suppressed;
        let mut is_changed = is_new || alert.record.silenced_by != silenced;
        // The report that ended what explained the alert may have confirmed the alert as well.
        let is_free = is_new && suppressed.is_none() && alert.is_open() && alert.seen.max(repeated) != Some(now.moment);
        if is_new && alert.record.state == AlertState::Firing {
            self.actions.extend(suppressed.clone().map(|by| Action::Suppressed(subject.clone(), by)));
        }
        if silenced.is_some() && alert.record.silenced_by.is_none() {
            self.actions.push(Action::Withdraw(fingerprint(&self.settings.installation, &alert.record)));
        }
        if is_changed {
            let record = alert.record_mut();
            (record.suppressed_by, record.silenced_by) = (suppressed, silenced);
        }
        if let Some(at) = alert.stable_at() {
            if at <= now.moment {
                alert.end_flapping();
                is_changed = true;
            } else {
                self.timers.insert((at, subject.clone()));
            }
        }
        alert.awaits = alert.awaits.filter(|until| now.moment < *until);
        alert.waits_until = alert.waits_until.filter(|until| now.moment < *until);
        if is_free {
            self.await_report(subject, now);
        }
        if is_changed {
            self.changed.insert(subject.clone());
        }
    }

    /// Holds an alert back until another report confirms it.
    pub(super) fn await_report(&mut self, subject: &Subject, now: Now) {
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        let until = now.moment.after(AWAIT);
        alert.awaits = Some(until);
        if let Some(target) = subject.target().and_then(|target| self.targets.get_mut(target)) {
            target.is_settled = false;
        }
        self.timers.insert((until, subject.clone()));
    }

    /// Holds an alert back for a short time if its target needs another one: that may fail a moment later, and
    /// explain it.
    pub(super) fn await_parent(&mut self, subject: &Subject, now: Now) {
        let needs = subject.target().is_some_and(|target| !self.needs.of(target).is_empty());
        let Some(alert) = self.alerts.get_mut(subject).filter(|_| needs && !self.settings.parent_wait.is_zero()) else {
            return;
        };
        let until = now.moment.after(self.settings.parent_wait);
        alert.waits_until = Some(until);
        self.timers.insert((until, subject.clone()));
    }

    /// Returns the open alert that explains this one.
    fn suppressor(&self, subject: &Subject, alert: &Alert) -> Option<Subject> {
        let target = subject.target()?;
        // An alert that says less than this one, for example that something is unknown, does not explain it.
        let least = alert.severity();
        let is_open = |subject: &Subject| {
            self.alerts.get(subject).is_some_and(|other| can_explain(alert, other) && other.severity() >= least)
        };
        if subject.dependency_name().is_some() {
            let itself = Subject::Target(target.clone());
            if is_open(&itself) {
                return Some(itself);
            }
            let mut ancestors = alert.record.ancestors.iter().map(|name| Subject::dependency(target, name.as_str()));
            if let Some(found) = ancestors.find(is_open) {
                return Some(found);
            }
        }
        self.needs.of(target).iter().find_map(|(needed, dependency)| match dependency {
            Some(dependency) => Some(Subject::dependency(needed, dependency.as_str())).filter(is_open),
            None => self.down(needed, alert),
        })
    }

    /// Returns the alert that says that nothing of a target works, and explains another one.
    fn down(&self, target: &TargetId, explained: &Alert) -> Option<Subject> {
        let open = |subject: &&Subject| self.alerts.get(*subject).is_some_and(|other| can_explain(explained, other));
        let itself = Subject::Target(target.clone());
        // An empty report explains nothing.
        let is_unreachable = self.alerts.get(&itself).is_some_and(|alert| alert.record.status == Status::Critical);
        if is_unreachable && open(&&itself) {
            return Some(itself);
        }
        let is_down = self.targets.get(target).is_some_and(|target| target.is_down);
        let is_critical =
            |subject: &&Subject| self.alerts.get(*subject).is_some_and(|alert| alert.record.status == Status::Critical);
        self.subjects_of(target).filter(|_| is_down).filter(open).find(is_critical).cloned()
    }

    fn silencer(&self, alert: &Alert) -> Option<String> {
        let attributes = alert.attributes();
        self.active_silences().find(|silence| silence.matchers.match_all(&attributes)).map(|silence| silence.id.clone())
    }

    /// Puts an alert into the groups of the channels that have something new to hear about it, and into no others.
    fn join_groups(&mut self, subject: &Subject, now: Now) {
        let Some(alert) = self.alerts.get(subject) else { return };
        let mut wanted = Vec::new();
        let mut repeats = Vec::new();
        for (channel, route) in self.channels(alert) {
            if let Some(event) = self.news(alert, channel, route, now) {
                let (key, times) = self.group(alert, channel, route, now);
                wanted.push((key, Joining { times, is_prompt: is_prompt(alert, event, now), now: now.moment }));
            } else if let Some(route) = route {
                repeats.extend(self.repeat_at(alert, channel, route));
                repeats.extend(escalates_at(alert, route, now));
            }
        }
        self.timers.extend(repeats.into_iter().filter(|at| *at > now.moment).map(|at| (at, subject.clone())));
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        let keys = wanted.iter().map(|(key, _)| key.clone()).collect();
        let before = std::mem::replace(&mut alert.groups, keys);
        for key in before.iter().filter(|key| wanted.iter().all(|(kept, _)| kept != *key)) {
            self.groups.remove(key, subject, now.moment);
        }
        for (key, joining) in wanted {
            self.groups.add(&key, subject, joining);
        }
    }

    pub(super) fn leave_groups(&mut self, subject: &Subject, now: Now) {
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        for key in std::mem::take(&mut alert.groups) {
            self.groups.remove(&key, subject, now.moment);
        }
    }

    /// Records the groups that were notified before a restart or another configuration.
    pub(super) fn restore_groups(&mut self, now: Now) {
        let mut groups = Vec::new();
        for alert in self.alerts.values() {
            for (channel, route) in self.channels(alert) {
                let (key, times) = self.group(alert, channel, route, now);
                let last = alert.notified_at(channel).filter(|last| last.after(times.interval) > now.moment);
                groups.extend(last.map(|last| (key, times, last)));
            }
        }
        groups.into_iter().for_each(|(key, times, last)| self.groups.restore(key, times, last));
    }

    /// The channels of an alert: those of its routes, and those that were notified of it and must learn of its end.
    fn channels<'a>(&'a self, alert: &'a Alert) -> Vec<(&'a str, Option<&'a Route>)> {
        let mut channels: Vec<(&str, Option<&Route>)> = Vec::new();
        let routes = route::applying(&self.settings.routes, &alert.attributes());
        let routed =
            routes.into_iter().flat_map(|route| route.channels.iter().map(move |channel| (channel, Some(route))));
        let notified = alert.record.notified.iter().map(|notified| (&notified.channel, None));
        for (channel, route) in routed.chain(notified) {
            let is_new = channels.iter().all(|(known, _)| known != channel);
            if is_new && self.settings.channels.contains_key(channel) {
                channels.push((channel, route));
            }
        }
        channels
    }

    /// The difference between an alert and the last message of a channel about it; `None` if there is no difference,
    /// or if the channel is not to be notified now.
    pub(super) fn news(&self, alert: &Alert, channel: &str, route: Option<&Route>, now: Now) -> Option<AlertEvent> {
        let record = &alert.record;
        if alert.is_handed_over || record.ended.is_some_and(|(_, why)| why == Resolution::HandedOver) {
            return None;
        }
        let notified = alert.last_notified(channel).map(|notified| (notified.event, notified.status));
        let is_notified = matches!(notified, Some((AlertEvent::Firing | AlertEvent::Flapping, _)));
        // An operator has seen it as it is, whatever the channel knows, or still has time to.
        let is_seen = record.acknowledged.is_some();
        let waits = route.and_then(|route| escalates_at(alert, route, now)).is_some_and(|at| at > now.moment);
        let is_known = notified.is_some_and(|(_, status)| status != MAYBE);
        let is_unseen = !is_seen && (is_known || !waits);
        let is_free = route.is_some() && is_unseen && !self.is_held(alert) && !is_about(&record.subject, channel);
        if record.flapping.is_some() {
            let is_news =
                notified.is_none_or(|(event, _)| event != AlertEvent::Flapping) && (is_notified || alert.is_open());
            return Some(AlertEvent::Flapping).filter(|_| is_news && is_free);
        }
        match record.state {
            AlertState::Pending => None,
            AlertState::Resolved => Some(AlertEvent::Resolved).filter(|_| is_notified),
            AlertState::Firing if !is_free || alert.streak > 0 => None,
            AlertState::Firing => match notified {
                Some((AlertEvent::Firing, status)) if record.status <= status => {
                    let repeat = route.and_then(|route| self.repeat_at(alert, channel, route));
                    repeat.filter(|at| *at <= now.moment).map(|_| AlertEvent::Repeated)
                }
                _ => Some(AlertEvent::Firing),
            },
        }
    }

    /// Whether something holds back messages about an alert, except about its end.
    fn is_held(&self, alert: &Alert) -> bool {
        let record = &alert.record;
        let is_network = matches!(&record.subject, Subject::Other(Class::Host, name) if **name == *NETWORK);
        let is_blind = self.blind.is_active() && !is_network;
        let waits = alert.awaits.or(alert.waits_until).is_some();
        // The device that polled last may have notified of it.
        let is_unread = record.traits.shared_by.as_ref().is_some_and(|shared_by| !self.taken_over.contains(shared_by));
        is_unread || is_blind || record.suppressed_by.is_some() || record.silenced_by.is_some() || waits
    }

    /// The group of an alert. Without a route, the end of an alert is grouped by target. Soon after the start of the
    /// process, what fails is one group for each route: after a power cut, everything is still starting.
    fn group(&self, alert: &Alert, channel: &str, route: Option<&Route>, now: Now) -> (GroupKey, GroupTimes) {
        let attributes = alert.attributes();
        let channel = channel.to_owned();
        let Some(route) = route else {
            let labels = vec![("target".to_owned(), attributes.get("target").to_owned())];
            let times = GroupTimes { wait: Route::GROUP_WAIT, interval: Route::GROUP_INTERVAL };
            return (GroupKey { channel, route: String::new(), labels }, times);
        };
        let times = GroupTimes { wait: route.group_wait, interval: route.group_interval };
        let labels = if self.is_starting(now) { Vec::new() } else { route.group(&attributes) };
        (GroupKey { channel, route: route.name.clone(), labels }, times)
    }

    /// Whether the process began a short time ago.
    pub(super) fn is_starting(&self, now: Now) -> bool {
        now.moment.since(self.started.moment) < self.settings.startup_grace
    }

    /// When a channel hears again of an alert that still fires.
    fn repeat_at(&self, alert: &Alert, channel: &str, route: &Route) -> Option<Moment> {
        let interval = route.repeat_interval?;
        let is_repeated = alert.record.state == AlertState::Firing
            && alert.record.flapping.is_none()
            && alert.last_notified(channel).is_some_and(|notified| notified.event == AlertEvent::Firing);
        if is_repeated { alert.notified_at(channel).map(|at| at.after(interval)) } else { None }
    }
}

/// Whether an alert is in a state in which it can explain another one.
fn can_explain(alert: &Alert, other: &Alert) -> bool {
    if alert.is_misled { other.record.state == AlertState::Firing } else { other.is_open() }
}

/// When a route applies to an alert that fires, if that depends on an acknowledgement.
fn escalates_at(alert: &Alert, route: &Route, now: Now) -> Option<Moment> {
    let after = route.unless_acknowledged.filter(|_| alert.record.state == AlertState::Firing)?;
    Some(alert.fired_at(now).after(after))
}

/// Whether news need not wait for the interval of its group: a recovery, the first failure of something else, and one
/// that is worse than before. What fails again soon after it recovered waits.
fn is_prompt(alert: &Alert, event: AlertEvent, now: Now) -> bool {
    let is_worse = || alert.worst_notified.is_some_and(|worst| alert.record.status > worst);
    match event {
        AlertEvent::Resolved => true,
        AlertEvent::Firing => alert.recent_changes(now.moment) <= 2 || is_worse(),
        _ => false,
    }
}

/// A channel that does not deliver is not notified of that.
fn is_about(subject: &Subject, channel: &str) -> bool {
    matches!(subject, Subject::Other(Class::Channel, name) if **name == *channel)
}
