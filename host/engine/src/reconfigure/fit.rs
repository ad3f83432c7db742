//! Fitting a configuration: the parsed file, changed settings and plugins make a candidate, or problems.

use crate::prepare::{Files, Preparation, Prepared, Targets, prepare, prepare_channels};
use catalog::PluginSet;
use config::{Config, Overrides, Problem, Reading, Written, definition_key, environment, made_by};
use sandbox::Sandbox;
use scheduler::Change;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Checks configurations.
pub struct Validator {
    /// How the file is read.
    pub reading: Reading,
    /// Asks plugins about settings.
    pub sandbox: Arc<Sandbox>,
}

/// The input of [`Validator::fit`].
pub struct Fit<'a> {
    /// The parsed file.
    pub written: Arc<Written>,
    /// Settings that were changed while the host ran.
    pub overrides: Overrides,
    /// The plugins that serve.
    pub plugins: &'a PluginSet,
    /// The targets that run.
    pub before: &'a Targets,
    /// The channels that run.
    pub channels: &'a Targets,
    /// Which files of secrets and certificates are read again.
    pub files: &'a Files,
}

/// A valid configuration and its differences from the running one.
#[derive(Debug)]
pub struct Candidate {
    /// The parsed file.
    pub written: Arc<Written>,
    /// The file with all active settings.
    pub config: Arc<Config>,
    /// Every setting that is kept.
    pub overrides: Overrides,
    /// Settings that are kept and not active, with the reason.
    pub inactive: BTreeMap<String, String>,
    /// The targets, compared with the running ones.
    pub prepared: Prepared,
    /// The channels, compared with the running ones.
    pub channels: Prepared,
}

impl Candidate {
    /// Whether its targets and channels are the running ones, with the same secrets and certificates.
    pub(super) fn is_unchanged(&self) -> bool {
        let is_same = |prepared: &Prepared| {
            let changed = prepared.changed.iter().any(|(_, change)| *change != Some(Change::Nothing));
            !changed && prepared.removed.is_empty()
        };
        is_same(&self.prepared) && is_same(&self.channels)
    }
}

impl Validator {
    /// Creates a candidate. Depends only on its input and on the files that the targets name.
    ///
    /// # Errors
    /// Every problem with its place. Settings that do not fit are not problems: they become inactive.
    pub async fn fit(&self, fit: Fit<'_>) -> Result<Candidate, Vec<Problem>> {
        let Fit { written, overrides, plugins, before, channels, files } = fit;
        let read = |overrides: &Overrides| written.with(overrides, &environment);
        let settings = overrides.iter().filter(|(key, _)| made_by(key).is_none());
        let settings: Overrides = settings.map(|(key, value)| (key.clone(), value.clone())).collect();
        let (mut config, mut inactive) = match read(&settings) {
            Ok(config) => (config, BTreeMap::new()),
            Err(_) => separate(read, &settings)?,
        };
        inactive.extend(config.define(&overrides, &environment));
        let of = Preparation { config: &config, sandbox: &self.sandbox, plugins, before, files };
        let (mut prepared, channels) =
            match (prepare(of).await, prepare_channels(Preparation { before: channels, ..of }).await) {
                (Ok(prepared), Ok(channels)) => (prepared, channels),
                (prepared, channels) => {
                    let problems = [prepared.err(), channels.err()].into_iter().flatten().flatten();
                    return Err(problems.collect());
                }
            };
        let unfit = std::mem::take(&mut prepared.unfit);
        config.targets.retain(|target| !unfit.contains_key(&target.id));
        for (id, why) in unfit {
            config.note_unassigned(&id, &why);
            // A misfit of an assigned target is reported to the operator of the fleet.
            if overrides.contains_key(&definition_key(&id)) {
                inactive.insert(definition_key(&id), why);
            }
        }
        Ok(Candidate { written, config: Arc::new(config), overrides, inactive, prepared, channels })
    }
}

/// The configuration with as many settings as fit, and the reason for each of the others.
fn separate(
    read: impl Fn(&Overrides) -> Result<Config, Vec<Problem>>,
    overrides: &Overrides,
) -> Result<(Config, BTreeMap<String, String>), Vec<Problem>> {
    let mut config = read(&Overrides::new())?;
    // Whether a target is polled fits any file; the others are tried one by one.
    let (mut accepted, mut others): (Overrides, Overrides) =
        overrides.clone().into_iter().partition(|(key, _)| key.ends_with(".enabled"));
    match read(&accepted) {
        Ok(found) => config = found,
        Err(_) => others.append(&mut accepted),
    }
    // One setting may fit only together with another, such as an interval and its bound.
    loop {
        let (before, mut inactive) = (others.len(), BTreeMap::new());
        for (key, value) in std::mem::take(&mut others) {
            accepted.insert(key.clone(), value.clone());
            match read(&accepted) {
                Ok(found) => config = found,
                Err(problems) => {
                    accepted.remove(&key);
                    inactive.insert(key.clone(), first(&problems));
                    others.insert(key, value);
                }
            }
        }
        if others.len() == before || others.is_empty() {
            return Ok((config, inactive));
        }
    }
}

/// The reason why a plugin does not serve. Only the first problems are named, because each of thousands of targets may
/// have one.
pub fn misfit(problems: &[Problem]) -> String {
    format!(
        "it does not fit the configuration: {}; when the configuration fits it, both take effect together",
        first(problems)
    )
}

/// The first few problems and the number of the others.
fn first(problems: &[Problem]) -> String {
    const SHOWN: usize = 5;
    let more = problems.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more problems") } else { String::new() };
    format!("{}{more}", all(&problems[..problems.len().min(SHOWN)]))
}

/// All problems, separated by semicolons.
pub(super) fn all(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
