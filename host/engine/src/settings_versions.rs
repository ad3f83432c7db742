//! The versions of the settings that plugins accepted last: `settings-versions.json` in the data directory. With it,
//! settings that an operator wrote for one version of a plugin are known to be of that version when a later one comes.
//!
//! It is not in the database, because settings are checked before the database is opened, and by commands that never
//! open it. Settings of version 1 are not in it: that is the version of settings that are not known.

use crate::target::RuntimeTarget;
use model::{Kind, hex};
use sandbox::SettingsVersion;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file.
const FILE: &str = "settings-versions.json";

/// The versions of settings, by kind and by their digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettingsVersions(BTreeMap<String, BTreeMap<String, u32>>);

impl SettingsVersions {
    /// Reads the file. Nothing is known if it is missing or damaged.
    pub(crate) fn read(data_dir: &Path) -> Self {
        let path = path(data_dir);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::default(),
            Err(error) => return unknown(&path, "cannot be read", &error),
        };
        serde_json::from_str(&text).map(Self).unwrap_or_else(|error| unknown(&path, "is damaged", &error))
    }

    /// The versions of the settings of targets and channels.
    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Arc<RuntimeTarget>>) -> Self {
        let mut versions = Self::default();
        for target in all {
            if let Some(version) = target.settings_version.filter(|version| *version > 1) {
                let of_kind = versions.0.entry(target.config.kind.to_string()).or_default();
                of_kind.insert(digest(&target.config.settings), version);
            }
        }
        versions
    }

    /// The version of settings for which an operator wrote none.
    pub(crate) fn assumed(&self, kind: &Kind, settings: &Value) -> SettingsVersion {
        let known = self.0.get(kind.as_str()).and_then(|of_kind| of_kind.get(&digest(settings)));
        SettingsVersion::Assumed(known.copied().unwrap_or(1))
    }

    /// Writes the file, if it has other versions.
    pub(crate) fn write(&self, data_dir: &Path) {
        if *self == Self::read(data_dir) {
            return;
        }
        let path = path(data_dir);
        let draft = path.with_extension("json.draft");
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(&draft)?;
            file.write_all(serde_json::to_string_pretty(&self.0)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)
        };
        if let Err(error) = write() {
            let path = path.display();
            tracing::warn!(
                "{path} cannot be written ({error}); a later plugin may not know the version of the settings"
            );
        }
    }
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

fn unknown(path: &Path, what: &str, error: &dyn std::fmt::Display) -> SettingsVersions {
    tracing::warn!("{} {what} ({error}); settings without settings_version count as version 1", path.display());
    SettingsVersions::default()
}

fn digest(settings: &Value) -> String {
    hex(&Sha256::digest(settings.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_written_version_is_read_back_and_a_damaged_file_says_nothing() {
        let (folder, kind) = (tempfile::tempdir().unwrap(), Kind::new("gitlab").unwrap());
        let settings = json!({ "branch": "main" });
        let known = SettingsVersions([("gitlab".to_owned(), [(digest(&settings), 3)].into())].into());
        known.write(folder.path());
        let read = SettingsVersions::read(folder.path());
        assert_eq!(read.assumed(&kind, &settings), SettingsVersion::Assumed(3));
        assert_eq!(read.assumed(&kind, &json!({})), SettingsVersion::Assumed(1));
        assert_eq!(read.assumed(&Kind::new("other").unwrap(), &settings), SettingsVersion::Assumed(1));
        fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(SettingsVersions::read(folder.path()), SettingsVersions::default());
        SettingsVersions::default().write(&folder.path().join("missing"));
    }
}
