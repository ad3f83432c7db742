//! Which plugin serves which kind: the built-in ones, and what was dropped into the directory.

use model::Kind;
use sandbox::{Plugin, Sandbox};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest plugin file, and a byte more to find out that one is larger.
const LARGEST: u64 = 64 << 20;
/// What stands for a file's name where a plugin came with the host.
pub(crate) const BUILT_IN: &str = "built-in";

/// A plugin that serves its kind.
#[derive(Debug)]
pub(crate) struct Served {
    /// The plugin.
    pub plugin: Plugin,
    /// `built-in`, or its file.
    pub source: String,
    /// Polls that it ran.
    pub polls: AtomicU64,
    /// Polls that ended in its own fault.
    pub faults: AtomicU64,
}

/// A file that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The file.
    pub file: String,
    /// Why, and what to do.
    pub reason: String,
}

/// Every plugin that serves, and every file that does not.
#[derive(Debug, Default)]
pub(crate) struct PluginSet {
    served: BTreeMap<Kind, Arc<Served>>,
    refused: Vec<Refused>,
}

impl PluginSet {
    /// Loads the built-in plugins and those in `folder`. A user's file beats the built-in one of its kind; of two files of
    /// one kind neither is taken, because nobody knows which was meant.
    pub(crate) async fn load(sandbox: &Sandbox, folder: &Path) -> Self {
        let mut set = Self::default();
        for builtin in builtin::ALL {
            match sandbox.load(builtin.component).await {
                Ok(plugin) => set.serve(plugin, BUILT_IN.to_owned()),
                Err(refusal) => set.refuse(format!("{BUILT_IN} {}", builtin.kind), refusal.message),
            }
        }
        let mut dropped: BTreeMap<Kind, Vec<(String, Plugin)>> = BTreeMap::new();
        for file in wasm_files(folder) {
            let name = file.display().to_string();
            match read(&file) {
                Ok(bytes) => match sandbox.load(&bytes).await {
                    Ok(plugin) => dropped.entry(plugin.descriptor().kind.clone()).or_default().push((name, plugin)),
                    Err(refusal) => set.refuse(name, refusal.message),
                },
                Err(reason) => set.refuse(name, reason),
            }
        }
        for (kind, mut files) in dropped {
            if files.len() == 1 {
                files.drain(..).for_each(|(name, plugin)| set.serve(plugin, name));
                continue;
            }
            let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            for (name, _) in &files {
                set.refuse(
                    name.clone(),
                    format!("more than one file serves kind {kind} ({}): keep one", names.join(", ")),
                );
            }
        }
        set
    }

    fn serve(&mut self, plugin: Plugin, source: String) {
        let kind = plugin.descriptor().kind.clone();
        if source != BUILT_IN && self.served.contains_key(&kind) {
            tracing::info!("{source} replaces the built-in plugin of kind {kind}");
        }
        let served = Served { plugin, source, polls: AtomicU64::new(0), faults: AtomicU64::new(0) };
        self.served.insert(kind, Arc::new(served));
    }

    fn refuse(&mut self, file: String, reason: String) {
        self.refused.push(Refused { file, reason });
    }

    /// The plugin that serves a kind.
    pub(crate) fn get(&self, kind: &Kind) -> Option<&Arc<Served>> {
        self.served.get(kind)
    }

    /// Every plugin that serves, by kind.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Every file that does not.
    pub(crate) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The same for pages, API and command line.
    pub(crate) fn views(&self) -> Vec<web::PluginView> {
        let served = self.served.values().map(|served| web::PluginView {
            kind: Some(served.plugin.descriptor().kind.clone()),
            version: Some(served.plugin.descriptor().version.clone()),
            source: served.source.clone(),
            refusal: None,
            polls: served.polls.load(Ordering::Relaxed),
            faults: served.faults.load(Ordering::Relaxed),
        });
        let refused = self.refused.iter().map(|refused| web::PluginView {
            kind: None,
            version: None,
            source: refused.file.clone(),
            refusal: Some(refused.reason.clone()),
            polls: 0,
            faults: 0,
        });
        served.chain(refused).collect()
    }
}

fn wasm_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
        .collect();
    files.sort();
    files
}

/// A plugin's bytes, read once: what is judged is what runs.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    // Asked before it is opened: opening a pipe waits for whoever writes to it.
    if !fs::metadata(file).map_err(unreadable)?.is_file() {
        return Err("it is no ordinary file: copy the plugin itself here".to_owned());
    }
    let mut opened = fs::File::open(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    opened.by_ref().take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
