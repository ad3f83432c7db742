//! Observations, and their effect on alerts.

use super::{Notifier, Target};
use crate::alert::{self, Alert};
use crate::blind::{self, NETWORK};
use crate::input::{Action, Finding, Health, Now, Outcome, Polled, Reading, TargetSpec, Trouble};
use crate::message::fingerprint;
use crate::ranks::{self, Needs};
use crate::route;
use model::{Acknowledgement, AlertRecord, AlertState, Class, Resolution, Status, Subject, TargetId};
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// An observation that something is wrong.
struct Sign<'a> {
    status: Status,
    title: &'a str,
    message: Option<&'a str>,
    /// The address of the subject in the user interface of its source.
    link: Option<&'a str>,
    proof: Proof,
}

/// The confirmation of an alert.
#[derive(Clone, Copy)]
pub(super) enum Proof {
    /// The observation itself.
    Certain,
    /// As many reports in a row as are configured.
    Reports,
    /// That it lasts as long as this.
    Lasting(Duration),
}

impl Notifier {
    pub(super) fn set_targets(&mut self, specs: Vec<TargetSpec>, now: Now) {
        let edges = specs.iter().map(|spec| (spec.id.clone(), spec.depends_on.clone())).collect();
        (self.needs, self.cut) = Needs::new(edges);
        let mut before = std::mem::take(&mut self.targets);
        for mut spec in specs {
            let held = before.remove(&spec.id);
            // Its alerts share the earlier value.
            if let Some(same) = held.as_ref().filter(|held| held.spec.traits == spec.traits) {
                spec.traits = same.spec.traits.clone();
            }
            let is_down = spec.is_enabled && held.as_ref().map_or(spec.was_down, |held| held.is_down);
            let doubts = held.filter(|_| spec.is_enabled).map(|held| (held.unconfirmed, held.doubtful));
            let (unconfirmed, doubtful) = doubts.unwrap_or_default();
            let target = Target { spec, is_down, is_settled: false, repeated: None, unconfirmed, doubtful };
            self.targets.insert(target.spec.id.clone(), target);
        }
        for subject in self.alerts.keys().cloned().collect::<Vec<_>>() {
            let Some(target) = subject.target() else { continue };
            match self.targets.get(target) {
                None if self.is_on_standby(&subject) => self.hand_over(&subject, now),
                None => self.end(&subject, Resolution::Removed, now),
                Some(held) if !held.spec.is_enabled => self.end(&subject, Resolution::Disabled, now),
                Some(held) => {
                    let is_shared = held.spec.traits.shared_by.is_some();
                    let Some(alert) = self.alerts.get_mut(&subject) else { continue };
                    if describe(alert, &held.spec) {
                        self.changed.insert(subject.clone());
                    }
                    if !is_shared {
                        self.keep_to_itself(&subject);
                    }
                }
            }
        }
        let hosts: BTreeSet<&str> = self.targets.values().filter_map(|target| target.spec.host.as_deref()).collect();
        if self.blind.retain(|host| hosts.contains(host)) {
            self.see_again(now);
        }
        self.unsettle_all();
    }

    pub(super) fn polled(&mut self, polled: Polled<'_>, now: Now) {
        let Polled { target, outcome } = polled;
        let Some(held) = self.targets.get(target).filter(|held| held.spec.is_enabled) else { return };
        if let Some(host) = &held.spec.host {
            let is_answer = !matches!(outcome, Outcome::Failed { is_network: true, .. });
            match self.blind.observe(host, is_answer, now.moment) {
                Some(Some((silent, all))) => self.lose_network(silent, all, now),
                Some(None) => self.see_again(now),
                None => {}
            }
        }
        let Some(held) = self.targets.get_mut(target) else { return };
        let is_settled = std::mem::take(&mut held.is_settled);
        match outcome {
            Outcome::Repeated(_) if is_settled => (held.is_settled, held.repeated) = (true, Some(now.moment)),
            Outcome::Report(reading) | Outcome::Repeated(reading) => self.report(target, reading, now),
            Outcome::Failed { unreachable, .. } => self.fail(target, unreachable, now),
        }
    }

    fn fail(&mut self, target: &TargetId, unreachable: Option<&str>, now: Now) {
        let subject = Subject::Target(target.clone());
        if let Some(message) = unreachable {
            let traits = self.targets.get(target).map(|held| held.spec.traits.clone()).unwrap_or_default();
            let (status, message) = (Status::Critical, Some(message).filter(|text| !text.is_empty()));
            self.raise(&subject, Sign { status, title: &traits.name, message, link: None, proof: Proof::Certain }, now);
        } else if let Some(alert) = self.alerts.get_mut(&subject).filter(|alert| alert.is_open()) {
            // The target answered once and failed again: it is not about to recover.
            alert.streak = 0;
            self.unsettled.insert(subject);
        }
    }

    fn report(&mut self, target: &TargetId, reading: &dyn Reading, now: Now) {
        let Some(held) = self.targets.get(target) else { return };
        let (warns, name) = (held.spec.alerts_on_warnings, held.spec.traits.name.clone());
        let (unknown_after, missing_after) = (held.spec.unknown_after, held.spec.missing_after);
        self.report_itself(target, &name, reading.empty().zip(unknown_after), now);
        let proof = |health| match health {
            Health::Unhealthy(Status::Critical) => Some(Proof::Reports),
            Health::Unhealthy(Status::Warning) if warns => Some(Proof::Reports),
            Health::Unknown => unknown_after.map(Proof::Lasting),
            Health::Missing(_) => missing_after.map(Proof::Lasting),
            Health::Unhealthy(_) | Health::Healthy | Health::Skipped | Health::Gone => None,
        };
        let mut findings = reading.findings();
        let doubtful = self.doubtful(target, &findings);
        if let Some(held) = self.targets.get_mut(target) {
            held.unconfirmed = if doubtful.is_empty() { 0 } else { held.unconfirmed + 1 };
        }
        findings.retain(|finding| proof(finding.health).is_some());
        findings.sort_unstable_by_key(|finding| finding.dependency);
        let (findings, mut subjects) = self.without_repeated(target, findings, reading, now);
        let is_settled = findings.is_empty() && subjects.is_empty();
        for finding in findings {
            let Some(proof) = proof(finding.health) else { continue };
            subjects.extend(self.find(target, finding, proof, now));
        }
        for subject in subjects {
            self.place(&subject, reading);
            match subject.dependency_name().map(|name| reading.health(name)) {
                Some(Health::Missing(_)) if missing_after.is_none() && self.is_only_missing(&subject, warns) => {
                    self.end(&subject, Resolution::Disabled, now);
                }
                Some(Health::Missing(since)) => self.miss(&subject, since, now),
                Some(Health::Gone) if self.is_only_known_elsewhere(&subject) => self.miss(&subject, now.wall, now),
                Some(Health::Unknown) if unknown_after.is_none() => self.end_vague(&subject, now),
                Some(Health::Gone) => self.end(&subject, Resolution::Gone, now),
                Some(Health::Unhealthy(Status::Critical)) => {}
                Some(Health::Unhealthy(Status::Warning)) if warns => {}
                Some(Health::Healthy) => self.heal(&subject, Resolution::Recovered, now),
                Some(Health::Skipped) => self.heal(&subject, Resolution::Skipped, now),
                Some(Health::Unhealthy(_)) => self.heal(&subject, Resolution::Eased, now),
                Some(Health::Unknown) | None => {}
            }
        }
        let is_open = self.alerts.get(&Subject::Target(target.clone())).is_some_and(Alert::is_open);
        let Some(held) = self.targets.get_mut(target) else { return };
        held.is_settled = is_settled && !is_open;
        match held.unconfirmed {
            0 => held.doubtful.clear(),
            _ => held.doubtful.extend(doubtful),
        }
        let is_down = reading.is_down();
        if std::mem::replace(&mut held.is_down, is_down) != is_down {
            self.unsettle_dependents(&Subject::Target(target.clone()));
        }
    }

    /// Returns the dependencies that are critical in a report, and of which no alert fires.
    fn doubtful(&self, target: &TargetId, findings: &[Finding<'_>]) -> Vec<Arc<str>> {
        let is_critical = |finding: &&Finding<'_>| finding.health == Health::Unhealthy(Status::Critical);
        let is_firing = |alert: &Alert| alert.record.state == AlertState::Firing;
        let names = findings.iter().filter(is_critical).map(|finding| Arc::from(finding.dependency));
        names
            .filter(|name: &Arc<str>| {
                !self.alerts.get(&Subject::dependency(target, name.clone())).is_some_and(is_firing)
            })
            .collect()
    }

    /// The target was polled: it can be, and its report has dependencies or, if `empty` says why, has none.
    fn report_itself(&mut self, target: &TargetId, name: &str, empty: Option<(String, Duration)>, now: Now) {
        let subject = Subject::Target(target.clone());
        let is_open = |alert: &&Alert| alert.is_open() && alert.record.status != Status::Unknown;
        let was_unreachable = self.alerts.get(&subject).filter(is_open).is_some();
        if empty.is_none() || was_unreachable {
            self.heal(&subject, Resolution::Recovered, now);
        }
        // The end of one episode is not the beginning of the next, or no channel would hear of it.
        if let Some((message, after)) = empty.filter(|_| !was_unreachable) {
            let (status, message, proof) = (Status::Unknown, Some(message.as_str()), Proof::Lasting(after));
            self.raise(&subject, Sign { status, title: name, message, link: None, proof }, now);
        }
    }

    /// Raises the alert of a dependency that is not healthy. An alert that says more, because it was seen to be wrong,
    /// stays as it is while nothing is known. Returns the subject.
    fn find(&mut self, target: &TargetId, finding: Finding<'_>, proof: Proof, now: Now) -> Option<Subject> {
        let title = finding.shown_title();
        let Finding { dependency, health, message, link, .. } = finding;
        let subject = Subject::dependency(target, dependency);
        let open = self.alerts.get(&subject).filter(|alert| alert.is_open()).map(|alert| &*alert.record);
        let is_pending = |record: &AlertRecord| record.state == AlertState::Pending && !alert::is_vague(record);
        let sign = match health {
            Health::Unhealthy(status) => Sign { status, title, message, link, proof },
            Health::Unknown if open.is_none_or(alert::is_vague) => {
                Sign { status: Status::Unknown, title, message, link, proof }
            }
            // An alert that is pending waits for another report, or is confirmed if that lasts.
            Health::Missing(_) if open.is_some_and(is_pending) => {
                self.lose_sight(&subject, message, proof, now);
                return Some(subject);
            }
            Health::Unknown => {
                self.lose_sight(&subject, message, proof, now);
                return Some(subject);
            }
            Health::Missing(since) if open.is_none_or(|record| record.state == AlertState::Pending) => {
                let message = alert::absence(since, message);
                let (status, message) = (Status::Warning, Some(message.as_str()));
                self.raise(&subject, Sign { status, title, message, link, proof }, now);
                return Some(subject);
            }
            _ => return Some(subject),
        };
        self.raise(&subject, sign, now);
        Some(subject)
    }

    /// Removes the findings that repeat their alerts. Returns the others, and the other alerts of the target's
    /// dependencies that a report may change. `findings` are sorted by dependency, in the order of [`Subject`].
    fn without_repeated<'a>(
        &mut self,
        target: &TargetId,
        findings: Vec<Finding<'a>>,
        reading: &dyn Reading,
        now: Now,
    ) -> (Vec<Finding<'a>>, BTreeSet<Subject>) {
        let (mut kept, mut others) = (Vec::new(), BTreeSet::new());
        let mut findings = findings.into_iter().peekable();
        for (subject, alert) in self.alerts.range_mut(Subject::dependency(target, Arc::default())..) {
            let Some(name) = subject.dependency_name().filter(|_| subject.target() == Some(target)) else { break };
            kept.extend(std::iter::from_fn(|| findings.next_if(|finding| finding.dependency < name)));
            match findings.next_if(|finding| finding.dependency == name) {
                Some(same) if alert.is_repeated_by(&same) && reading.runs_on(name).is_empty() => {
                    alert.seen = Some(now.moment);
                }
                None if !alert.is_open() => {}
                other => {
                    kept.extend(other);
                    others.insert(subject.clone());
                }
            }
        }
        kept.extend(findings);
        (kept, others)
    }

    /// Updates the ancestors of an alert. Those of all alerts of a target are from one report: those of several reports
    /// can form a cycle.
    fn place(&mut self, subject: &Subject, reading: &dyn Reading) {
        let (Some(name), Some(alert)) = (subject.dependency_name(), self.alerts.get_mut(subject)) else { return };
        let ancestors = ranks::ancestors(reading, name);
        if alert.is_open() && alert.record.ancestors != ancestors {
            alert.record_mut().ancestors = ancestors;
            self.changed.insert(subject.clone());
            self.unsettled.insert(subject.clone());
        }
    }

    pub(super) fn troubles(&mut self, class: Class, troubles: Vec<Trouble>, now: Now) {
        let names: BTreeSet<&str> = troubles.iter().map(|trouble| trouble.name.as_str()).collect();
        for Trouble { name, title, message } in &troubles {
            let (status, message) = (Status::Critical, message.as_deref());
            let sign = Sign { status, title, message, link: None, proof: Proof::Certain };
            self.raise(&Subject::Other(class, name.as_str().into()), sign, now);
        }
        let is_over = |subject: &&Subject| match subject {
            Subject::Other(of, name) => {
                *of == class && !names.contains(&**name) && !(class == Class::Host && **name == *NETWORK)
            }
            _ => false,
        };
        for subject in self.alerts.keys().filter(is_over).cloned().collect::<Vec<_>>() {
            let is_gone = class == Class::Channel && !self.settings.channels.contains_key(subject.name());
            self.end(&subject, if is_gone { Resolution::Removed } else { Resolution::Recovered }, now);
        }
    }

    pub(super) fn acknowledge(&mut self, subject: &Subject, by: Option<String>, now: Now) {
        let Some(alert) = self.alerts.get_mut(subject).filter(|alert| alert.is_open()) else { return };
        let status = alert.record.status;
        alert.record_mut().acknowledged = by.map(|by| Acknowledgement { by, at: now.wall, status });
        if alert.record.acknowledged.is_some() {
            self.actions.push(Action::Withdraw(fingerprint(&self.settings.installation, &alert.record)));
        }
        self.changed.insert(subject.clone());
        self.unsettled.insert(subject.clone());
    }

    fn lose_network(&mut self, silent: usize, all: usize, now: Now) {
        let title = "this host cannot reach the network";
        let message = format!("{silent} of {all} hosts stopped answering within a minute");
        let subject = blind::network();
        let sign = Sign { status: Status::Critical, title, message: Some(&message), link: None, proof: Proof::Certain };
        self.raise(&subject, sign, now);
        self.unsettle_all();
    }

    /// The network works again. Alerts that were held back are notified if another report confirms them.
    fn see_again(&mut self, now: Now) {
        self.end(&blind::network(), Resolution::Recovered, now);
        let open: Vec<Subject> =
            self.alerts.iter().filter(|(_, alert)| alert.is_open()).map(|(key, _)| key.clone()).collect();
        for subject in open.iter().filter(|subject| subject.target().is_some()) {
            self.await_report(subject, now);
        }
        self.unsettle_all();
    }

    /// Something is wrong with a subject.
    fn raise(&mut self, subject: &Subject, sign: Sign<'_>, now: Now) {
        let is_starting = self.may_be_starting(subject, now);
        let more = u32::from(is_starting);
        let confirm = match sign.proof {
            Proof::Certain => Some(1 + more),
            Proof::Reports => Some(self.confirm(subject, sign.status) + more),
            Proof::Lasting(_) => None,
        };
        let grace = self.started.moment.after(self.settings.startup_grace);
        let (is_new, alert) = match self.alerts.entry(subject.clone()) {
            Entry::Occupied(held) => (false, held.into_mut()),
            Entry::Vacant(free) => (true, free.insert(Alert::new(subject.clone(), now))),
        };
        let (was, had) = (alert.record.state, (alert.record.status, alert.streak, alert.awaits));
        if was == AlertState::Resolved {
            if let Some((at, _)) = alert.record.ended {
                self.resolved.remove(&(at, subject.clone()));
            }
            alert.begin(now);
            if let Some(target) = subject.target().and_then(|target| self.targets.get(target)) {
                describe(alert, &target.spec);
            }
        }
        let AlertRecord { status, title, message, object_link, .. } = &*alert.record;
        let is_reworded = (*status, title.as_str(), message.as_deref()) != (sign.status, sign.title, sign.message)
            || object_link.as_deref() != sign.link;
        if is_reworded {
            let record = alert.record_mut();
            record.status = sign.status;
            sign.title.clone_into(&mut record.title);
            record.message = sign.message.map(str::to_owned);
            record.object_link = sign.link.map(str::to_owned);
            record.acknowledged = record.acknowledged.take().filter(|held| held.status >= sign.status);
        }
        (alert.awaits, alert.seen) = (None, Some(now.moment));
        alert.is_only_known_elsewhere = false;
        let was_out_of_sight = std::mem::take(&mut alert.is_out_of_sight);
        let is_pending = alert.record.state == AlertState::Pending;
        alert.streak = if is_pending && confirm.is_some() { alert.streak + 1 } else { 0 };
        let lasts_until = match sign.proof {
            Proof::Lasting(long) => alert.confirm_at(now.moment_of(alert.record.since).after(long)),
            Proof::Certain if is_starting => alert.confirm_at(grace),
            Proof::Certain | Proof::Reports => {
                alert.lasts_until = None;
                None
            }
        };
        self.timers.extend(lasts_until.filter(|at| *at > now.moment).map(|at| (at, subject.clone())));
        let is_confirmed = confirm.is_some_and(|confirm| alert.streak >= confirm) || alert.has_lasted(now.moment);
        if is_pending && is_confirmed {
            self.actions.extend(alert.fire(now));
        }
        // The texts about a target may change with each report, and its known state has them as well.
        let is_other = is_reworded && subject.target().is_none();
        let is_graver = had.0 != alert.record.status;
        let fires_now = was != AlertState::Firing && alert.record.state == AlertState::Firing;
        let is_stored = is_new || is_other || was != alert.record.state || had.0 != alert.record.status;
        if is_stored || had != (alert.record.status, alert.streak, alert.awaits) {
            self.unsettled.insert(subject.clone());
        }
        if is_stored {
            self.changed.insert(subject.clone());
        }
        if was == AlertState::Resolved || is_graver || was_out_of_sight || fires_now {
            self.unsettle_dependents(subject);
        }
        if fires_now {
            self.await_parent(subject, now);
        }
    }

    /// Whether a target may be starting as well as this host. An episode from before the start is no sign of that.
    fn may_be_starting(&self, subject: &Subject, now: Now) -> bool {
        let is_earlier = |alert: &Alert| alert.is_open() && alert.record.since < self.started.wall;
        subject.target().is_some() && self.is_starting(now) && !self.alerts.get(subject).is_some_and(is_earlier)
    }

    /// A subject was observed to be healthy.
    fn heal(&mut self, subject: &Subject, resolution: Resolution, now: Now) {
        let Some(alert) = self.alerts.get(subject).filter(|alert| alert.is_open()) else { return };
        let recover = self.recover(subject, alert);
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        (alert.awaits, alert.is_only_known_elsewhere) = (None, false);
        if alert.record.state == AlertState::Pending || alert.streak + 1 >= recover {
            self.end(subject, resolution, now);
        } else {
            alert.streak += 1;
            self.unsettled.insert(subject.clone());
        }
    }

    /// Ends the episode of an alert. An alert that was never confirmed and never notified is forgotten.
    pub(super) fn end(&mut self, subject: &Subject, resolution: Resolution, now: Now) {
        let Some(alert) = self.alerts.get(subject).filter(|alert| alert.is_open()) else { return };
        let AlertRecord { state, notified, changes, .. } = &*alert.record;
        let is_news = *state == AlertState::Firing || !notified.is_empty() || !changes.is_empty();
        self.unsettle_dependents(subject);
        if !is_news {
            self.leave_groups(subject, now);
            return self.forget(subject);
        }
        let Some(alert) = self.alerts.get_mut(subject) else { return };
        if alert.record.state == AlertState::Firing {
            self.actions.push(Action::Resolved(subject.clone()));
        }
        alert.resolve(resolution, now);
        self.resolved.insert((now.wall, subject.clone()));
        self.changed.insert(subject.clone());
        self.unsettled.insert(subject.clone());
    }

    fn confirm(&self, subject: &Subject, status: Status) -> u32 {
        let Some(held) = subject.target().and_then(|target| self.targets.get(target)) else { return 1 };
        let spec = &held.spec;
        let attributes = crate::Attributes { subject, status, traits: &spec.traits };
        let of_route = || route::applying(&self.settings.routes, &attributes).first().and_then(|route| route.confirm);
        let confirm = spec.confirm.or_else(of_route).unwrap_or(self.settings.confirm);
        // Parts that fail in turns, so that always one of them is critical, are as bad as one that stays critical.
        let is_known = subject.dependency_name().is_some_and(|name| held.doubtful.contains(name));
        if is_known && held.unconfirmed >= 2 * confirm { 1 } else { confirm }
    }

    fn recover(&self, subject: &Subject, alert: &Alert) -> u32 {
        let of_target = subject.target().and_then(|target| self.targets.get(target)?.spec.recover);
        let routes =
            || route::applying(&self.settings.routes, &alert.attributes()).first().and_then(|route| route.recover);
        of_target.or_else(routes).unwrap_or(self.settings.recover)
    }
}

/// Takes over the properties of a target. Returns whether one of them changed.
fn describe(alert: &mut Alert, spec: &TargetSpec) -> bool {
    let is_changed = alert.record.traits != spec.traits;
    if !Arc::ptr_eq(&alert.record.traits, &spec.traits) {
        alert.record_mut().traits = spec.traits.clone();
    }
    is_changed
}
