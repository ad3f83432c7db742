//! One alert: its record, and what decides its next step.

use crate::groups::GroupKey;
use crate::input::{Finding, Now};
use crate::matcher::Attributes;
use model::{AlertEvent, AlertRecord, AlertState, LastNotified, Moment, Resolution, Status, Subject};
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
    /// The alert is not notified before another report, or this moment: what held it back is over, and the last report
    /// is older than that.
    pub awaits: Option<Moment>,
    /// When the subject was last observed to be wrong; `None` if not since the start of the process.
    pub seen: Option<Moment>,
    /// The moments of `record.changes`.
    changes: Vec<Moment>,
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
        let streak = u32::from(record.state == AlertState::Pending);
        Self { record, streak, awaits: None, seen: None, changes, notified, groups: Vec::new() }
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
        let (title_now, message_now) = (finding.shown_title(), finding.message);
        let is_same = (*status, title.as_str(), message.as_deref()) == (finding.status, title_now, message_now);
        is_settled && is_same && ancestors.is_empty()
    }

    /// Begins an episode.
    pub(crate) fn begin(&mut self, now: Now) {
        let record = self.record_mut();
        (record.state, record.since, record.ended) = (AlertState::Pending, now.wall, None);
        (record.acknowledged, record.suppressed_by, record.silenced_by) = (None, None, None);
        // A channel that was not yet notified of the end of the last episode is not notified of it.
        record.notified.retain(|notified| notified.event != AlertEvent::Resolved);
        (self.streak, self.awaits) = (0, None);
    }

    /// The alert is confirmed.
    pub(crate) fn fire(&mut self, now: Now) {
        self.record_mut().state = AlertState::Firing;
        self.streak = 0;
        self.change(now);
    }

    /// Ends the episode.
    pub(crate) fn resolve(&mut self, resolution: Resolution, now: Now) {
        let was_firing = self.record.state == AlertState::Firing;
        let record = self.record_mut();
        (record.state, record.ended) = (AlertState::Resolved, Some((now.wall, resolution)));
        (record.acknowledged, record.suppressed_by, record.silenced_by) = (None, None, None);
        (self.streak, self.awaits) = (0, None);
        if was_firing {
            self.change(now);
        }
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
        let notified = LastNotified { channel: channel.to_owned(), event, status: self.record.status, at: now.wall };
        let record = self.record_mut();
        match record.notified.binary_search_by(|held| held.channel.as_str().cmp(channel)) {
            Ok(place) => record.notified[place] = notified,
            Err(place) => record.notified.insert(place, notified),
        }
        self.notified.insert(channel.to_owned(), now.moment);
    }
}
