//! The state of one poll: the API, the report, and the memory.
//!
//! A part of the report that cannot be read keeps its last state for two minutes. Then it is unknown.

use crate::expiring::LONG;
use crate::memory::{Memory, PluginMemory};
use crate::schedule::{Check, Due, belongs};
use crate::{Answer, Api, Connected, Diagnostics, Error, Hysteresis, Verdict, list};
use polliwog_sdk::{CallError, Dependency, Endpoint, Report, Status};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long the last state of a part is kept while the part cannot be read. Milliseconds.
const STANDS_MS: u64 = 2 * 60 * 1000;

/// The state of one poll.
pub struct PollContext<S, M> {
    /// The API of the origin that answers.
    pub api: Api,
    /// The target's settings.
    pub settings: S,
    /// The report so far.
    pub report: Report,
    /// Fields that could not be read so far.
    pub diagnostics: Diagnostics,
    /// Values beyond a threshold.
    pub hysteresis: Hysteresis,
    /// The results of earlier polls, and what this poll leaves for the next.
    pub memory: Memory<M>,
    /// Parts that could not be read in this poll and keep their last state.
    missed: Vec<String>,
    /// Names, and prefixes that end in `/`, of dependencies that cannot be checked, each with the reason.
    lost: Vec<(String, String)>,
    /// The entries of `lost` whose parts are not checked at every poll. Their next check comes by schedule.
    until_checked: BTreeSet<String>,
    due: Due,
}

/// Maximum number of names that the contract permits in `gone`.
const MOST_GONE: usize = 25_000;
/// The largest difference of two clocks that is allowed, in seconds.
const CLOCK_DIFFERENCE: f64 = 3600.0;

/// A part of a report: the name of the dependency that stands for the whole, and the names, or prefixes that end in
/// `/`, of its other dependencies.
pub type Part<'a> = (&'a str, &'a [&'a str]);

/// Polls a target: restores its memory, connects, and has `read` fill the report from the answers to the first paths.
/// The memory is saved in each case, because a failed connection also changes it.
///
/// # Errors
///
/// The error of `connect`.
pub fn run<S, M: PluginMemory>(
    target: &Endpoint,
    settings: S,
    connect: impl FnOnce(&S, &mut Memory<M>) -> Result<Connected, Error>,
    read: impl FnOnce(&mut PollContext<S, M>, Vec<Answer>),
) -> Result<Report, CallError> {
    let mut memory = Memory::load(target);
    match connect(&settings, &mut memory) {
        Ok(connected) => {
            let (mut context, answers) = PollContext::new(connected, memory, settings);
            read(&mut context, answers);
            Ok(context.finish())
        }
        Err(error) => {
            memory.save();
            Err(error.into())
        }
    }
}

impl<S, M: PluginMemory> PollContext<S, M> {
    /// Starts the poll of an API that answers. Returns the answers to the first paths as well.
    fn new(connected: Connected, mut memory: Memory<M>, settings: S) -> (Self, Vec<Answer>) {
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

    /// Adds a dependency to the report.
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

    /// Returns a verdict if a past event, such as "its newest backup", is in the future: with a clock that is wrong,
    /// its age would look fresh for as long as the clock is ahead.
    pub fn future(&self, at: f64, what: &str) -> Option<Verdict> {
        if at <= self.seconds() + CLOCK_DIFFERENCE {
            return None;
        }
        let when = crate::moment(at).unwrap_or_else(|| "a year after 9999".to_owned());
        let why =
            format!("{what} is of {when}, which is in the future: compare the clocks of the server and of this host");
        Some((Status::Unknown, Some(why)))
    }

    /// Marks earlier dependencies of this name, or of this prefix that ends in `/`, as unknown. Call it at each poll
    /// while they cannot be checked. When the calls stop, they are checked immediately.
    pub fn mark_unknown(&mut self, names: impl Into<String>, why: impl Into<String>) {
        self.lost.push((names.into(), why.into()));
    }

    /// Like [`PollContext::mark_unknown`], for parts that are not checked at every poll; the state persists between
    /// checks.
    pub fn mark_unknown_until_checked(&mut self, name: String, why: String) {
        self.until_checked.insert(name.clone());
        self.mark_unknown(name, why);
    }

    /// Whether a part is due. If so, diagnostics and samples from here to [`PollContext::checked`] belong to it. If
    /// not, those of its last check are reported again.
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

    /// Ends a check. The part is due again after the period.
    pub fn checked(&mut self, part: &str, period: Duration) {
        let samples = self.report.samples.get(self.due.samples_before..).unwrap_or_default();
        let check = Check::new(self.diagnostics.of_check(), samples);
        let now = self.memory.now();
        self.memory.schedule.set(part, check, now, period);
    }

    /// Returns the names of earlier dependencies with this prefix, which ends in `/`.
    pub fn reported_before(&self, prefix: &str) -> Vec<String> {
        self.memory.inventory.names(prefix, &self.memory.sections)
    }

    /// Returns the content of a part, or reports why it could not be read.
    ///
    /// After an error that may pass, the part keeps its last state for two minutes, and the dependency `api` reports
    /// that something is missing. After that, and after a permanent error, the whole part is unknown. A part that was
    /// never read is unknown immediately.
    pub fn part<T>(&mut self, part: Part<'_>, read: Result<T, Error>) -> Option<T> {
        let unknown = |context: &Self| context.report.dependencies.iter().any(|dependency| dependency.name == part.0);
        let read = self.detail(part, read);
        if read.is_none() && !unknown(self) {
            self.missed.push(part.0.to_owned());
        }
        read
    }

    /// Like [`PollContext::part`], for a part whose absence is already reported elsewhere (for example by its node).
    pub fn detail<T>(&mut self, (name, members): Part<'_>, read: Result<T, Error>) -> Option<T> {
        let error = match read {
            Ok(read) => {
                self.was_read(name);
                return Some(read);
            }
            Err(error) => error,
        };
        let mut kept = members.to_vec();
        if self.stands(name, &error) {
            for member in members {
                let why = format!("it cannot be checked: see {name:?}");
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
            // Its members may have been reported before the host restarted.
            self.add(Dependency::unknown(name, error.message));
        } else {
            self.report.warn(format!("{name}: {}", error.message));
            kept.push(name);
        }
        kept.into_iter().for_each(|kept| self.report.keep(kept));
        None
    }

    /// Notes that something could be read.
    pub fn was_read(&mut self, name: &str) {
        self.memory.missed.remove(name);
        self.memory.read.renew(name, (), self.memory.now(), LONG);
    }

    /// Forgets that something could be read: it is reported because it cannot be.
    pub fn forget_read(&mut self, name: &str) {
        self.memory.read.remove(name);
    }

    /// Notes that something could not be read. Returns whether that is permanent, or has been so for two minutes.
    pub fn stands(&mut self, name: &str, error: &Error) -> bool {
        let now = self.memory.now();
        let since = self.memory.missed.get(name, now).copied().unwrap_or(now);
        self.memory.missed.renew(name, since, now, LONG);
        error.permanent || now.saturating_sub(since) >= STANDS_MS
    }

    /// Whether a part was read at an earlier poll.
    pub fn is_known(&self, name: &str) -> bool {
        self.memory.read.get(name, self.memory.now()).is_some()
    }

    /// Adds a warning to the dependency `api`.
    pub fn warn_of_api(&mut self, why: &str) {
        self.doubt_api(Status::Warning, why);
    }

    fn doubt_api(&mut self, status: Status, why: &str) {
        if let Some(api) = self.report.dependencies.iter_mut().find(|dependency| dependency.name == "api") {
            let said = api.error_message.take().map(|said| format!("{said}; ")).unwrap_or_default();
            api.error_message = Some(format!("{said}{why}"));
            api.status = api.status.worse(status);
        }
    }

    /// Returns the report. What the report does not contain is not named: it may be excluded.
    pub fn finish(mut self) -> Report {
        if !self.missed.is_empty() {
            let what = list(&self.missed);
            self.warn_of_api(&format!("some parts could not be read at this poll and keep their last state: {what}"));
        }
        if let Some(why) = self.diagnostics.unread_items().map(str::to_owned) {
            self.doubt_api(Status::Unknown, &why);
        }
        let Self { mut report, diagnostics, lost, until_checked, hysteresis, mut memory, .. } = self;
        diagnostics.into_report(&mut report);
        if !lost.is_empty() {
            let mut unknown = memory.inventory.unknown(&lost, &memory.sections);
            let names: BTreeSet<&str> = report.dependencies.iter().map(|found| found.name.as_str()).collect();
            unknown.retain(|lost| !names.contains(lost.name.as_str()));
            report.dependencies.extend(unknown);
        }
        let in_sight = |name: &&String| !until_checked.contains(*name);
        memory.visibility = memory.visibility.after(lost.iter().map(|(name, _)| name).filter(in_sight));
        memory.crossed = hysteresis.into_crossed();
        // The contract permits no more.
        report.gone.truncate(MOST_GONE);
        let now = memory.now();
        memory.inventory.update(&report, &mut memory.sections, now);
        let dropped = memory.save();
        if !dropped.is_empty() {
            let what = dropped.join(", ");
            report.warn(format!("the memory of 1 MB for this target is full; not remembered: {what}"));
        }
        let mut absent: BTreeSet<&str> = BTreeSet::new();
        for name in report.dependencies.iter().flat_map(|found| &found.runs_on) {
            // Thousands may run on few: `collect` would sort them all.
            absent.insert(name);
        }
        for found in &report.dependencies {
            absent.remove(found.name.as_str());
        }
        let absent: BTreeSet<String> = absent.into_iter().map(str::to_owned).collect();
        for dependency in report.dependencies.iter_mut().filter(|_| !absent.is_empty()) {
            dependency.runs_on.retain(|name| !absent.contains(name));
        }
        report
    }
}

/// A dependency with a status, and the reason if it is not ok.
pub fn evaluated(name: impl Into<String>, kind: &str, (status, why): Verdict) -> Dependency {
    Dependency { error_message: why, ..Dependency::new(name, status).with_kind(kind) }
}
