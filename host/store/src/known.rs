//! What is known of one target, and what an outcome adds to it. Pure.

use crate::changes::{Changes, ErrorEntry, PollErrorEntry, TargetFacts, Transition};
use crate::history::LatencyPoint;
use model::{Failure, FailureCategory, Json, Outcome, Report, Status, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Missing dependencies that are remembered for each target; beyond it the one missing longest is forgotten.
const MISSING: usize = 1_000;
/// Slashes of a name up to which a prefix may keep it: 25,000 names of nothing but slashes must not hold a lane up.
const KEPT_DEPTH: usize = 16;
/// What is recorded for a critical dependency that brings no error of its own (Depsera's words).
const UNHEALTHY: &str = r#"{"unhealthy":true}"#;
const UNHEALTHY_MESSAGE: &str = "Unhealthy";

/// Other names of dependencies: alias to canonical name.
pub type Aliases = HashMap<String, String>;

/// Since when a dependency is no longer reported.
pub type Missing = Option<Timestamp>;

/// What is known of a target.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its dependencies: those of the last report in its order, then those that are missing.
    pub dependencies: Vec<Dependency>,
    /// The warnings of its last report.
    pub warnings: Vec<String>,
    /// Why its last poll failed; nothing when it did not.
    pub failure: Option<PollFailure>,
    /// Since when what is known is stale.
    pub stale_since: Option<Timestamp>,
    /// When its last report came.
    pub last_report: Option<Timestamp>,
    index: HashMap<String, usize>,
    next_slot: u32,
}

/// Why a poll failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollFailure {
    /// Whose failure.
    pub category: FailureCategory,
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// When it was last seen.
    pub at: Timestamp,
}

/// One dependency: what is written when it changes, and what merely continues.
#[derive(Clone, Debug, PartialEq)]
pub struct Dependency {
    /// What is written when it changes.
    pub facts: Arc<Facts>,
    /// What merely continues.
    pub live: Live,
}

/// What of a dependency is written when it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// A small number, unique for its target: what the journal calls it.
    pub slot: u32,
    /// Its fields as reported last; time and latency are in [`Live`].
    pub reported: model::Dependency,
    /// The name that several targets' dependencies share.
    pub canonical: Option<String>,
    /// The last error that was recorded; nothing after a recovery.
    pub error_state: Option<Json>,
    /// When it was first reported.
    pub first_seen: Timestamp,
    /// When its status last changed.
    pub last_status_change: Option<Timestamp>,
    /// Since when it is no longer reported.
    pub missing_since: Missing,
}

/// What of a dependency merely continues.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Live {
    /// When the source, or else we, last looked.
    pub checked_at: Timestamp,
    /// Milliseconds.
    pub latency_ms: Option<f64>,
    /// The latency window under way.
    pub window: Option<LatencyPoint>,
}

impl Known {
    /// From what was stored.
    pub(crate) fn restored(mut self, mut dependencies: Vec<Dependency>) -> Self {
        dependencies.sort_by_key(|dependency| (dependency.facts.missing_since.is_some(), dependency.facts.slot));
        self.next_slot = dependencies.iter().map(|dependency| dependency.facts.slot + 1).max().unwrap_or(0);
        self.dependencies = dependencies;
        self.reindex();
        self
    }

    /// Whether a dependency that is reported and not skipped is critical.
    pub fn is_critical(&self) -> bool {
        let critical = |facts: &Facts| {
            facts.missing_since.is_none() && !facts.reported.skipped && facts.reported.status == Status::Critical
        };
        self.dependencies.iter().any(|dependency| critical(&dependency.facts))
    }

    /// One dependency by its name.
    pub fn get(&self, name: &str) -> Option<&Dependency> {
        self.index.get(name).map(|&at| &self.dependencies[at])
    }

    /// Compares an outcome with what is known, takes it in, and says what it changed.
    pub fn learn(&mut self, outcome: Outcome, at: Timestamp, aliases: &Aliases) -> Changes {
        match outcome {
            Outcome::Success(report) => self.learn_report(report, at, aliases),
            Outcome::Failure(failure) => self.learn_failure(failure, at),
            Outcome::Skipped => Changes::default(),
        }
    }

    fn learn_failure(&mut self, failure: Failure, at: Timestamp) -> Changes {
        let failure = PollFailure { category: failure.category, code: failure.code, message: failure.message, at };
        // The message may tell a time or an address and differ each time; the code says whether it is another error.
        let same = self.failure.as_ref().is_some_and(|f| (f.category, &f.code) == (failure.category, &failure.code));
        let first_stale = self.stale_since.is_none();
        self.failure = Some(failure.clone());
        self.stale_since = self.stale_since.or(Some(at));
        let mut changes = Changes::default();
        if !same {
            let entry = (failure.category, failure.code, failure.message);
            changes.poll_error = Some(PollErrorEntry { failure: Some(entry) });
        }
        if !same || first_stale {
            changes.target = Some(self.target_facts());
        }
        changes
    }

    fn learn_report(&mut self, report: Report, at: Timestamp, aliases: &Aliases) -> Changes {
        let mut changes = Changes::default();
        if self.failure.take().is_some() {
            changes.poll_error = Some(PollErrorEntry { failure: None });
        }
        let was_stale = self.stale_since.take().is_some();
        self.last_report = Some(at);
        if was_stale || changes.poll_error.is_some() || self.warnings != report.warnings {
            self.warnings = report.warnings;
            changes.target = Some(self.target_facts());
        }
        let names: HashSet<&str> = report.dependencies.iter().map(|dependency| dependency.name.as_str()).collect();
        self.mark_missing(&names, &report.kept, at, &mut changes);
        drop(names);
        for reported in report.dependencies {
            self.learn_dependency(reported, at, aliases, &mut changes);
        }
        self.forget_surplus(&mut changes);
        changes
    }

    fn learn_dependency(
        &mut self,
        mut reported: model::Dependency,
        at: Timestamp,
        aliases: &Aliases,
        changes: &mut Changes,
    ) {
        let canonical = aliases.get(&reported.name);
        let position = self.index.get(&reported.name).copied();
        let Some(position) = position else {
            return self.learn_new(reported, at, canonical.cloned(), changes);
        };
        let Dependency { facts, live } = &mut self.dependencies[position];
        changes.points.extend(live.take(&mut reported, at).map(|point| (facts.slot, point)));
        let status = (facts.reported.status, reported.status);
        let urgent = status.0 != status.1
            || facts.reported.skipped != reported.skipped
            || facts.missing_since.is_some()
            || facts.canonical.as_ref() != canonical;
        let error = error_entry(facts.error_state.as_ref(), &reported);
        if !urgent && error.is_none() && facts.reported == reported {
            return;
        }
        let mut changed = Facts { reported, canonical: canonical.cloned(), missing_since: None, ..Facts::clone(facts) };
        if status.0 != status.1 {
            changed.last_status_change = Some(at);
            let dependency = changed.reported.name.clone();
            changes.transitions.push(Transition { dependency, previous: status.0, current: status.1 });
        }
        if let Some(entry) = &error {
            changed.error_state = entry.error.clone();
        }
        *facts = Arc::new(changed);
        if urgent || error.is_some() { &mut changes.urgent } else { &mut changes.details }.push(facts.clone());
        changes.errors.extend(error);
    }

    fn learn_new(
        &mut self,
        mut reported: model::Dependency,
        at: Timestamp,
        canonical: Option<String>,
        changes: &mut Changes,
    ) {
        let mut live = Live::default();
        live.take(&mut reported, at);
        let error = error_entry(None, &reported);
        let facts = Arc::new(Facts {
            slot: self.next_slot,
            canonical,
            error_state: error.as_ref().and_then(|entry| entry.error.clone()),
            first_seen: at,
            last_status_change: None,
            missing_since: None,
            reported,
        });
        self.next_slot += 1;
        self.index.insert(facts.reported.name.clone(), self.dependencies.len());
        changes.urgent.push(facts.clone());
        changes.errors.extend(error);
        self.dependencies.push(Dependency { facts, live });
    }

    fn mark_missing(&mut self, names: &HashSet<&str>, kept: &[String], at: Timestamp, changes: &mut Changes) {
        let kept: HashSet<&str> = kept.iter().map(String::as_str).collect();
        // A name is kept by itself, or by any of its first beginnings that end in a slash.
        let is_kept = |name: &str| {
            let prefixes = name.match_indices('/').map(|(at, _)| &name[..=at]).take(KEPT_DEPTH);
            !kept.is_empty() && prefixes.chain([name]).any(|part| kept.contains(part))
        };
        for Dependency { facts, .. } in &mut self.dependencies {
            let name = facts.reported.name.as_str();
            if facts.missing_since.is_none() && !names.contains(name) && !is_kept(name) {
                *facts = Arc::new(Facts { missing_since: Some(at), ..Facts::clone(facts) });
                changes.urgent.push(facts.clone());
            }
        }
    }

    /// Forgets a dependency that is missing, or all that are: an operator has seen it. One that is reported again is new.
    pub fn dismiss(&mut self, name: Option<&str>) -> Changes {
        let dismissed =
            |facts: &Facts| facts.missing_since.is_some() && name.is_none_or(|name| facts.reported.name == name);
        let missing = self.dependencies.iter().filter(|dependency| dismissed(&dependency.facts));
        let forgotten: Vec<String> = missing.map(|dependency| dependency.facts.reported.name.clone()).collect();
        self.dependencies.retain(|dependency| !dismissed(&dependency.facts));
        self.reindex();
        Changes { forgotten, ..Changes::default() }
    }

    fn forget_surplus(&mut self, changes: &mut Changes) {
        let mut missing: Vec<(Timestamp, String)> = (self.dependencies.iter())
            .filter_map(|dependency| Some((dependency.facts.missing_since?, dependency.facts.reported.name.clone())))
            .collect();
        if missing.len() <= MISSING {
            return;
        }
        missing.sort_unstable();
        missing.truncate(missing.len() - MISSING);
        let forgotten: HashSet<String> = missing.into_iter().map(|(_, name)| name).collect();
        self.dependencies.retain(|dependency| !forgotten.contains(&dependency.facts.reported.name));
        changes.urgent.retain(|facts| !forgotten.contains(&facts.reported.name));
        changes.forgotten.extend(forgotten);
        self.reindex();
    }

    fn reindex(&mut self) {
        let names = self.dependencies.iter().enumerate();
        self.index = names.map(|(at, dependency)| (dependency.facts.reported.name.clone(), at)).collect();
    }

    fn target_facts(&self) -> TargetFacts {
        let (warnings, failure) = (self.warnings.clone(), self.failure.clone());
        TargetFacts { warnings, failure, stale_since: self.stale_since }
    }
}

impl Live {
    /// Takes what merely continues out of a report; the latency window that it ended.
    fn take(&mut self, reported: &mut model::Dependency, at: Timestamp) -> Option<LatencyPoint> {
        self.checked_at = reported.checked_at.take().unwrap_or(at);
        self.latency_ms = reported.latency_ms.take();
        let ms = self.latency_ms.filter(|ms| *ms > 0.0)?;
        match &mut self.window {
            Some(window) => window.add(at, ms),
            None => {
                self.window = Some(LatencyPoint::first(at, ms));
                None
            }
        }
    }
}

/// An entry of the error history, when the error state changed. An unknown dependency says nothing about errors.
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
