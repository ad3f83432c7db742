//! One poll under way: who is asked, what is reported.

use crate::memory::{LONG, remember, remembered};
use crate::rhythm::Rhythm;
use crate::{Api, Grades, Notes, Trouble, Verdict, list, roll};
use polliwog_sdk::{Dependency, Report, Status, Target, cache};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is known of a part stands for so long while it cannot be read; then nobody knows any more. Milliseconds.
const STANDS_MS: u64 = 2 * 60 * 1000;

/// One poll under way.
pub struct Look<S> {
    /// Who is asked.
    pub api: Api,
    /// The target's settings.
    pub settings: S,
    /// What was found so far.
    pub report: Report,
    /// What could not be read so far.
    pub notes: Notes,
    /// What is past its limits.
    pub grades: Grades,
    now: u64,
    /// Parts that could not be read at this look, though they may be back at the next.
    missed: Vec<String>,
    /// Names, and prefixes that end in `/`, of what nobody can look at, each with why.
    lost: Vec<(String, String)>,
    /// Those of them that were looked at in vain, and have a time of their own to be looked at again.
    in_vain: BTreeSet<String>,
    /// What is looked at less often than at every poll.
    pub(crate) rhythm: Rhythm,
    before: Sight,
}

/// A part of a report: the dependency that stands for it as a whole, and the names, or prefixes that end in `/`, of the
/// others in it.
pub type Part<'a> = (&'a str, &'a [&'a str]);

impl<S> Look<S> {
    /// A poll of an API that answers; `dependency` says how it does.
    pub fn new((api, dependency): (Api, Dependency), settings: S, target: &Target) -> Self {
        let report = [dependency].into_iter().collect();
        Self {
            api,
            settings,
            report,
            notes: Notes::default(),
            grades: Grades::known(),
            now: target.now,
            missed: Vec::new(),
            lost: Vec::new(),
            in_vain: BTreeSet::new(),
            rhythm: Rhythm::new(&target.settings),
            before: remembered(SIGHT),
        }
    }

    /// Adds a dependency.
    pub fn add(&mut self, dependency: Dependency) {
        self.report.dependencies.push(dependency);
    }

    /// The time of this poll, in milliseconds since 1970.
    pub fn milliseconds(&self) -> u64 {
        self.now
    }

    /// The time of this poll, in seconds since 1970.
    pub fn seconds(&self) -> f64 {
        self.now as f64 / 1000.0
    }

    /// Nobody can look at those of this name, or name prefix that ends in `/`: what was reported of them before is unknown. To
    /// be said at each poll for as long as that is so; then they are looked at again at once.
    pub fn lose(&mut self, names: impl Into<String>, why: impl Into<String>) {
        self.lost.push((names.into(), why.into()));
    }

    /// The same for what is said only at polls that look at it, and stands between them.
    pub fn lose_at_look(&mut self, name: String, why: String) {
        self.in_vain.insert(name.clone());
        self.lose(name, why);
    }

    /// Those that nobody could look at two polls ago, and somebody could at the last one.
    pub(crate) fn back(&self) -> &[String] {
        &self.before.back
    }

    /// The names with this prefix, which ends in `/`, that were reported before.
    pub fn reported_before(&self, prefix: &str) -> Vec<String> {
        roll::names(prefix)
    }

    /// What was read of a part, or, in the report, why it could not be.
    ///
    /// What is known of the part stands for two minutes when it may be back, and not at all when somebody has to mend it:
    /// then all of the part is unknown. Meanwhile the dependency `api` says that it is not all there. A part that was never read is
    /// unknown at once.
    pub fn part<T>(&mut self, part: Part<'_>, read: Result<T, Trouble>) -> Option<T> {
        let unknown = |look: &Self| look.report.dependencies.iter().any(|dependency| dependency.name == part.0);
        let read = self.detail(part, read);
        if read.is_none() && !unknown(self) {
            self.missed.push(part.0.to_owned());
        }
        read
    }

    /// The same for a part of which something else says that it is not there: a node of what only it knows.
    pub fn detail<T>(&mut self, (name, members): Part<'_>, read: Result<T, Trouble>) -> Option<T> {
        let missed = format!("missed/{name}");
        let trouble = match read {
            Ok(read) => {
                cache::remove(&missed);
                // A cache that is full means that what is known does not stand.
                let _ = cache::set(&known(name), b"", LONG);
                return Some(read);
            }
            Err(trouble) => trouble,
        };
        let since = remembered::<Option<u64>>(&missed).unwrap_or(self.now);
        let mut kept = members.to_vec();
        // A cache that is full means that what is known stands longer.
        remember(&missed, &since, LONG);
        if trouble.permanent || self.now.saturating_sub(since) >= STANDS_MS {
            for member in members {
                let why = format!("it cannot be looked at: {name:?} says why");
                if self.rhythm.looks_at(member) {
                    self.lose_at_look((*member).to_owned(), why);
                } else {
                    self.lose(*member, why);
                }
            }
            self.add(Dependency::unknown(name, trouble.sentence));
            return None;
        }
        if !self.is_known(name) {
            // Others may have been there before the host was started anew.
            self.add(Dependency::unknown(name, trouble.sentence));
        } else {
            self.report.warn(format!("{name}: {}", trouble.sentence));
            kept.push(name);
        }
        kept.into_iter().for_each(|kept| self.report.keep(kept));
        None
    }

    /// Whether a part was read at a poll before this.
    pub fn is_known(&self, name: &str) -> bool {
        cache::get(&known(name)).is_some()
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
        let Self { mut report, notes, lost, in_vain, grades, now, before, .. } = self;
        before.follow(lost.iter().map(|(name, _)| name).filter(|name| !in_vain.contains(*name)));
        notes.into_report(&mut report);
        grades.keep();
        let mut names: BTreeSet<String> = report.dependencies.iter().map(|found| found.name.clone()).collect();
        report.dependencies.extend(roll::unknown(&lost).into_iter().filter(|lost| names.insert(lost.name.clone())));
        roll::remember_all(&report, now);
        for dependency in &mut report.dependencies {
            dependency.parent = dependency.parent.take().filter(|parent| names.contains(parent));
        }
        report
    }
}

const SIGHT: &str = "sight";

/// What could be looked at at the last poll.
#[derive(Default, Deserialize, PartialEq, Serialize)]
struct Sight {
    /// What nobody could look at, at the last poll.
    lost: Vec<String>,
    /// What nobody could before that, and somebody could then.
    back: Vec<String>,
}

impl Sight {
    /// Remembers what is lost now, for the next poll.
    fn follow<'a>(self, lost: impl Iterator<Item = &'a String>) {
        let lost: Vec<String> = lost.cloned().collect();
        let still: BTreeSet<&str> = lost.iter().map(String::as_str).collect();
        let back = self.lost.iter().filter(|name| !still.contains(name.as_str())).cloned().collect();
        let now = Self { lost, back };
        if now != self {
            remember(SIGHT, &now, LONG);
        }
    }
}

fn known(name: &str) -> String {
    format!("known/{name}")
}

/// A dependency with this status, and why, where it is not ok.
pub fn judged(name: impl Into<String>, kind: &str, (status, why): Verdict) -> Dependency {
    Dependency { error_message: why, ..Dependency::new(name, status).with_kind(kind) }
}
