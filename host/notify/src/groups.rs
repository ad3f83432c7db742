//! Groups of alerts that wait for their notification, and its time.

use model::{Moment, Subject};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The limit on undelivered notifications of a channel. Beyond it, alerts wait here: what is then sent is their state
/// at that time.
pub const MAX_OPEN: usize = 100;
/// Most groups of a route that are notified separately within [`MINUTE`], however often. More become one notification.
const STORM: usize = 10;
/// The shortest time between two notifications of a route in a storm.
const MINUTE: Duration = Duration::from_secs(60);
/// The pause of a group whose channel has too many undelivered notifications.
const FULL: Duration = Duration::from_secs(10);

/// Identifies a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub channel: String,
    pub route: String,
    /// The attributes that the alerts have in common.
    pub labels: Vec<(String, String)>,
}

/// The times of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupTimes {
    pub wait: Duration,
    pub interval: Duration,
}

/// How an alert joins a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    pub times: GroupTimes,
    /// Whether only the wait of the group delays the news, and not the interval between its notifications.
    pub is_prompt: bool,
    pub now: Moment,
}

/// Alerts for one notification.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub key: GroupKey,
    pub members: BTreeSet<Subject>,
}

#[derive(Debug)]
struct Group {
    /// Alerts with news, and when each wants to be notified. The first one takes all with it.
    members: BTreeMap<Subject, Moment>,
    dues: BTreeSet<(Moment, Subject)>,
    /// The alerts that were in the group before another configuration, until they have joined it again.
    before: BTreeMap<Subject, Moment>,
    /// When they are notified; without members, when the group is forgotten.
    at: Moment,
    /// The group is not notified before, because of a storm or a full channel.
    postponed: Option<Moment>,
    last: Option<Moment>,
    interval: Duration,
}

impl Group {
    fn new(at: Moment, last: Option<Moment>, interval: Duration) -> Self {
        let (members, before) = (BTreeMap::new(), BTreeMap::new());
        Self { members, before, dues: BTreeSet::new(), at, postponed: None, last, interval }
    }

    /// Adds an alert. One that wants to be notified earlier already stays as it is.
    fn insert(&mut self, subject: &Subject, at: Moment) {
        let at = self.before.remove(subject).map_or(at, |before| at.min(before));
        match self.members.get(subject) {
            Some(known) if *known <= at => return,
            Some(known) => drop(self.dues.remove(&(*known, subject.clone()))),
            None => {}
        }
        self.members.insert(subject.clone(), at);
        self.dues.insert((at, subject.clone()));
    }

    /// Removes an alert. Returns whether it was there.
    fn remove(&mut self, subject: &Subject) -> bool {
        let Some(at) = self.members.remove(subject) else { return false };
        self.dues.remove(&(at, subject.clone()))
    }

    /// Takes all alerts.
    fn take(&mut self) -> BTreeSet<Subject> {
        self.dues.clear();
        self.postponed = None;
        std::mem::take(&mut self.members).into_keys().collect()
    }

    /// When the group is due; without alerts, when it is forgotten.
    fn due(&self, now: Moment) -> Moment {
        match self.dues.first() {
            Some((first, _)) => (*first).max(self.postponed.unwrap_or(*first)),
            None => self.last.map_or(now, |last| last.after(self.interval)),
        }
    }
}

/// The groups of one route for one channel.
#[derive(Debug, Default)]
struct Lane {
    waiting: BTreeSet<GroupKey>,
    /// The notifications of the last minute, and their groups.
    sent: VecDeque<(Moment, GroupKey)>,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<GroupKey, Group>,
    due: BTreeSet<(Moment, GroupKey)>,
    lanes: BTreeMap<(String, String), Lane>,
    undelivered: BTreeMap<String, usize>,
}

impl Groups {
    /// Records that a group was notified before this process began.
    pub(crate) fn restore(&mut self, key: GroupKey, times: GroupTimes, last: Moment) {
        if let Some(group) = self.groups.get_mut(&key) {
            group.last = group.last.max(Some(last));
            return;
        }
        let at = last.after(times.interval);
        self.due.insert((at, key.clone()));
        self.groups.insert(key, Group::new(at, Some(last), times.interval));
    }

    /// Adds an alert to a group.
    pub(crate) fn add(&mut self, key: &GroupKey, subject: &Subject, joining: Joining) {
        let Joining { times, is_prompt, now } = joining;
        let group = self.groups.entry(key.clone()).or_insert_with(|| {
            self.due.insert((now, key.clone()));
            Group::new(now, None, times.interval)
        });
        group.interval = times.interval;
        let soonest = now.after(times.wait);
        let last = group.last.filter(|_| !is_prompt);
        group.insert(subject, last.map_or(soonest, |last| soonest.max(last.after(times.interval))));
        let (is_first, at) = (group.members.len() == 1, group.due(now));
        if is_first {
            self.lane(key).waiting.insert(key.clone());
        }
        self.set(key, at);
    }

    /// Removes an alert from a group: there is no news about it.
    pub(crate) fn remove(&mut self, key: &GroupKey, subject: &Subject, now: Moment) {
        let Some(group) = self.groups.get_mut(key) else { return };
        if group.remove(subject) {
            let (is_empty, at) = (group.members.is_empty(), group.due(now));
            if is_empty {
                self.lane(key).waiting.remove(key);
            }
            self.set(key, at);
        }
    }

    /// Removes all alerts from all groups, which keep their times.
    pub(crate) fn clear(&mut self, now: Moment) {
        let waiting: Vec<_> = self.lanes.values_mut().flat_map(|lane| std::mem::take(&mut lane.waiting)).collect();
        for key in waiting {
            let Some(group) = self.groups.get_mut(&key) else { continue };
            group.before = group.members.clone();
            group.take();
            let at = group.due(now);
            self.set(&key, at);
        }
    }

    /// Ends [`Groups::clear`]: an alert that has not joined its group again has no news any more.
    pub(crate) fn end_clearing(&mut self) {
        self.groups.values_mut().for_each(|group| group.before.clear());
    }

    /// Sets the number of undelivered notifications of a channel.
    pub(crate) fn set_undelivered(&mut self, channel: &str, count: usize) {
        match count {
            0 => drop(self.undelivered.remove(channel)),
            count => drop(self.undelivered.insert(channel.to_owned(), count)),
        }
    }

    /// When a group is due next.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the alerts of all groups that are due. In a storm, all groups of a route become one.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Batch> {
        let mut lanes: BTreeMap<(String, String), Vec<GroupKey>> = BTreeMap::new();
        while let Some((at, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&(at, key.clone()));
            if self.groups.get(&key).is_some_and(|group| group.members.is_empty()) {
                self.groups.remove(&key);
                continue;
            }
            lanes.entry((key.channel.clone(), key.route.clone())).or_default().push(key);
        }
        lanes.into_iter().flat_map(|(lane, keys)| self.take_lane(&lane, keys, now)).collect()
    }

    fn take_lane(&mut self, id: &(String, String), keys: Vec<GroupKey>, now: Moment) -> Vec<Batch> {
        let undelivered = self.undelivered.get(&id.0).copied().unwrap_or(0);
        let lane = self.lanes.entry(id.clone()).or_default();
        while lane.sent.front().is_some_and(|(sent, _)| now.since(*sent) >= MINUTE) {
            lane.sent.pop_front();
        }
        // Frequent news of a few groups is no storm: the wait of each group bounds it.
        let recent: BTreeSet<&GroupKey> = lane.sent.iter().map(|(_, key)| key).chain(&keys).collect();
        let is_storm = lane.waiting.len() > STORM || recent.len() > STORM;
        let last = lane.sent.back().map(|(sent, _)| *sent);
        let later = if undelivered >= MAX_OPEN { Some(now.after(FULL)) } else { None };
        let later = later.max(last.filter(|_| is_storm).map(|last| last.after(MINUTE)));
        if let Some(later) = later {
            for key in &keys {
                if let Some(group) = self.groups.get_mut(key) {
                    group.postponed = Some(later);
                }
                self.set(key, later);
            }
            return Vec::new();
        }
        let keys = if is_storm { std::mem::take(&mut lane.waiting).into_iter().collect() } else { keys };
        let mut batches: Vec<Batch> = keys.into_iter().filter_map(|key| self.take(key, now)).collect();
        if is_storm {
            let members = batches.into_iter().flat_map(|batch| batch.members).collect();
            let key = GroupKey { channel: id.0.clone(), route: id.1.clone(), labels: Vec::new() };
            batches = vec![Batch { key, members }];
        }
        let lane = self.lanes.entry(id.clone()).or_default();
        lane.sent.extend(batches.iter().map(|batch| (now, batch.key.clone())));
        batches
    }

    fn take(&mut self, key: GroupKey, now: Moment) -> Option<Batch> {
        self.lane(&key).waiting.remove(&key);
        let group = self.groups.get_mut(&key)?;
        let members = group.take();
        group.last = Some(now);
        let at = group.due(now);
        self.set(&key, at);
        Some(Batch { key, members })
    }

    fn lane(&mut self, key: &GroupKey) -> &mut Lane {
        self.lanes.entry((key.channel.clone(), key.route.clone())).or_default()
    }

    fn set(&mut self, key: &GroupKey, at: Moment) {
        let Some(group) = self.groups.get_mut(key) else { return };
        self.due.remove(&(group.at, key.clone()));
        group.at = at;
        self.due.insert((at, key.clone()));
    }
}
