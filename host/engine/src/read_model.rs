//! The read model: one `Arc` for each target, swapped when something about it is committed.
//!
//! Pages, API, metrics and command line read from here, without the driver's loop: a read takes the entry's lock for
//! the clone of an `Arc`. The driver writes places; results arrive from the store's thread once they are on disk.

use crate::bus::Bus;
use metrics::TargetMetrics;
use model::{
    AlertChange, AlertRecord, AlertState, Dependency, Event, Observed, Place, PollMeasure, Sample, Schedule,
    SchedulerState, SequencedEvent, Status, Subject, TargetId, TargetInfo, TargetState, Timestamp,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use store::KnownState;

/// The number of kept polls of a target.
const POLLS: usize = 8;

/// The state of every target and of the scheduler, for readers on any thread.
#[derive(Debug, Default)]
pub struct ReadModel {
    entries: RwLock<BTreeMap<TargetId, Arc<Entry>>>,
    scheduler: RwLock<Arc<SchedulerState>>,
    alerts: RwLock<BTreeMap<Subject, Arc<AlertRecord>>>,
}

/// One target.
#[derive(Debug)]
pub(crate) struct Entry {
    state: RwLock<Arc<TargetState>>,
    /// The last polls, oldest first.
    polls: Mutex<VecDeque<PollMeasure>>,
    /// Publications that wait for the database.
    unwritten: AtomicU8,
    /// The target is removed: late results are announced and no longer shown.
    removed: AtomicBool,
}

impl ReadModel {
    /// One target; `None` if no target has this id.
    pub fn target(&self, id: &TargetId) -> Option<Arc<TargetState>> {
        let entry = self.entries.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        entry.map(|entry| entry.state())
    }

    /// The last polls of a target, newest first.
    pub fn polls(&self, id: &TargetId) -> Vec<PollMeasure> {
        let entry = self.entries.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        let polls = |entry: Arc<Entry>| {
            entry.polls.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().copied().collect()
        };
        entry.map(polls).unwrap_or_default()
    }

    /// Every target, by id.
    pub fn targets(&self) -> Vec<Arc<TargetState>> {
        // The lock is held for the entries only, so that a target that is added does not wait for all states.
        let entries: Vec<Arc<Entry>> =
            self.entries.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        entries.iter().map(|entry| entry.state()).collect()
    }

    /// The scheduler and the driver's loop, as of the end of the loop's last turn.
    pub fn scheduler(&self) -> Arc<SchedulerState> {
        self.scheduler.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every alert that is on disk, by subject. Open alerts of targets have the texts of the last result, which may
    /// change with each poll and are stored with the target.
    pub fn alerts(&self) -> Vec<Arc<AlertRecord>> {
        let mut alerts: Vec<Arc<AlertRecord>> =
            self.alerts.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let is_open = |alert: &Arc<AlertRecord>| alert.state != AlertState::Resolved;
        for group in alerts.chunk_by_mut(|one, next| one.subject.target() == next.subject.target()) {
            let target = group.iter().find(|alert| is_open(alert)).and_then(|alert| alert.subject.target());
            if let Some(state) = target.and_then(|target| self.target(target)) {
                reword(group, &state.observed);
            }
        }
        alerts
    }

    pub(crate) fn change_alerts(&self, changes: Vec<AlertChange>) {
        let mut alerts = self.alerts.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            match change {
                AlertChange::Save(record) => drop(alerts.insert(record.subject.clone(), record)),
                AlertChange::Forget(subject) => drop(alerts.remove(&subject)),
                AlertChange::Deliver(_) | AlertChange::Values { .. } | AlertChange::ForgetValues(_) => {}
            }
        }
    }

    pub(crate) fn set_scheduler(&self, state: SchedulerState) {
        *self.scheduler.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// Adds a target, in place of an earlier one with its id.
    pub(crate) fn add(&self, state: TargetState) -> Arc<Entry> {
        let id = state.info.id.clone();
        let entry = Arc::new(Entry {
            state: RwLock::new(Arc::new(state)),
            polls: Mutex::default(),
            unwritten: AtomicU8::new(0),
            removed: AtomicBool::new(false),
        });
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(id, entry.clone());
        entry
    }

    pub(crate) fn remove(&self, id: &TargetId) {
        let removed = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(entry) = removed {
            entry.removed.store(true, Ordering::Relaxed);
        }
    }
}

/// Gives the open alerts of a target the texts of its last result.
fn reword(alerts: &mut [Arc<AlertRecord>], observed: &Observed) {
    let present = observed.dependencies.iter().map(|dependency| &dependency.record);
    let present = present.filter(|record| record.missing_since.is_none());
    let reported: HashMap<&str, &Dependency> =
        present.map(|record| (record.reported.name.as_str(), &record.reported)).collect();
    for alert in alerts.iter_mut().filter(|alert| alert.state != AlertState::Resolved) {
        let (title, message) = match alert.subject.dependency_name() {
            None => match &observed.failure {
                Some(failure) => (alert.title.clone(), Some(failure.message.clone()).filter(|text| !text.is_empty())),
                None => continue,
            },
            Some(name) => match reported.get(name) {
                Some(reported) if matches!(reported.status, Status::Warning | Status::Critical) => {
                    let title = reported.title.clone().unwrap_or_else(|| name.to_owned());
                    (title, reported.error_message.clone())
                }
                _ => continue,
            },
        };
        if (&alert.title, &alert.message) != (&title, &message) {
            let reworded = Arc::make_mut(alert);
            (reworded.title, reworded.message) = (title, message);
        }
    }
}

impl Entry {
    pub(crate) fn state(&self) -> Arc<TargetState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Swaps in a changed copy of the state.
    pub(crate) fn update(&self, change: impl FnOnce(&mut TargetState)) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut state));
    }

    /// Keeps a poll among the last ones.
    fn note(&self, poll: PollMeasure) {
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        if polls.len() == POLLS {
            polls.pop_front();
        } else if polls.capacity() == 0 {
            polls.reserve_exact(POLLS);
        }
        polls.push_back(poll);
    }

    pub(crate) fn set_place(&self, place: Place) {
        self.update(|state| state.place = place);
    }

    /// The number of publications that wait for the database.
    pub(crate) fn unwritten(&self) -> u8 {
        self.unwritten.load(Ordering::Acquire)
    }

    /// Counts a publication that is handed to the store. Returns how many wait, with it.
    pub(crate) fn hand_in(&self) -> u8 {
        self.unwritten.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// Counts a publication that is done. Returns how many waited before, with it.
    fn hand_out(&self) -> u8 {
        self.unwritten.fetch_sub(1, Ordering::AcqRel)
    }
}

/// A target's result, to be shown and announced once it is on disk.
pub(crate) struct Publication {
    pub entry: Arc<Entry>,
    pub schedule: Schedule<Timestamp>,
    pub unreachable: bool,
    /// The new results; `None` if they are as before.
    pub observed: Option<Arc<Observed>>,
    /// The poll to count, with the target's counters.
    pub measure: Option<(TargetMetrics, PollMeasure)>,
    /// Events that are announced and never stored.
    pub passing: Vec<Event>,
    pub bus: Bus,
}

impl Publication {
    /// Shows and announces it; `stored` are its events that are on disk.
    pub(crate) fn publish(self, stored: Vec<SequencedEvent>) {
        let Self { entry, schedule, unreachable, observed, measure, passing, bus } = self;
        if !entry.removed.load(Ordering::Relaxed) {
            entry.update(|state| {
                (state.schedule, state.unreachable) = (schedule, unreachable);
                if let Some(observed) = observed {
                    state.observed = observed;
                }
            });
        }
        if let Some((metrics, measure)) = measure {
            metrics.poll(measure.wall, measure.failure);
            entry.note(measure);
        }
        for event in passing {
            bus.announce(SequencedEvent { sequence: None, event });
        }
        stored.into_iter().for_each(|event| bus.announce(event));
    }

    /// The same on the store's thread, for a publication that was handed in. `drained` is called if the target's queue
    /// was at least `full`.
    pub(crate) fn publish_written(self, stored: Vec<SequencedEvent>, full: u8, drained: impl FnOnce()) {
        let entry = self.entry.clone();
        self.publish(stored);
        if entry.hand_out() >= full {
            drained();
        }
    }
}

/// Returns the configuration of a target in the form for readers.
pub(crate) fn info(config: &config::TargetConfig) -> Arc<TargetInfo> {
    Arc::new(TargetInfo {
        id: config.id.clone(),
        name: config.name.clone(),
        kind: config.kind.clone(),
        url: config.url.to_string(),
        labels: config.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        source: config.source,
    })
}

/// The known state as readers see it.
pub(crate) fn observed(known: &KnownState, samples: Arc<Vec<Sample>>) -> Observed {
    Observed {
        dependencies: known.dependencies.clone(),
        warnings: known.warnings.clone(),
        failure: known.failure.clone(),
        stale_since: known.stale_since,
        samples,
    }
}
