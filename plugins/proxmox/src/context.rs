//! One poll under way: who is asked, what is reported.

use crate::memory::{LONG, Memory, PluginMemory};
use crate::schedule::{Check, Due, belongs};
use crate::{Answer, Api, Connected, Diagnostics, Error, Hysteresis, Verdict, list};
use polliwog_sdk::{Dependency, Report, Status};
use std::collections::BTreeSet;
use std::time::Duration;

/// What is known of a part stands for so long while it cannot be read; then nobody knows any more. Milliseconds.
const STANDS_MS: u64 = 2 * 60 * 1000;

/// One poll under way.
pub struct PollContext<S, M> {
    /// Who is asked.
    pub api: Api,
    /// The target's settings.
    pub settings: S,
    /// What was found so far.
    pub report: Report,
    /// What could not be read so far.
    pub diagnostics: Diagnostics,
    /// What is past its limits.
    pub hysteresis: Hysteresis,
    /// What earlier polls found, and what this one leaves for the next.
    pub memory: Memory<M>,
    /// Parts that could not be read at this look, though they may be back at the next.
    missed: Vec<String>,
    /// Names, and prefixes that end in `/`, of what nobody can look at, each with why.
    lost: Vec<(String, String)>,
    /// Those of them that were looked at in vain, and have a time of their own to be looked at again.
    until_checked: BTreeSet<String>,
    due: Due,
}

/// A part of a report: the dependency that stands for it as a whole, and the names, or prefixes that end in `/`, of the
/// others in it.
pub type Part<'a> = (&'a str, &'a [&'a str]);

impl<S, M: PluginMemory> PollContext<S, M> {
    /// A poll of an API that answers, and the answers to the first paths.
    pub fn new(connected: Connected, mut memory: Memory<M>, settings: S) -> (Self, Vec<Answer>) {
        let hysteresis = Hysteresis::new(std::mem::take(&mut memory.crossed), memory.now());
        let context = Self {
            api: connected.api,
            settings,
            report: [connected.dependency].into_iter().collect(),
            diagnostics: Diagnostics::default(),
            hysteresis,
            memory,
            missed: Vec::new(),
            lost: Vec::new(),
            until_checked: BTreeSet::new(),
            due: Due::default(),
        };
        (context, connected.answers)
    }

    /// Adds a dependency.
    pub fn add(&mut self, dependency: Dependency) {
        self.report.dependencies.push(dependency);
    }

    /// The time of this poll, in milliseconds since 1970.
    pub fn milliseconds(&self) -> u64 {
        self.memory.now()
    }

    /// The time of this poll, in seconds since 1970.
    pub fn seconds(&self) -> f64 {
        self.milliseconds() as f64 / 1000.0
    }

    /// Nobody can look at those of this name, or name prefix that ends in `/`: what was reported of them before is unknown. To
    /// be said at each poll for as long as that is so; then they are looked at again at once.
    pub fn mark_unknown(&mut self, names: impl Into<String>, why: impl Into<String>) {
        self.lost.push((names.into(), why.into()));
    }

    /// The same for what is said only at polls that look at it, and stands between them.
    pub fn mark_unknown_until_checked(&mut self, name: String, why: String) {
        self.until_checked.insert(name.clone());
        self.mark_unknown(name, why);
    }

    /// Whether it is time to look at this again. What is noted, and what samples are added, from here to [`PollContext::checked`]
    /// belong to it.
    pub fn is_due(&mut self, part: &str) -> bool {
        let check = self.memory.schedule.valid(part, self.memory.now());
        match check.filter(|_| !self.memory.visibility.back.iter().any(|name| belongs(name, part))) {
            Some(check) => {
                self.report.samples.extend(check.samples());
                check.diagnostics.iter().for_each(|note| self.diagnostics.add(|| note.clone()));
                false
            }
            None => {
                self.due.parts.push(part.to_owned());
                self.diagnostics.begin_check();
                self.due.samples_before = self.report.samples.len();
                true
            }
        }
    }

    /// It was looked at: the next time is after so long.
    pub fn checked(&mut self, part: &str, period: Duration) {
        let samples = self.report.samples.get(self.due.samples_before..).unwrap_or_default();
        let check = Check::new(self.diagnostics.of_check(), samples);
        let now = self.memory.now();
        self.memory.schedule.set(part, check, now, period);
    }

    /// The names with this prefix, which ends in `/`, that were reported before.
    pub fn reported_before(&self, prefix: &str) -> Vec<String> {
        self.memory.inventory.names(prefix)
    }

    /// What was read of a part, or, in the report, why it could not be.
    ///
    /// What is known of the part stands for two minutes when it may be back, and not at all when somebody has to mend it:
    /// then all of the part is unknown. Meanwhile the dependency `api` says that it is not all there. A part that was never read is
    /// unknown at once.
    pub fn part<T>(&mut self, part: Part<'_>, read: Result<T, Error>) -> Option<T> {
        let unknown = |context: &Self| context.report.dependencies.iter().any(|dependency| dependency.name == part.0);
        let read = self.detail(part, read);
        if read.is_none() && !unknown(self) {
            self.missed.push(part.0.to_owned());
        }
        read
    }

    /// The same for a part of which something else says that it is not there: a node of what only it knows.
    pub fn detail<T>(&mut self, (name, members): Part<'_>, read: Result<T, Error>) -> Option<T> {
        let now = self.memory.now();
        let error = match read {
            Ok(read) => {
                self.memory.missed.remove(name);
                self.memory.read.renew(name, (), now, LONG);
                return Some(read);
            }
            Err(error) => error,
        };
        let since = self.memory.missed.get(name, now).copied().unwrap_or(now);
        self.memory.missed.renew(name, since, now, LONG);
        let mut kept = members.to_vec();
        if error.permanent || now.saturating_sub(since) >= STANDS_MS {
            for member in members {
                let why = format!("it cannot be looked at: {name:?} says why");
                if self.due.covers(member) {
                    self.mark_unknown_until_checked((*member).to_owned(), why);
                } else {
                    self.mark_unknown(*member, why);
                }
            }
            self.add(Dependency::unknown(name, error.message));
            return None;
        }
        if !self.is_known(name) {
            // Others may have been there before the host was started anew.
            self.add(Dependency::unknown(name, error.message));
        } else {
            self.report.warn(format!("{name}: {}", error.message));
            kept.push(name);
        }
        kept.into_iter().for_each(|kept| self.report.keep(kept));
        None
    }

    /// Whether a part was read at a poll before this.
    pub fn is_known(&self, name: &str) -> bool {
        self.memory.read.get(name, self.memory.now()).is_some()
    }

    /// Says in the dependency `api` that something is wrong with it although it answers.
    pub fn warn_of_api(&mut self, why: &str) {
        if let Some(api) = self.report.dependencies.iter_mut().find(|dependency| dependency.name == "api") {
            let said = api.error_message.take().map(|said| format!("{said}; ")).unwrap_or_default();
            api.error_message = Some(format!("{said}{why}"));
            api.status = api.status.worse(Status::Warning);
        }
    }

    /// The report. What a dependency runs on is left out where the report does not have it: it may be excluded.
    pub fn finish(mut self) -> Report {
        if !self.missed.is_empty() {
            let what = list(&self.missed);
            self.warn_of_api(&format!(
                "not all of it could be read at this look: {what}; what is known of that stands"
            ));
        }
        let Self { mut report, diagnostics, lost, until_checked, hysteresis, mut memory, .. } = self;
        diagnostics.into_report(&mut report);
        let mut names: BTreeSet<String> = report.dependencies.iter().map(|found| found.name.clone()).collect();
        let unknown = memory.inventory.unknown(&lost).into_iter();
        report.dependencies.extend(unknown.filter(|lost| names.insert(lost.name.clone())));
        let in_sight = |name: &&String| !until_checked.contains(*name);
        memory.visibility = memory.visibility.after(lost.iter().map(|(name, _)| name).filter(in_sight));
        memory.crossed = hysteresis.into_crossed();
        memory.inventory.update(&report);
        let dropped = memory.save();
        if !dropped.is_empty() {
            let what = dropped.join(", ");
            report.warn(format!("the memory of 1 MB for this target is full; not remembered: {what}"));
        }
        for dependency in &mut report.dependencies {
            dependency.parent = dependency.parent.take().filter(|parent| names.contains(parent));
        }
        report
    }
}

/// A dependency with this status, and why, where it is not ok.
pub fn evaluated(name: impl Into<String>, kind: &str, (status, why): Verdict) -> Dependency {
    Dependency { error_message: why, ..Dependency::new(name, status).with_kind(kind) }
}
