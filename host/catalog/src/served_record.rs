//! Which file served which kind last, for the next start: `serving.json` in the data directory.
//!
//! Not in the database, because plugins are judged before it is opened, and by commands that never open it.

use model::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What served a kind last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastServed {
    /// The file's name in the plugin directory.
    pub file: String,
    /// The SHA-256 of the version that served.
    pub sha256: String,
}

/// Where that is written.
#[derive(Clone, Debug)]
pub(super) struct ServedRecord {
    path: PathBuf,
}

impl ServedRecord {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join("serving.json") }
    }

    /// What served last. A file that is missing or cannot be read knows of nothing.
    pub(super) fn read(&self) -> BTreeMap<Kind, LastServed> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => {
                tracing::warn!(
                    "{} cannot be read ({error}); which plugins served last is not known",
                    self.path.display()
                );
                return BTreeMap::new();
            }
        };
        let entries: BTreeMap<String, LastServed> = serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!("{} is damaged ({error}); which plugins served last is not known", self.path.display());
            BTreeMap::new()
        });
        entries.into_iter().filter_map(|(kind, served)| Some((Kind::new(&kind).ok()?, served))).collect()
    }

    /// Writes it anew, all at once, and says whether it did.
    #[must_use = "what is not on disk must be written again"]
    pub(super) fn write(&self, served: &BTreeMap<Kind, LastServed>) -> bool {
        let text: BTreeMap<&str, &LastServed> = served.iter().map(|(kind, served)| (kind.as_str(), served)).collect();
        let draft = self.path.with_extension("json.draft");
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(&draft)?;
            file.write_all(serde_json::to_string_pretty(&text)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)
        };
        let written = write();
        if let Err(error) = &written {
            tracing::warn!("{} cannot be written ({error}); which plugins serve is forgotten", self.path.display());
        }
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let record = ServedRecord::new(folder.path());
        assert!(record.read().is_empty());
        let served = LastServed { file: "a.wasm".to_owned(), sha256: "00".to_owned() };
        let written = BTreeMap::from([(Kind::new("x").unwrap(), served)]);
        assert!(record.write(&written));
        assert_eq!(record.read(), written);
        fs::write(folder.path().join("serving.json"), "{").unwrap();
        assert!(record.read().is_empty());
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(!record.write(&written));
    }
}
