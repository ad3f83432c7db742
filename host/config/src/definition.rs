//! Targets and aliases that were made while the host ran. Each target is kept as a setting whose value is its
//! definition as JSON, with the keys of a `[[target]]`; each alias as a setting whose value is the canonical name.
//!
//! Such a target names secrets of `[secrets]` only, which allows each for some kinds and origins. It names no file, and
//! reaches private networks only if `[egress] api_target_cidrs` lists them.

use crate::alerts::stored_silence;
use crate::checked::Config;
use crate::reader::{Notes, Overrides};
use crate::shared_secret::Permitted;
use crate::target_config::TargetConfig;
use crate::targets::target;
use crate::value::{Entry, Node, Value};
use crate::written::{Environment, notes};
use model::{TargetId, TargetSource};
use scheduler::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The first part of the keys of definitions.
const DEFINITION: &str = "definition.";
/// The first part of the keys of aliases.
const ALIAS: &str = "alias.";

/// The first part of the keys of silences.
const SILENCE: &str = "silence.";
/// The first part of the keys of assigned deployments.
const ASSIGNMENT: &str = "assignment.";
/// The first part of the keys of the deployments of a fleet that this host operates.
const DEPLOYMENT: &str = "deployment.";

/// A part of the configuration that is otherwise written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'a> {
    /// The target with this id. The value of the setting is its definition.
    Target(&'a str),
    /// The alias with this name. The value of the setting is the canonical name.
    Alias(&'a str),
    /// The silence with this id. The value of the setting is its definition.
    Silence(&'a str),
    /// The deployment with this name, which the operator of the fleet assigned. The value of the setting is the list of
    /// its targets.
    Assignment(&'a str),
    /// The deployment with this name, for the devices of the fleet that this host operates. The value of the setting is
    /// its definition.
    Deployment(&'a str),
}

/// Returns the key of the setting that holds a target's definition.
pub fn definition_key(id: &TargetId) -> String {
    format!("{DEFINITION}{id}")
}

/// Returns the key of the setting that holds the canonical name of an alias.
pub fn alias_key(name: &str) -> String {
    format!("{ALIAS}{name}")
}

/// Returns the key of the setting that holds a silence.
pub fn silence_key(id: &str) -> String {
    format!("{SILENCE}{id}")
}

/// Returns the key of the setting that holds the targets of an assigned deployment.
pub fn assignment_key(name: &str) -> String {
    format!("{ASSIGNMENT}{name}")
}

/// Returns the key of the setting that holds the definition of a deployment.
pub fn deployment_key(name: &str) -> String {
    format!("{DEPLOYMENT}{name}")
}

/// Returns the part of the configuration that the setting with this key makes; `None` for other settings.
pub fn made_by(key: &str) -> Option<Made<'_>> {
    type Make = fn(&str) -> Made<'_>;
    let all: [(&str, Make); 5] = [
        (DEFINITION, |id| Made::Target(id)),
        (ALIAS, |name| Made::Alias(name)),
        (SILENCE, |id| Made::Silence(id)),
        (ASSIGNMENT, |name| Made::Assignment(name)),
        (DEPLOYMENT, |name| Made::Deployment(name)),
    ];
    all.into_iter().find_map(|(first, make)| key.strip_prefix(first).map(make))
}

impl fmt::Display for Made<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(id) => write!(f, "target {id}"),
            Self::Alias(name) => write!(f, "alias {name}"),
            Self::Silence(id) => write!(f, "silence {id}"),
            Self::Assignment(name) => write!(f, "assignment of deployment {name}"),
            Self::Deployment(name) => write!(f, "deployment {name}"),
        }
    }
}

impl Config {
    /// Adds the targets and aliases that settings make. Returns the problems of those that do not fit, by the keys of
    /// the settings.
    pub fn define(&mut self, overrides: &Overrides, environment: Environment<'_>) -> BTreeMap<String, String> {
        let mut misfits = BTreeMap::new();
        let known: BTreeSet<TargetId> = match overrides.keys().any(|key| made_by(key).is_some()) {
            true => self.targets.iter().map(|target| target.id.clone()).collect(),
            false => return misfits,
        };
        for (key, text) in overrides {
            let id = match made_by(key) {
                Some(Made::Target(id)) => id,
                Some(Made::Alias(name)) if self.aliases.contains_key(name) => {
                    misfits.insert(key.clone(), format!("{} has this alias, which takes precedence", self.file));
                    continue;
                }
                Some(Made::Alias(name)) => {
                    self.aliases.insert(name.to_owned(), text.clone());
                    continue;
                }
                Some(Made::Silence(id)) => {
                    match stored_silence(id, text) {
                        Ok(silence) => self.silences.push(silence),
                        Err(why) => drop(misfits.insert(key.clone(), why)),
                    }
                    continue;
                }
                Some(Made::Assignment(_) | Made::Deployment(_)) | None => continue,
            };
            if TargetId::new(id).is_ok_and(|id| known.contains(&id)) {
                let why = format!("{} defines a target with this id, which takes precedence", self.file);
                misfits.insert(key.clone(), why);
                continue;
            }
            let json = serde_json::from_str(text).map_err(|error| error.to_string());
            let read = json.and_then(|json| self.defined((id, json), TargetSource::Api, overrides, environment));
            match read {
                Ok(target) => self.targets.push(Arc::new(target)),
                Err(why) => drop(misfits.insert(key.clone(), why)),
            }
        }
        // Targets that were made here take precedence over assigned ones.
        self.assign(overrides, environment, &mut misfits);
        misfits
    }

    /// Reads a definition. Fails with all problems.
    pub(crate) fn defined(
        &self,
        (id, json): (&str, serde_json::Value),
        source: TargetSource,
        overrides: &Overrides,
        environment: Environment<'_>,
    ) -> Result<TargetConfig, String> {
        let notes = notes(&self.file, overrides, environment);
        let permitted = Permitted { source, secrets: &self.secrets, networks: &self.api_target_cidrs };
        read(notes, (id, json), &self.scheduler, permitted)
    }
}

/// Reads a definition. Fails with all problems.
pub(crate) fn read(
    notes: Notes<'_>,
    (id, json): (&str, serde_json::Value),
    scheduler: &Settings,
    permitted: Permitted<'_>,
) -> Result<TargetConfig, String> {
    let Value::Table(mut entries) = Value::from_json(json) else {
        return Err("a definition must be an object".to_owned());
    };
    entries.retain(|entry| entry.key != "id");
    let value = Value::Text(id.to_owned());
    entries.push(Entry { key: "id".to_owned(), line: 0, node: Node { line: 0, value } });
    let node = Node { line: 0, value: Value::Table(entries) };
    let target = target(&notes, &node, scheduler, Some(permitted));
    let problems: Vec<String> = notes.problems.into_inner().into_iter().map(|problem| problem.message).collect();
    target.filter(|_| problems.is_empty()).ok_or_else(|| problems.join("; "))
}
