//! The known state of one target, and how an outcome is merged into it. Pure.

mod answer;

use crate::changes::{Changes, ErrorEntry, PollErrorEntry, TargetRecord, Transition};
use model::{
    DependencyRecord, DependencyState, Failure, Json, LatencyPoint, LatencyWindow, Outcome, PluginValues, PollFailure,
    Report, Sketch, Status, Timestamp, Volatile,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The limit on missing dependencies per target; beyond it, those that were well and are missing longest are forgotten.
const MISSING: usize = 1_000;
/// Up to so many names that are gone are compared faster than a set of them is made.
const FEW: usize = 4;
/// A prefix may have up to this many slashes, so that 25,000 names of only slashes do not block a lane.
const PREFIX_DEPTH: usize = 16;
/// The error recorded for a critical dependency without an error (the same value as in Depsera).
const UNHEALTHY: &str = r#"{"unhealthy":true}"#;
const UNHEALTHY_MESSAGE: &str = "Unhealthy";

/// Aliases of dependencies: alias to canonical name.
pub type Aliases = HashMap<String, String>;

/// The known state of a target.
#[derive(Clone, Debug, Default)]
pub struct KnownState {
    /// The dependencies of the last report in its order, then the missing dependencies. Readers share them until the
    /// next report.
    pub dependencies: Arc<Vec<DependencyState>>,
    /// The warnings of the last report.
    pub warnings: Vec<String>,
    /// The failure of the last poll; `None` if it succeeded.
    pub failure: Option<PollFailure>,
    /// The time since which the known state is stale; `None` if it is not.
    pub stale_since: Option<Timestamp>,
    /// The time of the last report.
    pub last_report: Option<Timestamp>,
    /// The values that the plugin stored.
    pub values: PluginValues,
    next_slot: u32,
    /// The distributions of current latency windows with several measurements, by slot.
    sketches: HashMap<u32, Sketch>,
}

impl KnownState {
    /// Completes a stored state with its dependencies. Slots below `next_slot` belong to these or to deleted ones,
    /// whose history is still stored.
    pub(crate) fn restored(mut self, mut dependencies: Vec<DependencyState>, next_slot: u32) -> Self {
        dependencies.sort_by_key(|dependency| (dependency.record.missing_since.is_some(), dependency.record.slot));
        let slots = dependencies.iter().map(|dependency| dependency.record.slot.saturating_add(1));
        self.next_slot = slots.max().unwrap_or(0).max(next_slot);
        self.dependencies = Arc::new(dependencies);
        self
    }

    /// Returns true if a dependency that is reported and not skipped is critical.
    pub fn is_critical(&self) -> bool {
        let critical = |record: &DependencyRecord| {
            record.missing_since.is_none() && !record.reported.skipped && record.reported.status == Status::Critical
        };
        self.dependencies.iter().any(|dependency| critical(&dependency.record))
    }

    /// Returns a dependency by its name.
    pub fn get(&self, name: &str) -> Option<&DependencyState> {
        self.dependencies.iter().find(|dependency| dependency.record.reported.name == name)
    }

    /// Returns what the outcome of a poll means for this target: a report with an error may be one of this target or
    /// not.
    pub fn judged(&self, outcome: Outcome) -> Outcome {
        answer::judged(&self.dependencies, outcome)
    }

    /// Keeps the values that the plugin stored.
    pub fn keep_values(&mut self, values: PluginValues, changes: &mut Changes) {
        self.values = values.clone();
        changes.values = Some(values);
    }

    /// Keeps the result of a poll: merges its outcome, and keeps the values that the plugin stored. Returns what the
    /// outcome means for this target, and the changes.
    pub fn keep(
        &mut self,
        outcome: Outcome,
        stored: Option<PluginValues>,
        at: Timestamp,
        aliases: &Aliases,
    ) -> (Outcome, Changes) {
        let outcome = self.judged(outcome);
        let mut changes = self.merge(outcome.clone(), at, aliases);
        if let Some(values) = stored {
            self.keep_values(values, &mut changes);
        }
        (outcome, changes)
    }

    /// Merges an outcome into the known state and returns the changes.
    pub fn merge(&mut self, outcome: Outcome, at: Timestamp, aliases: &Aliases) -> Changes {
        match outcome {
            Outcome::Success(report) => self.merge_report(report, at, aliases),
            Outcome::Failure(failure) => self.merge_failure(failure, at),
            Outcome::Skipped => Changes::default(),
        }
    }

    fn merge_failure(&mut self, failure: Failure, at: Timestamp) -> Changes {
        let failure = PollFailure { category: failure.category, code: failure.code, message: failure.message, at };
        // The message may contain a time or an address and differ each time, so only category and code are compared.
        let same = self.failure.as_ref().is_some_and(|f| (f.category, &f.code) == (failure.category, &failure.code));
        let first_stale = self.stale_since.is_none();
        self.failure = Some(failure.clone());
        self.stale_since = self.stale_since.or(Some(at));
        self.expire(at);
        let mut changes = Changes::default();
        if !same {
            let PollFailure { category, code, message, .. } = failure;
            changes.poll_error = Some(PollErrorEntry::Failed { category, code, message });
        }
        if !same || first_stale {
            changes.target = Some(self.target_record());
        }
        changes
    }

    fn merge_report(&mut self, report: Report, at: Timestamp, aliases: &Aliases) -> Changes {
        let mut changes = Changes::default();
        if self.failure.take().is_some() {
            changes.poll_error = Some(PollErrorEntry::Recovered);
        }
        let was_stale = self.stale_since.take().is_some();
        self.last_report = Some(at);
        if was_stale || changes.poll_error.is_some() || self.warnings != report.warnings {
            self.warnings.clone_from(&report.warnings);
            changes.target = Some(self.target_record());
        }
        self.forget_gone(&report, &mut changes);
        let places = self.places(&report.dependencies);
        self.mark_missing(&places, &report.kept, at, &mut changes);
        Arc::make_mut(&mut self.dependencies).reserve_exact(places.iter().filter(|place| place.is_none()).count());
        for (reported, place) in report.dependencies.into_iter().zip(places) {
            let canonical = aliases.get(&reported.name);
            match place {
                Some(place) => self.merge_known(place, reported, at, canonical, &mut changes),
                None => self.merge_new(reported, at, canonical.cloned(), &mut changes),
            }
        }
        self.forget_surplus(&mut changes);
        self.expire(at);
        changes
    }

    /// Notes which states are older than their validity.
    fn expire(&mut self, at: Timestamp) {
        let is_expired = |DependencyState { record, volatile }: &DependencyState| {
            record.reported.valid_for.is_some_and(|valid| volatile.checked_at.after(valid) <= at)
        };
        if self.dependencies.iter().any(|dependency| dependency.volatile.is_expired != is_expired(dependency)) {
            for dependency in Arc::make_mut(&mut self.dependencies) {
                dependency.volatile.is_expired = is_expired(dependency);
            }
        }
    }

    /// Returns the position of each reported dependency that is known. Most reports have the order of the last one, and
    /// need no map of names.
    fn places(&self, reported: &[model::Dependency]) -> Vec<Option<usize>> {
        let name = |at: usize| self.dependencies.get(at).map(|dependency| dependency.record.reported.name.as_str());
        if reported.iter().enumerate().all(|(at, reported)| name(at) == Some(&reported.name)) {
            return (0..reported.len()).map(Some).collect();
        }
        let known = self.dependencies.iter().map(|dependency| dependency.record.reported.name.as_str());
        let places: HashMap<&str, usize> = known.enumerate().map(|(at, name)| (name, at)).collect();
        reported.iter().map(|reported| places.get(reported.name.as_str()).copied()).collect()
    }

    fn merge_known(
        &mut self,
        place: usize,
        mut reported: model::Dependency,
        at: Timestamp,
        canonical: Option<&String>,
        changes: &mut Changes,
    ) {
        let DependencyState { record, volatile } = &mut Arc::make_mut(&mut self.dependencies)[place];
        if let Some(ms) = take_volatile(volatile, &mut reported, at) {
            let window = measure(&mut volatile.window, &mut self.sketches, (record.slot, at, ms));
            changes.points.extend(window.map(|window| (record.slot, window)));
        }
        let status = (record.reported.status, reported.status);
        let urgent = status.0 != status.1
            || record.reported.skipped != reported.skipped
            || record.missing_since.is_some()
            || record.canonical.as_ref() != canonical;
        let error = error_entry(record.error_state.as_ref(), &reported);
        if !urgent && error.is_none() && record.reported == reported {
            return;
        }
        let mut changed = DependencyRecord {
            reported,
            canonical: canonical.cloned(),
            missing_since: None,
            ..DependencyRecord::clone(record)
        };
        if status.0 != status.1 {
            changed.last_status_change = Some(at);
            let dependency = changed.reported.name.clone();
            changes.transitions.push(Transition { dependency, previous: status.0, current: status.1 });
        }
        if let Some(entry) = &error {
            changed.error_state = entry.error.clone();
        }
        *record = Arc::new(changed);
        if urgent || error.is_some() { &mut changes.urgent } else { &mut changes.details }.push(record.clone());
        changes.errors.extend(error);
    }

    fn merge_new(
        &mut self,
        mut reported: model::Dependency,
        at: Timestamp,
        canonical: Option<String>,
        changes: &mut Changes,
    ) {
        let mut volatile = Volatile::default();
        volatile.window = take_volatile(&mut volatile, &mut reported, at).map(|ms| LatencyPoint::first(at, ms));
        let error = error_entry(None, &reported);
        let record = Arc::new(DependencyRecord {
            slot: self.next_slot,
            canonical,
            error_state: error.as_ref().and_then(|entry| entry.error.clone()),
            first_seen: at,
            last_status_change: None,
            missing_since: None,
            reported,
        });
        self.next_slot += 1;
        changes.urgent.push(record.clone());
        changes.errors.extend(error);
        Arc::make_mut(&mut self.dependencies).push(DependencyState { record, volatile });
    }

    /// Marks the dependencies that are not in a report. `places` are those of its dependencies.
    fn mark_missing(&mut self, places: &[Option<usize>], kept: &[String], at: Timestamp, changes: &mut Changes) {
        let mut is_reported = vec![false; self.dependencies.len()];
        for place in places.iter().flatten() {
            is_reported[*place] = true;
        }
        let kept = Names::new(kept);
        for (DependencyState { record, .. }, is_reported) in
            Arc::make_mut(&mut self.dependencies).iter_mut().zip(is_reported)
        {
            if !is_reported && record.missing_since.is_none() && !kept.contain(&record.reported.name) {
                *record = Arc::new(DependencyRecord { missing_since: Some(at), ..DependencyRecord::clone(record) });
                self.sketches.remove(&record.slot);
                changes.urgent.push(record.clone());
            }
        }
    }

    /// Forgets the dependencies that were removed from the source on purpose.
    fn forget_gone(&mut self, report: &Report, changes: &mut Changes) {
        // Some plugins name what is not checked in each poll.
        let is_one =
            |name: &str, gone: &String| name == gone || (gone.ends_with('/') && name.starts_with(gone.as_str()));
        let is_gone = |name: &str| report.gone.iter().any(|gone| is_one(name, gone));
        let mut names = self.dependencies.iter().map(|dependency| dependency.record.reported.name.as_str());
        if report.gone.len() <= FEW && !names.any(is_gone) {
            return;
        }
        let gone = Names::new(&report.gone);
        let reported: HashSet<&str> = report.dependencies.iter().map(|found| found.name.as_str()).collect();
        let known = self.dependencies.iter().map(|dependency| &dependency.record.reported.name);
        let forgotten = known.filter(|name| gone.contain(name) && !reported.contains(name.as_str()));
        self.forget(forgotten.cloned().collect(), changes);
    }

    fn forget(&mut self, names: HashSet<String>, changes: &mut Changes) {
        if names.is_empty() {
            return;
        }
        for DependencyState { record, .. } in self.dependencies.iter() {
            if names.contains(&record.reported.name) {
                self.sketches.remove(&record.slot);
            }
        }
        Arc::make_mut(&mut self.dependencies).retain(|found| !names.contains(&found.record.reported.name));
        changes.urgent.retain(|record| !names.contains(&record.reported.name));
        changes.forgotten.extend(names);
    }

    /// Forgets one missing dependency, or all of them, because an operator dismissed it. If it is reported again, it
    /// counts as new.
    pub fn dismiss(&mut self, name: Option<&str>) -> Changes {
        let dismissed = |record: &DependencyRecord| {
            record.missing_since.is_some() && name.is_none_or(|name| record.reported.name == name)
        };
        let missing = self.dependencies.iter().filter(|dependency| dismissed(&dependency.record));
        let forgotten: Vec<String> = missing.map(|dependency| dependency.record.reported.name.clone()).collect();
        Arc::make_mut(&mut self.dependencies).retain(|dependency| !dismissed(&dependency.record));
        Changes { forgotten, ..Changes::default() }
    }

    /// Forgets the dependencies missing longest, beyond the limit.
    fn forget_surplus(&mut self, changes: &mut Changes) {
        // Those that were well first: the others may have an alert.
        let urgency =
            |record: &DependencyRecord| if record.reported.skipped { Status::Ok } else { record.reported.status };
        let mut missing: Vec<(Status, Timestamp, String)> = (self.dependencies.iter())
            .map(|dependency| &dependency.record)
            .filter_map(|record| Some((urgency(record), record.missing_since?, record.reported.name.clone())))
            .collect();
        if missing.len() <= MISSING {
            return;
        }
        missing.sort_unstable();
        missing.truncate(missing.len() - MISSING);
        self.forget(missing.into_iter().map(|(.., name)| name).collect(), changes);
    }

    fn target_record(&self) -> TargetRecord {
        let (warnings, failure) = (self.warnings.clone(), self.failure.clone());
        TargetRecord { warnings, failure, stale_since: self.stale_since }
    }
}

/// Names, and prefixes of names that end in a slash.
struct Names<'a>(HashSet<&'a str>);

impl<'a> Names<'a> {
    fn new(names: &'a [String]) -> Self {
        Self(names.iter().map(String::as_str).collect())
    }

    /// Whether a name is listed, or one of its prefixes that end in a slash.
    fn contain(&self, name: &str) -> bool {
        let prefixes = name.match_indices('/').map(|(at, _)| &name[..=at]).take(PREFIX_DEPTH);
        !self.0.is_empty() && prefixes.chain([name]).any(|part| self.0.contains(part))
    }
}

/// Moves the volatile fields out of a report. Returns the latency in milliseconds, if one was measured.
fn take_volatile(volatile: &mut Volatile, reported: &mut model::Dependency, at: Timestamp) -> Option<f64> {
    volatile.checked_at = reported.checked_at.take().unwrap_or(at);
    volatile.latency_ms = reported.latency_ms.take();
    volatile.latency_ms.filter(|ms| *ms > 0.0)
}

/// Adds a measurement to the current window of a dependency. Returns the window that it completes.
fn measure(
    window: &mut Option<LatencyPoint>,
    sketches: &mut HashMap<u32, Sketch>,
    (slot, at, ms): (u32, Timestamp, f64),
) -> Option<LatencyWindow> {
    let Some(current) = window else {
        *window = Some(LatencyPoint::first(at, ms));
        return None;
    };
    let before = *current;
    if let Some(point) = current.add(at, ms) {
        return Some(LatencyWindow { point, sketch: sketches.remove(&slot).unwrap_or_default() });
    }
    // The second measurement begins the sketch; so does the first after a restart.
    let sketch = sketches.entry(slot).or_insert_with(|| {
        let mut first = Sketch::default();
        first.merge(&before, &Sketch::default());
        first
    });
    sketch.add(ms, 1);
    None
}

/// Returns an entry of the error history if the error state changed; `None` for an unknown dependency, whose errors are
/// not known.
fn error_entry(state: Option<&Json>, reported: &model::Dependency) -> Option<ErrorEntry> {
    let entry = |error, message| Some(ErrorEntry { dependency: reported.name.clone(), error, message });
    match reported.status.healthy() {
        None => None,
        Some(true) => state.and_then(|_| entry(None, None)),
        Some(false) => {
            let error = reported.error.clone().unwrap_or_else(|| Json::checked(UNHEALTHY));
            if state == Some(&error) {
                return None;
            }
            let message = reported.error_message.clone().unwrap_or_else(|| UNHEALTHY_MESSAGE.to_owned());
            entry(Some(error), Some(message))
        }
    }
}

#[cfg(test)]
mod tests;
