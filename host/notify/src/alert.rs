//! One alert: its record, and what decides its next step.

use crate::groups::GroupKey;
use crate::input::{Action, Finding, Health, Now};
use crate::matcher::Attributes;
use model::{
    AlertEvent, AlertRecord, AlertState, Before, LastNotified, MAYBE, Moment, Resolution, Status, Subject, Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An alert flaps after this many changes within [`FLAP_PERIOD`].
const FLAP_CHANGES: usize = 5;
/// The period of these changes, and the time without changes after which the alert is stable.
pub(crate) const FLAP_PERIOD: Duration = Duration::from_secs(600);

/// An alert in memory.
#[derive(Debug)]
pub(crate) struct Alert {
    /// The record, which readers share.
    pub record: Arc<AlertRecord>,
    /// Reports in a row that contradict the state.
    pub streak: u32,
    /// When a pending alert is confirmed because it has lasted.
    pub lasts_until: Option<Moment>,
    /// The alert is not notified before another report, or this moment: what held it back is over, and the last report
    /// is older than that.
    pub awaits: Option<Moment>,
    /// Until when the alert waits for another one that explains it.
    pub waits_until: Option<Moment>,
    /// Whether the last report does not say, while the alert is pending.
    pub is_out_of_sight: bool,
    /// Whether an alert that explained this one ended without being confirmed. From then on, only one that fires does.
    pub is_misled: bool,
    /// Whether another device of the fleet observed the subject, and this one did not yet.
    pub is_only_known_elsewhere: bool,
    /// Whether another device of the fleet may have the alert now. Then this one sends nothing about it.
    pub is_handed_over: bool,
    /// When the subject was last observed to be wrong; `None` if not since the start of the process.
    pub seen: Option<Moment>,
    /// The moments of `record.changes`.
    changes: Vec<Moment>,
    /// The worst status that a channel was notified of; `None` since the start of the process.
    pub worst_notified: Option<Status>,
    /// The moments of `record.notified`.
    notified: BTreeMap<String, Moment>,
    /// The groups that the alert waits in.
    pub groups: Vec<GroupKey>,
}

impl Alert {
    /// An alert that was never observed.
    pub(crate) fn new(subject: Subject, now: Now) -> Self {
        let record = AlertRecord {
            subject,
            state: AlertState::Resolved,
            status: Status::Critical,
            since: now.wall,
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
            notified: Vec::new(),
        };
        Self::restored(Arc::new(record), now)
    }

    /// An alert from its record.
    pub(crate) fn restored(record: Arc<AlertRecord>, now: Now) -> Self {
        let changes = record.changes.iter().map(|at| now.moment_of(*at)).collect();
        let notified =
            record.notified.iter().map(|notified| (notified.channel.clone(), now.moment_of(notified.at))).collect();
        let streak = u32::from(record.state == AlertState::Pending && !is_vague(&record));
        Self {
            record,
            streak,
            lasts_until: None,
            awaits: None,
            waits_until: None,
            is_out_of_sight: false,
            is_misled: false,
            is_only_known_elsewhere: false,
            is_handed_over: false,
            seen: None,
            changes,
            worst_notified: None,
            notified,
            groups: Vec::new(),
        }
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        let AlertRecord { subject, status, traits, .. } = &*self.record;
        Attributes { subject, status: *status, traits }
    }

    /// Returns the record to change it. Readers keep the one that they have.
    pub(crate) fn record_mut(&mut self) -> &mut AlertRecord {
        Arc::make_mut(&mut self.record)
    }

    /// Whether the alert is pending or fires.
    pub(crate) fn is_open(&self) -> bool {
        self.record.state != AlertState::Resolved
    }

    /// Whether a finding changes nothing, because the alert fires with the same status and texts. The caller checks
    /// that the dependency runs on no other.
    pub(crate) fn is_repeated_by(&self, finding: &Finding<'_>) -> bool {
        let AlertRecord { state, status, title, message, ancestors, .. } = &*self.record;
        let is_settled = *state == AlertState::Firing && self.streak == 0 && self.awaits.is_none();
        let of =
            |found| (*status, title.as_str(), message.as_deref()) == (found, finding.shown_title(), finding.message);
        let is_same = match finding.health {
            Health::Missing(_) => is_absence(&self.record),
            Health::Unhealthy(found) => of(found),
            Health::Unknown => of(Status::Unknown),
            Health::Healthy | Health::Skipped | Health::Gone => false,
        };
        is_settled && is_same && ancestors.is_empty()
    }

    /// Whether the alert fires, or fired in the episode that is over.
    pub(crate) fn has_fired(&self) -> bool {
        self.record.state == AlertState::Firing || self.record.changes.last().is_some_and(|at| *at >= self.record.since)
    }

    /// How much the alert says: its status, where a missing dependency is as bad as an unknown one.
    pub(crate) fn severity(&self) -> Status {
        match self.record.status {
            _ if self.record.state == AlertState::Pending && self.is_out_of_sight => Status::Unknown,
            status if is_absence(&self.record) => status.max(Status::Unknown),
            status => status,
        }
    }

    /// Confirms a pending alert at a time, unless that is set already. Returns the time if it is new.
    pub(crate) fn confirm_at(&mut self, at: Moment) -> Option<Moment> {
        if self.record.state != AlertState::Pending || self.lasts_until.is_some() {
            return None;
        }
        self.lasts_until = Some(at);
        self.lasts_until
    }

    /// Whether a pending alert is confirmed now because it has lasted.
    pub(crate) fn has_lasted(&self, now: Moment) -> bool {
        self.record.state == AlertState::Pending && self.lasts_until.is_some_and(|until| until <= now)
    }

    /// Begins an episode, or continues one that another device had for a while.
    pub(crate) fn begin(&mut self, now: Now) {
        let record = self.record_mut();
        let is_new = record.ended.is_none_or(|(_, why)| why != Resolution::HandedOver);
        (record.state, record.ended) = (AlertState::Pending, None);
        (record.suppressed_by, record.silenced_by) = (None, None);
        if is_new {
            (record.since, record.acknowledged) = (now.wall, None);
        }
        // A channel that was not yet notified of the end of the last episode is not notified of it.
        record.notified.retain(|notified| notified.event != AlertEvent::Resolved);
        self.is_misled = false;
        (self.streak, self.lasts_until, self.awaits, self.waits_until) = (0, None, None, None);
    }

    /// The alert is confirmed. Returns what is announced. The caller sets what it waits for.
    pub(crate) fn fire(&mut self, now: Now) -> Vec<Action> {
        self.record_mut().state = AlertState::Firing;
        (self.streak, self.lasts_until) = (0, None);
        self.change(now);
        let AlertRecord { subject, suppressed_by, .. } = &*self.record;
        let explained = suppressed_by.iter().map(|by| Action::Suppressed(subject.clone(), by.clone()));
        [Action::Firing(subject.clone())].into_iter().chain(explained).collect()
    }

    /// Ends the episode.
    pub(crate) fn resolve(&mut self, resolution: Resolution, now: Now) {
        let was_firing = self.record.state == AlertState::Firing;
        let record = self.record_mut();
        (record.state, record.ended) = (AlertState::Resolved, Some((now.wall, resolution)));
        (record.acknowledged, record.suppressed_by, record.silenced_by) = (None, None, None);
        (self.streak, self.lasts_until, self.awaits, self.waits_until) = (0, None, None, None);
        if was_firing {
            self.change(now);
        }
    }

    /// Ends the episode on this host only: on another device it may go on.
    pub(crate) fn hand_over(&mut self, now: Now) {
        let record = self.record_mut();
        (record.state, record.ended) = (AlertState::Resolved, Some((now.wall, Resolution::HandedOver)));
        (record.suppressed_by, record.silenced_by) = (None, None);
        (self.streak, self.lasts_until, self.awaits, self.waits_until) = (0, None, None, None);
    }

    fn change(&mut self, now: Now) {
        // Not `record_mut`, which would borrow `changes`, too.
        let record = Arc::make_mut(&mut self.record);
        if self.changes.len() == FLAP_CHANGES {
            self.changes.remove(0);
            record.changes.remove(0);
        }
        self.changes.push(now.moment);
        record.changes.push(now.wall);
        let is_fast = self.changes.first().is_some_and(|first| now.moment.since(*first) <= FLAP_PERIOD);
        if self.changes.len() == FLAP_CHANGES && is_fast && record.flapping.is_none() {
            record.flapping = Some(now.wall);
        }
    }

    /// How often the alert began to fire or was over within [`FLAP_PERIOD`].
    pub(crate) fn recent_changes(&self, now: Moment) -> usize {
        self.changes.iter().filter(|at| now.since(**at) < FLAP_PERIOD).count()
    }

    /// When the alert began to fire, or its episode began if that is not known any more.
    pub(crate) fn fired_at(&self, now: Now) -> Moment {
        self.changes.last().copied().unwrap_or_else(|| now.moment_of(self.record.since))
    }

    /// When the alert is stable if nothing changes; `None` if it does not flap.
    pub(crate) fn stable_at(&self) -> Option<Moment> {
        self.record.flapping?;
        Some(self.changes.last()?.after(FLAP_PERIOD))
    }

    /// The alert is stable again.
    pub(crate) fn end_flapping(&mut self) {
        let record = self.record_mut();
        record.flapping = None;
        record.changes.clear();
        self.changes.clear();
    }

    /// The last message for a channel.
    pub(crate) fn last_notified(&self, channel: &str) -> Option<&LastNotified> {
        self.record.notified.iter().find(|notified| notified.channel == channel)
    }

    /// The moment of the last message for a channel.
    pub(crate) fn notified_at(&self, channel: &str) -> Option<Moment> {
        self.notified.get(channel).copied()
    }

    /// Records a message for a channel.
    pub(crate) fn set_notified(&mut self, channel: &str, event: AlertEvent, now: Now) {
        let event = if event == AlertEvent::Repeated { AlertEvent::Firing } else { event };
        let status = self.record.status;
        self.set_last(LastNotified { channel: channel.to_owned(), event, status, at: now.wall }, now);
        self.worst_notified = self.worst_notified.max(Some(status));
    }

    fn set_last(&mut self, last: LastNotified, now: Now) {
        self.notified.insert(last.channel.clone(), now.moment_of(last.at));
        let notified = &mut self.record_mut().notified;
        match notified.binary_search_by(|held| held.channel.cmp(&last.channel)) {
            Ok(place) => notified[place] = last,
            Err(place) => notified.insert(place, last),
        }
    }

    /// Records that the last message for a channel did not arrive, so that the one before is the last; or that it may
    /// not have arrived. Returns whether that changes anything.
    pub(crate) fn take_back(&mut self, channel: &str, before: Before, now: Now) -> bool {
        let held = self.last_notified(channel).cloned();
        if held.is_none() && self.is_handed_over {
            return false;
        }
        match before {
            Before::Unknown => {
                let at = held.map_or(now.wall, |held| held.at);
                let (channel, event) = (channel.to_owned(), AlertEvent::Firing);
                self.set_last(LastNotified { channel, event, status: MAYBE, at }, now);
            }
            // The end of an earlier episode is no message about this one.
            Before::Message(last) if !(self.is_open() && last.event == AlertEvent::Resolved) => {
                self.set_last(last, now);
            }
            Before::Message(_) | Before::Nothing => {
                self.record_mut().notified.retain(|last| last.channel != channel);
                self.notified.remove(channel);
                return held.is_some();
            }
        }
        true
    }

    /// Records that channels may not have been notified of what they were last notified of.
    pub(crate) fn set_all_maybe_notified(&mut self) {
        self.record_mut().notified.iter_mut().for_each(|last| (last.event, last.status) = (AlertEvent::Firing, MAYBE));
    }

    /// Another device knows what the channels were notified of.
    pub(crate) fn forget_notified(&mut self) {
        self.record_mut().notified.clear();
        self.notified.clear();
    }
}

/// The beginning of the message about a dependency that is no longer reported.
const ABSENT: &str = "no longer reported since ";

/// Returns the message about a dependency that is no longer reported, with the one of its last report.
pub(crate) fn absence(since: Timestamp, last: Option<&str>) -> String {
    let at = jiff::Timestamp::from_millisecond(since.as_millis()).unwrap_or_default().strftime("%Y-%m-%d %H:%M UTC");
    let last = last.map_or_else(String::new, |last| format!("; the last report said: {last}"));
    format!("{ABSENT}{at}{last}")
}

/// Whether an alert says that its dependency is no longer reported.
pub(crate) fn is_absence(record: &AlertRecord) -> bool {
    record.message.as_deref().is_some_and(|message| message.starts_with(ABSENT))
}

/// Whether an alert only says that nothing is known: its status is unknown, or its dependency was never seen to be
/// wrong and is no longer reported. It is confirmed by time.
pub(crate) fn is_vague(record: &AlertRecord) -> bool {
    record.status == Status::Unknown || (record.state == AlertState::Pending && is_absence(record))
}
