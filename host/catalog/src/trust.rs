//! Decides which plugin files may take over a kind that has targets.
//!
//! A file in the plugin directory serves the kind that it declares. If another plugin already polls targets of that
//! kind, the new file would get their secrets and rights. Every user who can write to the directory could cause that. A
//! takeover therefore needs the operator's permission: the file name under `[plugins] trust`, or `polliwog plugin
//! accept FILE`, which permits exactly these bytes. The first file of a new kind and a new version of the file that
//! served last need no permission.

use model::Kind;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The maximum number of remembered accepted plugins.
const ACCEPTED: usize = 1000;

/// The operator's permissions.
#[derive(Clone, Debug)]
pub struct Trust {
    /// File names from the configuration.
    names: Vec<String>,
    /// Kinds that have targets.
    in_use: BTreeSet<Kind>,
    accepted: PathBuf,
}

impl Trust {
    /// Creates the permissions from the configuration. Accepted plugins are listed in the data directory.
    pub fn new(names: &[String], in_use: impl IntoIterator<Item = Kind>, data_dir: &Path) -> Self {
        Self {
            names: names.to_vec(),
            in_use: in_use.into_iter().collect(),
            accepted: data_dir.join("accepted-plugins"),
        }
    }

    /// Replaces the kinds that have targets.
    pub fn used_by(&mut self, in_use: impl IntoIterator<Item = Kind>) {
        self.in_use = in_use.into_iter().collect();
    }

    /// Fails with the reason if a file must not take over a kind from `before`.
    pub fn may_take_over(&self, (name, digest): (&str, &str), kind: &Kind, before: Option<&str>) -> Result<(), String> {
        let Some(before) = before.filter(|before| *before != name && self.in_use.contains(kind)) else { return Ok(()) };
        if self.names.iter().any(|trusted| trusted == name) || self.accepted().iter().any(|line| line == digest) {
            return Ok(());
        }
        Err(format!(
            "it would take over kind {kind}, whose targets are polled by {before}, with their secrets: if this is intended, run \
             `polliwog plugin accept {name}`, or add {name:?} to [plugins] trust"
        ))
    }

    /// Accepts the plugin with this SHA-256 from now on.
    pub fn accept(&self, digest: &str) -> std::io::Result<()> {
        let mut all = self.accepted();
        if all.iter().any(|line| line == digest) {
            return Ok(());
        }
        all.push(digest.to_owned());
        let surplus = all.len().saturating_sub(ACCEPTED);
        if let Some(folder) = self.accepted.parent() {
            fs::create_dir_all(folder)?;
        }
        let draft = self.accepted.with_extension("draft");
        let mut file = fs::File::create(&draft)?;
        file.write_all(all[surplus..].join("\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &self.accepted)
    }

    fn accepted(&self) -> Vec<String> {
        fs::read_to_string(&self.accepted).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_with_targets_is_not_taken_over_without_permission() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |name: &str| Kind::new(name).unwrap();
        let trust = Trust::new(&["good.wasm".to_owned()], [kind("http")], folder.path());
        let may =
            |name: &str, of: &str, before: Option<&str>| trust.may_take_over((name, "ab12"), &kind(of), before).is_ok();
        for (name, of, before, expected) in [
            ("new.wasm", "http", Some("built-in"), false),
            ("new.wasm", "http", Some("old.wasm"), false),
            ("new.wasm", "http", None, true),
            ("new.wasm", "http", Some("new.wasm"), true),
            ("new.wasm", "pve", Some("built-in"), true),
            ("good.wasm", "http", Some("built-in"), true),
        ] {
            assert_eq!(may(name, of, before), expected, "{name} {of} {before:?}");
        }
        trust.accept("ab12").unwrap();
        trust.accept("ab12").unwrap();
        assert!(may("new.wasm", "http", Some("built-in")));
        assert!(trust.may_take_over(("new.wasm", "other"), &kind("http"), Some("built-in")).is_err(), "other bytes");
    }
}
