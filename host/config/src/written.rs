//! A configuration as written in the file, and with settings that were changed at run time.
//!
//! The text is parsed and checked once. Settings are applied on top of the result; targets that no setting changes keep
//! their `Arc`.

use crate::Problem;
use crate::checked::{Config, checked, line, scheduler};
use crate::places::{Places, data_dir};
use crate::reader::{Notes, Overrides, Section};
use crate::target_config::TargetConfig;
use crate::value::{Entry, parse};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

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
            let scheduler = document.into_iter().filter(|entry| entry.key == "scheduler").collect();
            return Ok(Self { config, scheduler });
        }
        problems.sort_by_key(|problem| line(&problem.place));
        Err(Invalid { problems, rest: Some(Box::new(config)) })
    }

    /// Returns the configuration without changed settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds targets that are not in the file. A target of the file with the same id takes precedence.
    ///
    /// # Errors
    /// The problems of targets that do not fit the scheduler's settings.
    pub fn with_targets(mut self, targets: impl IntoIterator<Item = TargetConfig>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let ids: HashSet<_> = self.config.targets.iter().map(|target| target.id.clone()).collect();
        for mut target in targets.into_iter().filter(|target| !ids.contains(&target.id)) {
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

fn notes<'a>(file: &str, overrides: &'a Overrides, environment: Environment<'a>) -> Notes<'a> {
    Notes {
        file: file.to_owned(),
        problems: RefCell::default(),
        environment,
        overrides,
        sources: RefCell::default(),
        variables: RefCell::new(BTreeSet::new()),
    }
}
