//! The notifier's state, and the order of its work: an input changes alerts, the changed alerts are settled, and the
//! groups that are due are flushed.

mod evaluate;
mod flush;
mod observe;
mod sight;
mod standby;

pub use flush::LISTED;

use crate::alert::Alert;
use crate::blind::{self, Blind};
use crate::groups::Groups;
use crate::input::{Action, Input, Now, Settings, TargetSpec};
use crate::ranks::Needs;
use crate::silence::Silence;
use model::{AlertRecord, Moment, Resolution, Subject, TargetId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Most resolved alerts that are kept for readers.
const MAX_RESOLVED: usize = 1_000;
/// A change of the offset between the two clocks by more than this means that the wall clock was set.
const CLOCK_SET_MS: i64 = 1_000;

/// A target as its last report left it.
struct Target {
    spec: TargetSpec,
    /// Whether nothing in the report is healthy.
    is_down: bool,
    /// Whether the same report has no effect: all alerts of the target fire with what it says.
    is_settled: bool,
    /// When the same report arrived last and was skipped.
    repeated: Option<Moment>,
    /// Reports in a row in which something was critical of which no alert fired.
    unconfirmed: u32,
    /// The dependencies that were critical in these reports.
    doubtful: BTreeSet<Arc<str>>,
}

/// Decides who is notified of what, and when.
pub struct Notifier {
    settings: Settings,
    /// When the process began.
    started: Now,
    silences: Vec<Silence>,
    /// The places of the active silences in `silences`.
    active: Vec<usize>,
    /// When a silence begins or ends next.
    silence_change: Option<Moment>,
    /// Wall clock minus monotonic clock when the silences were last checked, in milliseconds.
    offset: i64,
    targets: BTreeMap<TargetId, Target>,
    /// The deployments of which this device polls, and whose alerts of the last device it has read.
    taken_over: BTreeSet<String>,
    needs: Needs,
    cut: Vec<(TargetId, TargetId)>,
    alerts: BTreeMap<Subject, Alert>,
    /// Resolved alerts by the end of their episode.
    resolved: BTreeSet<(Timestamp, Subject)>,
    groups: Groups,
    blind: Blind,
    /// When alerts must be settled although nothing happens to them.
    timers: BTreeSet<(Moment, Subject)>,
    unsettled: BTreeSet<Subject>,
    unsettled_targets: BTreeSet<TargetId>,
    /// Alerts whose records changed.
    changed: BTreeSet<Subject>,
    actions: Vec<Action>,
    /// The number of the next notification.
    next: u64,
}

impl Notifier {
    /// Restores the notifier from the records of alerts. `next` is larger than the number of every earlier
    /// notification.
    pub fn new(
        settings: Settings,
        targets: Vec<TargetSpec>,
        records: Vec<Arc<AlertRecord>>,
        next: u64,
        now: Now,
    ) -> Self {
        let mut notifier = Self {
            settings,
            started: now,
            silences: Vec::new(),
            active: Vec::new(),
            silence_change: None,
            offset: offset(now),
            targets: BTreeMap::new(),
            taken_over: BTreeSet::new(),
            needs: Needs::default(),
            cut: Vec::new(),
            alerts: BTreeMap::new(),
            resolved: BTreeSet::new(),
            groups: Groups::default(),
            blind: Blind::default(),
            timers: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            unsettled_targets: BTreeSet::new(),
            changed: BTreeSet::new(),
            actions: Vec::new(),
            next,
        };
        for record in records {
            if let Some((at, _)) = record.ended {
                notifier.resolved.insert((at, record.subject.clone()));
            }
            notifier.alerts.insert(record.subject.clone(), Alert::restored(record, now));
        }
        notifier.restore_groups(now);
        if notifier.alerts.get(&blind::network()).is_some_and(Alert::is_open) {
            notifier.blind = Blind::active(targets.iter().filter_map(|spec| spec.host.clone()).collect());
        }
        notifier.apply(Input::Targets(targets), now);
        notifier
    }

    /// Applies an input. Its actions are then drained.
    pub fn apply(&mut self, input: Input<'_>, now: Now) {
        match input {
            Input::Settings(settings) => {
                self.taken_over.retain(|deployment| !settings.standby.contains(deployment));
                self.settings = settings;
                self.groups.clear(now.moment);
                self.alerts.values_mut().for_each(|alert| alert.groups.clear());
                self.restore_groups(now);
                self.unsettle_all();
            }
            Input::Targets(specs) => self.set_targets(specs, now),
            Input::Silences(silences) => {
                self.silences = silences;
                self.check_silences(now);
            }
            Input::Polled(polled) => self.polled(polled, now),
            Input::Troubles(class, troubles) => self.troubles(class, troubles, now),
            Input::Acknowledge { subject, by } => self.acknowledge(&subject, by, now),
            Input::Dismissed(subjects) => {
                subjects.iter().for_each(|subject| self.end(subject, Resolution::Missing, now));
            }
            Input::TakenOver(taken) => self.take_over(taken, now),
            Input::NotSent(unsent) => self.not_sent(unsent, now),
            Input::Undelivered(channel, count) => self.groups.set_undelivered(&channel, count),
            Input::Tick => {}
        }
        self.pass_time(now);
        self.settle(now);
        self.groups.end_clearing();
        self.flush(now);
        self.save(now);
    }

    /// Returns the actions since the last call.
    pub fn drain(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When the next action follows from time alone.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.groups.next(), self.silence_change].into_iter().flatten().min()
    }

    /// Returns the record of an alert.
    pub fn record(&self, subject: &Subject) -> Option<&AlertRecord> {
        self.alerts.get(subject).map(|alert| &*alert.record)
    }

    /// Returns the records of all alerts.
    pub fn records(&self) -> impl Iterator<Item = &AlertRecord> {
        self.alerts.values().map(|alert| &*alert.record)
    }

    /// Returns the `depends_on` of targets that are ignored because they would close a cycle.
    pub fn cut(&self) -> &[(TargetId, TargetId)] {
        &self.cut
    }

    /// Returns the silences that are active.
    pub fn active_silences(&self) -> impl Iterator<Item = &Silence> {
        self.active.iter().filter_map(|place| self.silences.get(*place))
    }

    fn subjects_of(&self, target: &TargetId) -> impl Iterator<Item = &Subject> {
        let first = Subject::dependency(target, Arc::default());
        let of_target = target.clone();
        let of_target = move |subject: &&Subject| subject.target() == Some(&of_target);
        let dependencies = self.alerts.range(first..).map(|(subject, _)| subject);
        let itself = self.alerts.get_key_value(&Subject::Target(target.clone())).map(|(subject, _)| subject);
        dependencies.take_while(of_target).chain(itself)
    }

    fn unsettle_all(&mut self) {
        self.unsettled.extend(self.alerts.keys().cloned());
    }

    /// Settles the alerts that the state of a subject may explain.
    fn unsettle_dependents(&mut self, subject: &Subject) {
        if let Some(target) = subject.target() {
            self.unsettled_targets.insert(target.clone());
            self.unsettled_targets.extend(self.needs.needing(target).cloned());
        }
    }

    /// Handles the timers that are due, and silences that begin or end.
    fn pass_time(&mut self, now: Now) {
        while let Some((at, subject)) = self.timers.first().filter(|(at, _)| *at <= now.moment).cloned() {
            self.timers.remove(&(at, subject.clone()));
            self.unsettled.insert(subject);
        }
        let is_set = (offset(now) - self.offset).abs() > CLOCK_SET_MS;
        if is_set || self.silence_change.is_some_and(|at| at <= now.moment) {
            self.check_silences(now);
        }
    }

    fn check_silences(&mut self, now: Now) {
        self.offset = offset(now);
        let places = self.silences.iter().enumerate();
        self.active = places.filter(|(_, silence)| silence.is_active(now.wall)).map(|(place, _)| place).collect();
        let change = self.silences.iter().filter_map(|silence| silence.next_change(now.wall)).min();
        // Silences change on a whole millisecond, moments do not.
        let after = |at: Timestamp| now.moment.after(at.since(now.wall) + Duration::from_millis(1));
        self.silence_change = change.map(after);
        self.unsettle_all();
    }

    /// Stores what changed, and forgets resolved alerts beyond the limit.
    fn save(&mut self, now: Now) {
        let mut places: Vec<_> = Vec::new();
        if self.resolved.len() > MAX_RESOLVED {
            let surplus = self.resolved.len() - MAX_RESOLVED;
            let is_done = |alert: &Alert| alert.groups.is_empty() && alert.record.flapping.is_none();
            let done = self.resolved.iter().filter(|(_, subject)| self.alerts.get(subject).is_none_or(is_done));
            places.extend(done.take(surplus).cloned());
        }
        for (at, subject) in places {
            self.resolved.remove(&(at, subject.clone()));
            self.forget(&subject);
        }
        for subject in std::mem::take(&mut self.changed) {
            let Some(alert) = self.alerts.get(&subject) else { continue };
            self.actions.push(Action::Save(alert.record.clone()));
        }
        debug_assert!(self.next_wakeup().is_none_or(|at| at > now.moment), "time alone must not repeat an action");
    }

    fn forget(&mut self, subject: &Subject) {
        let Some(alert) = self.alerts.remove(subject) else { return };
        if let Some((at, _)) = alert.record.ended {
            self.resolved.remove(&(at, subject.clone()));
        }
        self.changed.remove(subject);
        self.actions.push(Action::Forget(subject.clone()));
    }
}

fn offset(now: Now) -> i64 {
    now.wall.as_millis().saturating_sub(now.moment.as_nanos() / 1_000_000)
}
