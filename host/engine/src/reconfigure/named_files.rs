//! The files of secrets and certificates that a configuration names, and their states.

use config::{Config, SecretSource, Stamp};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The files that a configuration names: secrets and certificates.
pub struct NamedFiles(BTreeMap<PathBuf, Stamps>);

/// The state of a file when it was applied, and when it was last checked.
#[derive(Clone, Copy)]
struct Stamps {
    applied: Option<Stamp>,
    last: Option<Stamp>,
}

impl NamedFiles {
    /// Records the present state of the files. Call this before they are read.
    pub fn of(config: &Config) -> Self {
        let named = config.targets.iter().chain(&config.channels);
        let files = named.flat_map(|target| target.files().map(Path::to_owned).collect::<Vec<_>>());
        // Targets that are made while the host runs name these.
        let shared = config.secrets.values().filter_map(|secret| match &secret.source {
            SecretSource::File(path) => Some(path.clone()),
            SecretSource::Variable(_) | SecretSource::Simulated(_) => None,
        });
        let stamps = |path: PathBuf| {
            let now = Stamp::of(&path);
            (path, Stamps { applied: now, last: now })
        };
        Self(files.chain(shared).map(stamps).collect())
    }

    /// Checks every file. Returns those that changed and have been stable since the last check; they count as applied.
    pub(super) fn changed(&mut self) -> HashSet<PathBuf> {
        let mut changed = HashSet::new();
        for (path, Stamps { applied, last }) in &mut self.0 {
            let now = Stamp::of(path);
            if now != *applied && now == *last {
                *applied = now;
                changed.insert(path.clone());
            }
            *last = now;
        }
        changed
    }
}
