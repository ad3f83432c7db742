//! Targets and aliases that were made while the host ran. Each target is kept as a setting whose value is its
//! definition as JSON, with the keys of a `[[target]]`; each alias as a setting whose value is the canonical name.
//!
//! Such a target names secrets of `[secrets]` only, which allows each for some kinds and origins. It names no file, and
//! reaches private networks only if `[egress] api_target_cidrs` lists them.

use crate::checked::Config;
use crate::reader::Overrides;
use crate::shared_secret::Permitted;
use crate::target_config::TargetConfig;
use crate::targets::target;
use crate::value::{Entry, Node, Value};
use crate::written::{Environment, notes};
use model::TargetId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The first part of the keys of definitions.
const DEFINITION: &str = "definition.";
/// The first part of the keys of aliases.
const ALIAS: &str = "alias.";

/// A part of the configuration that is otherwise written in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'a> {
    /// The target with this id. The value of the setting is its definition.
    Target(&'a str),
    /// The alias with this name. The value of the setting is the canonical name.
    Alias(&'a str),
}

/// Returns the key of the setting that holds a target's definition.
pub fn definition_key(id: &TargetId) -> String {
    format!("{DEFINITION}{id}")
}

/// Returns the key of the setting that holds the canonical name of an alias.
pub fn alias_key(name: &str) -> String {
    format!("{ALIAS}{name}")
}

/// Returns the part of the configuration that the setting with this key makes; `None` for other settings.
pub fn made_by(key: &str) -> Option<Made<'_>> {
    let target = key.strip_prefix(DEFINITION).map(Made::Target);
    target.or_else(|| key.strip_prefix(ALIAS).map(Made::Alias))
}

impl fmt::Display for Made<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(id) => write!(f, "target {id}"),
            Self::Alias(name) => write!(f, "alias {name}"),
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
                None => continue,
            };
            if TargetId::new(id).is_ok_and(|id| known.contains(&id)) {
                let why = format!("{} defines a target with this id, which takes precedence", self.file);
                misfits.insert(key.clone(), why);
                continue;
            }
            match self.defined((id, text), overrides, environment) {
                Ok(target) => self.targets.push(Arc::new(target)),
                Err(why) => drop(misfits.insert(key.clone(), why)),
            }
        }
        misfits
    }

    /// Reads a definition. Fails with all problems.
    fn defined(
        &self,
        (id, text): (&str, &str),
        overrides: &Overrides,
        environment: Environment<'_>,
    ) -> Result<TargetConfig, String> {
        let json: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Value::Table(mut entries) = Value::from_json(json) else {
            return Err("a definition must be an object".to_owned());
        };
        entries.retain(|entry| entry.key != "id");
        let value = Value::Text(id.to_owned());
        entries.push(Entry { key: "id".to_owned(), line: 0, node: Node { line: 0, value } });
        let notes = notes(&self.file, overrides, environment);
        let permitted = Permitted { secrets: &self.secrets, networks: &self.api_target_cidrs };
        let node = Node { line: 0, value: Value::Table(entries) };
        let target = target(&notes, &node, &self.scheduler, Some(permitted));
        let problems: Vec<String> = notes.problems.into_inner().into_iter().map(|problem| problem.message).collect();
        target.filter(|_| problems.is_empty()).ok_or_else(|| problems.join("; "))
    }
}
