//! A configuration as written in the file, and with settings that were changed at run time.
//!
//! The text is parsed and checked once. Settings are applied on top of the result; targets that no setting changes keep
//! their `Arc`.

use crate::Problem;
use crate::changed_part::ChangedPart;
use crate::checked::{Config, checked, line, scheduler};
use crate::fleet_section::FleetConfig;
use crate::places::{Places, data_dir};
use crate::reader::{Notes, Overrides, Section};
use crate::target_config::TargetConfig;
use crate::targets::targets;
use crate::value::{Entry, parse, parse_part};
use notify::Route;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Targets and aliases in addition to those of the file.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// The targets.
    pub targets: Vec<TargetConfig>,
    /// Names of dependencies, and their canonical names.
    pub aliases: Vec<(String, String)>,
    /// Channels.
    pub channels: Vec<TargetConfig>,
    /// Routes, after those of the file.
    pub routes: Vec<Route>,
    /// The part of this host in a fleet.
    pub fleet: Option<FleetConfig>,
}

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A configuration that is not valid.
#[derive(Debug)]
pub struct Invalid {
    /// Every problem.
    pub problems: Vec<Problem>,
    /// The parts that could be read; `None` if the text is not TOML.
    pub rest: Option<Box<Config>>,
}

/// A valid configuration from the file and the environment, without changed settings.
#[derive(Clone, Debug)]
pub struct Written {
    config: Config,
    /// The section `[scheduler]`, which settings can change.
    scheduler: Vec<Entry>,
}

impl Written {
    /// Reads the text of a file; an empty text yields the defaults. With `demo`, the default data directory is that of
    /// the demo.
    ///
    /// # Errors
    /// Every problem with its place.
    pub fn read(
        (file, text): (&str, &str),
        (places, demo): (&Places, bool),
        environment: Environment<'_>,
    ) -> Result<Self, Invalid> {
        let overrides = Overrides::new();
        let notes = notes(file, &overrides, environment);
        let document = match parse(text) {
            Ok(document) => document,
            Err((line, why)) => {
                let message = format!("this is not TOML: {}", why.lines().next().unwrap_or_default());
                let place = format!("{file}:{line}");
                return Err(Invalid { problems: vec![Problem { place, message }], rest: None });
            }
        };
        let config = checked(&notes, &document, data_dir(places, demo, environment));
        let config = Config { sources: notes.sources.into_inner(), variables: notes.variables.into_inner(), ..config };
        let mut problems = notes.problems.into_inner();
        if problems.is_empty() {
            let mut scheduler: Vec<Entry> = document.into_iter().filter(|entry| entry.key == "scheduler").collect();
            // The filter works in place and would keep the memory of all targets.
            scheduler.shrink_to_fit();
            return Ok(Self { config, scheduler });
        }
        problems.sort_by_key(|problem| line(&problem.place));
        Err(Invalid { problems, rest: Some(Box::new(config)) })
    }

    /// Reads the text of a file of which this is the earlier version, `before`. Only the targets that changed are
    /// parsed and checked: a large file is read in a fraction of the time. `None` if something else changed, or if
    /// there are problems; then [`Self::read`] reads the text.
    pub(crate) fn reread(
        &self,
        before: &str,
        (file, after): (&str, &str),
        environment: Environment<'_>,
    ) -> Option<Self> {
        let part = ChangedPart::find(before, after)?;
        let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
        let first = lines(&before[..part.before.start]);
        let is_last = part.before.end == before.len();
        let (old, new) = (&before[part.before], &after[part.after]);
        let shift = (lines(old), lines(new));
        // The last line of a text may have no line break.
        let end = if is_last { usize::MAX } else { first + shift.0 };
        let has_other = |entries: &[Entry]| entries.iter().any(|entry| entry.key != "target");
        let entries = parse_part(new, first).ok()?;
        if has_other(&entries) || has_other(&parse_part(old, first).ok()?) {
            return None;
        }
        let moved = |line: usize| if line > end { line - shift.0 + shift.1 } else { line };
        let is_moved = |entry: &Entry| moved(entry.line) != entry.line;
        let channels = &self.config.channels;
        if channels.iter().any(|channel| moved(channel.line) != channel.line) {
            return None;
        }
        if self.scheduler.iter().any(is_moved) || self.config.targets.iter().any(|target| target.line == 0) {
            return None;
        }
        let overrides = Overrides::new();
        let notes = notes(file, &overrides, environment);
        let read = targets(&notes, &entries, &self.config.scheduler);
        let earlier = self.config.targets.iter().filter(|target| target.line <= first);
        let later = self.config.targets.iter().filter(|target| target.line > end);
        let later = later.map(|target| match moved(target.line) == target.line {
            true => target.clone(),
            false => Arc::new(target.moved(moved)),
        });
        let all: Vec<_> = earlier.cloned().chain(read.into_iter().map(Arc::new)).chain(later).collect();
        let ids: HashSet<_> = all.iter().map(|target| &target.id).collect();
        if ids.len() != all.len() || !notes.problems.into_inner().is_empty() {
            return None;
        }
        let config = Config { targets: all, ..self.config.clone() };
        Some(Self { config, scheduler: self.scheduler.clone() })
    }

    /// Returns the configuration without changed settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Permits loopback addresses to targets that are made through the API, unless the file lists networks.
    pub(crate) fn reaching_loopback(mut self) -> Self {
        if self.config.api_target_cidrs.is_empty() {
            let loopback = ["127.0.0.0/8", "::1/128"].into_iter();
            self.config.api_target_cidrs = loopback.filter_map(|network| network.parse().ok()).collect();
        }
        self
    }

    /// Adds targets and aliases that are not in the file. A target or alias of the file with the same id or name takes
    /// precedence.
    ///
    /// # Errors
    /// The problems of targets that do not fit the scheduler's settings.
    pub fn with_extra(mut self, extra: Extra) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        if extra.fleet.is_some() && self.config.fleet.is_some() {
            let place = format!("{}: [fleet]", self.config.file);
            let message = "the demo has a fleet already: remove [fleet], or start without --fleet".to_owned();
            problems.push(Problem { place, message });
        }
        self.config.fleet = self.config.fleet.or(extra.fleet);
        let ids: HashSet<_> = self.config.targets.iter().map(|target| target.id.clone()).collect();
        for (name, canonical) in extra.aliases {
            self.config.aliases.entry(name).or_insert(canonical);
        }
        let has = |channel: &TargetConfig| !self.config.channels.iter().any(|known| known.id == channel.id);
        let channels: Vec<_> = extra.channels.into_iter().filter(has).map(Arc::new).collect();
        self.config.channels.extend(channels);
        self.config.routes.extend(extra.routes);
        for mut target in extra.targets.into_iter().filter(|target| !ids.contains(&target.id)) {
            let found = target.apply(&Overrides::new(), &self.config.scheduler);
            let place = || format!("target {:?}, which is not in the file", target.id);
            problems
                .extend(found.into_iter().map(|(at, message)| Problem { place: at.unwrap_or_else(place), message }));
            self.config.targets.push(Arc::new(target));
        }
        if problems.is_empty() { Ok(self) } else { Err(problems) }
    }

    /// Returns the configuration with these settings.
    ///
    /// # Errors
    /// The problems of settings that do not fit.
    pub fn with(&self, overrides: &Overrides, environment: Environment<'_>) -> Result<Config, Vec<Problem>> {
        let mut config = self.config.clone();
        if overrides.is_empty() {
            return Ok(config);
        }
        let notes = notes(&config.file, overrides, environment);
        let settings = scheduler(&notes, Section::top(&notes, &self.scheduler, "scheduler"));
        let all = settings != config.scheduler;
        let named: HashSet<&str> =
            overrides.keys().filter_map(|key| Some(key.strip_prefix("target.")?.rsplit_once('.')?.0)).collect();
        for target in config.targets.iter_mut().filter(|target| all || named.contains(target.id.as_str())) {
            let mut changed = TargetConfig::clone(target);
            for (place, why) in changed.apply(overrides, &settings) {
                notes.note(place.unwrap_or_else(|| format!("{}:{}", notes.file, target.line)), why);
            }
            if changed != **target {
                *target = Arc::new(changed);
            }
        }
        let problems = notes.problems.into_inner();
        config.sources.extend(notes.sources.into_inner());
        config.scheduler = settings;
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

impl Config {
    /// Reads the text of a file and applies the environment.
    ///
    /// # Errors
    /// Every problem with its place.
    pub fn written(
        document: (&str, &str),
        places: &Places,
        environment: Environment<'_>,
    ) -> Result<Self, Vec<Problem>> {
        Ok(Written::read(document, (places, false), environment).map_err(|invalid| invalid.problems)?.config)
    }
}

pub(crate) fn notes<'a>(file: &str, overrides: &'a Overrides, environment: Environment<'a>) -> Notes<'a> {
    Notes {
        file: file.to_owned(),
        problems: RefCell::default(),
        environment,
        overrides,
        sources: RefCell::default(),
        variables: RefCell::new(BTreeSet::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Lines of which texts are made: valid, with other sections, and invalid.
    const LINES: [&str; 14] = [
        "[[target]]",
        "id = \"a\"\nkind = \"http\"\nurl = \"http://a.example/\"",
        "[[target]]\nid = \"b\"\nkind = \"http\"\nurl = \"http://b.example/\"",
        "[[target]]\nkind = \"http\"\nurl = \"http://c.example/\"\nid = \"c\"",
        "[[target]]\nid = \"d\"\nkind = \"http\"\nurl = \"http://d.example/\"\n[target.settings]\nmethod = \"HEAD\"",
        "[[target]]\nid = \"e\"\nkind = \"http\"\nurl = \"http://e.example/\"\nlabels = { x = \"[[target]]\" }",
        "interval = \"20s\"",
        "interval = \"1s\"",
        "# a comment",
        "",
        "[scheduler]\nbase_interval = \"30s\"",
        "[alias]\none = \"two\"",
        "[[ target ]]\nid = \"f\"\nkind = \"http\"\nurl = \"http://f.example/\"",
        "name = \"\"\"\n[[target]]\n\"\"\"",
    ];

    fn read(text: &str) -> Result<Written, Invalid> {
        Written::read(("p.toml", text), (&Places::default(), false), &|_| None)
    }

    fn texts() -> impl Strategy<Value = Vec<&'static str>> {
        proptest::collection::vec(select(&LINES[..]), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

        #[test]
        fn a_changed_text_is_read_like_a_new_one(
            before in texts(),
            place in 0..12_usize,
            removed in 0..3_usize,
            inserted in proptest::collection::vec(select(&LINES[..]), 0..3),
            ending in select(&["", "\n"][..]),
        ) {
            let mut after = before.clone();
            let place = place.min(after.len());
            after.splice(place..(place + removed).min(after.len()), inserted);
            let (before, after) = (before.join("\n") + ending, after.join("\n") + ending);
            if let Ok(written) = read(&before)
                && let Some(reread) = written.reread(&before, ("p.toml", &after), &|_| None)
            {
                prop_assert_eq!(format!("{:?}", reread), format!("{:?}", read(&after).expect("it was accepted")));
            }
        }
    }

    #[test]
    fn only_the_changed_target_is_read() {
        let target = |id: usize, interval: &str| {
            format!("[[target]]\nid = \"t{id}\"\nkind = \"http\"\nurl = \"http://t/\"\ninterval = \"{interval}\"\n")
        };
        let before: String = (0..5).map(|id| target(id, "20s")).collect();
        let after: String = (0..5).map(|id| target(id, if id == 2 { "30s" } else { "20s" })).collect();
        let written = read(&before).unwrap();
        let reread = written.reread(&before, ("p.toml", &after), &|_| None).expect("only targets changed");
        let same = written.config.targets.iter().zip(&reread.config.targets).map(|(old, new)| Arc::ptr_eq(old, new));
        assert_eq!(same.collect::<Vec<_>>(), [true, true, false, true, true]);
    }
}
