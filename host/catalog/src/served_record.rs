//! Records which file served which kind last, for the next start: `serving.json` in the data directory.
//!
//! The record is not in the database, because plugins are checked before the database is opened, and by commands that
//! never open it.

use model::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file that served a kind last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastServed {
    /// The name of the file in the plugin directory.
    pub file: String,
    /// The SHA-256 of the version that served.
    pub sha256: String,
}

/// The file that holds the record.
#[derive(Clone, Debug)]
pub(super) struct ServedRecord {
    path: PathBuf,
}

impl ServedRecord {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join("serving.json") }
    }

    /// Reads the record. It is empty if the file is missing or cannot be read.
    pub(super) fn read(&self) -> BTreeMap<Kind, LastServed> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeMap::new(),
            Err(error) => {
                tracing::warn!(
                    "{} cannot be read ({error}); it is not known which plugins served last",
                    self.path.display()
                );
                return BTreeMap::new();
            }
        };
        let entries: BTreeMap<String, LastServed> = serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!("{} is damaged ({error}); it is not known which plugins served last", self.path.display());
            BTreeMap::new()
        });
        entries.into_iter().filter_map(|(kind, served)| Some((Kind::new(&kind).ok()?, served))).collect()
    }

    /// Replaces the record atomically. Returns true on success.
    #[must_use = "a record that is not on disk must be written again"]
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
            tracing::warn!(
                "{} cannot be written ({error}); the next start does not know which plugins served last",
                self.path.display()
            );
        }
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_record_is_read_back_and_a_damaged_one_is_empty() {
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
