//! A model of the notifier without its rules: which alerts fire after which reports.

use crate::common::{Report, START, VAGUE_AFTER};
use crate::{DEPENDENCIES, REPORTS};
use model::{Status, Subject, TargetId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an alert that is not confirmed waits for a dependency that is no longer reported.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);

/// The facts in the reports about one subject.
#[derive(Clone, Copy, Default)]
pub(crate) struct Told {
    /// Whether an alert fires.
    pub(crate) is_firing: bool,
    /// The reports in a row that contradict it.
    pub(crate) streak: u32,
    /// Since when nothing is known, if no alert fires.
    pub(crate) vague_since: Option<Timestamp>,
    /// Whether a report since the last restart said that nothing is known.
    pub(crate) is_armed: bool,
    /// Whether the alert fires because nothing is known.
    pub(crate) is_vague: bool,
}

/// The state that follows from the reports, recounted without the notifier's rules.
#[derive(Default)]
pub(crate) struct Naive {
    pub(crate) told: BTreeMap<Subject, Told>,
    /// The reports in a row of each target in which something was critical of which no alert fired, and what it was.
    pub(crate) unconfirmed: BTreeMap<TargetId, (u32, BTreeSet<&'static str>)>,
}

impl Naive {
    /// Counts a report that a subject is wrong or not.
    pub(crate) fn count(&mut self, subject: Subject, is_wrong: bool, needed: u32) {
        let told = self.told.entry(subject).or_default();
        (told.vague_since, told.is_armed) = (None, false);
        if is_wrong {
            told.is_vague = false;
        }
        told.streak = if is_wrong == told.is_firing { 0 } else { told.streak + 1 };
        if told.streak >= needed {
            *told = Told { is_firing: !told.is_firing, ..Told::default() };
        }
    }

    /// Nothing is known of a subject: `is_said` if the report says so, and not only leaves it out.
    pub(crate) fn lose(&mut self, subject: Subject, is_said: bool, now: Timestamp) {
        let told = self.told.entry(subject).or_default();
        if !told.is_firing && is_said {
            told.vague_since.get_or_insert(now);
            told.is_armed = true;
        }
    }

    pub(crate) fn report(&mut self, target: &TargetId, report: &Report, now: Timestamp) {
        let itself = Subject::Target(target.clone());
        let held = self.told.get(&itself).copied().unwrap_or_default();
        match report.statuses.is_empty() {
            true if held.is_firing && held.is_vague => self.told.entry(itself).or_default().streak = 0,
            true => {
                if held.is_firing {
                    self.count(itself, false, REPORTS);
                } else {
                    self.lose(itself, true, now);
                }
            }
            false => self.count(itself, false, REPORTS),
        }
        let since_start = now.since(Timestamp::from_millis(START));
        let is_critical = |name: &&str| report.statuses.get(*name) == Some(&Status::Critical);
        let fires = |name: &&str| self.is_firing(&Subject::dependency(target, *name));
        let doubtful: BTreeSet<&str> =
            DEPENDENCIES.into_iter().filter(is_critical).filter(|name| !fires(name)).collect();
        let (mut reports, mut before) = self.unconfirmed.remove(target).unwrap_or_default();
        reports = if doubtful.is_empty() { 0 } else { reports + 1 };
        let in_turns = before.clone();
        let needed = |name: &str| if in_turns.contains(name) && reports >= 2 * REPORTS { 1 } else { REPORTS };
        before = if reports == 0 { BTreeSet::new() } else { before.union(&doubtful).copied().collect() };
        self.unconfirmed.insert(target.clone(), (reports, before));
        for name in DEPENDENCIES {
            let subject = Subject::dependency(target, name);
            match report.statuses.get(name) {
                None => {
                    let is_said = report.missing.iter().any(|missing| missing == name);
                    if let Some(told) = self.told.get_mut(&subject) {
                        // One that was not confirmed is forgotten: reports call it missing since the start.
                        let is_forgotten = !is_said && told.vague_since.is_none() && since_start >= FORGOTTEN;
                        // An alert that fires is not over.
                        if told.is_firing || is_forgotten {
                            told.streak = 0;
                        }
                    }
                    self.lose(subject, is_said, now);
                }
                Some(Status::Unknown) => {
                    if let Some(told) = self.told.get_mut(&subject).filter(|told| told.is_firing) {
                        told.streak = 0;
                    }
                    self.lose(subject, true, now);
                }
                Some(Status::Critical) => self.count(subject, true, needed(name)),
                Some(_) => self.count(subject, false, REPORTS),
            }
        }
        self.pass(now);
    }

    /// Alerts that have been vague for long fire.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        for told in self.told.values_mut().filter(|told| told.is_armed) {
            if told.vague_since.is_some_and(|since| now.since(since) >= VAGUE_AFTER) {
                *told = Told { is_firing: true, is_vague: true, ..Told::default() };
            }
        }
    }

    pub(crate) fn fail(&mut self, target: &TargetId, is_unreachable: bool) {
        let subject = Subject::Target(target.clone());
        let held = self.told.get(&subject).copied().unwrap_or_default();
        if is_unreachable {
            self.count(subject, true, 1);
        } else if held.is_firing {
            self.told.entry(subject).or_default().streak = 0;
        }
    }

    pub(crate) fn is_firing(&self, subject: &Subject) -> bool {
        self.told.get(subject).is_some_and(|told| told.is_firing)
    }

    pub(crate) fn forget(&mut self, target: &TargetId) {
        self.told.retain(|subject, _| subject.target() != Some(target));
        self.unconfirmed.remove(target);
    }
}
