//! Targets that were made while the host ran. Each is kept as a setting whose value is its definition as JSON, with the
//! keys of a `[[target]]`.
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
use std::sync::Arc;

/// The first part of the keys of definitions.
const PREFIX: &str = "definition.";

/// Returns the key of the setting that holds a target's definition.
pub fn definition_key(id: &TargetId) -> String {
    format!("{PREFIX}{id}")
}

/// Returns the id of the target that the setting with this key defines; `None` for other settings.
pub fn defined_by(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)
}

impl Config {
    /// Adds the targets that settings define. Returns the problems of those that do not fit, by the keys of the
    /// settings.
    pub fn define(&mut self, overrides: &Overrides, environment: Environment<'_>) -> BTreeMap<String, String> {
        let mut misfits = BTreeMap::new();
        let known: BTreeSet<TargetId> = match overrides.keys().any(|key| defined_by(key).is_some()) {
            true => self.targets.iter().map(|target| target.id.clone()).collect(),
            false => return misfits,
        };
        for (key, text) in overrides {
            let Some(id) = defined_by(key) else { continue };
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
