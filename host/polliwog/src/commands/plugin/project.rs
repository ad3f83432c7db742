//! A plugin's project: where its component and its recordings lie.

use crate::configuration::defaults;
use crate::output::complain;
use crate::plugins::{say_compiling, small_sandbox};
use anyhow::{Context, anyhow, bail};
use catalog::read;
use sandbox::{Backtrace, Plugin, Sandbox};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where a project's component is, for each language's tools; the newest counts.
const PLACES: [&str; 4] = [".", "dist", "target/wasm32-wasip2/release", "target/wasm32-wasip2/debug"];
const RECORDINGS: &str = "recordings";
const GOLDEN: &str = ".report.json";

/// A plugin that was built, and its recordings.
pub(super) struct Project {
    /// The component.
    pub component: PathBuf,
    /// The recordings, by name.
    pub recordings: Vec<PathBuf>,
    /// Its folder, where one was given.
    folder: Option<PathBuf>,
}

impl Project {
    /// The project in a folder, or around a component; a kind's name alone stands for the plugin that comes with this program.
    pub(super) fn find(path: &Path) -> anyhow::Result<Self> {
        if built_in(path).is_some() {
            return Ok(Self { component: path.to_owned(), recordings: Vec::new(), folder: None });
        }
        let found = std::fs::metadata(path).with_context(|| format!("there is no {}", path.display()))?;
        let (component, folder) = if found.is_dir() {
            (newest_component(path)?, Some(path.to_owned()))
        } else {
            // A component may lie deep in the folder where it was built.
            let around = path.ancestors().skip(1).take(4).find(|folder| folder.join(RECORDINGS).is_dir());
            (path.to_owned(), around.map(Path::to_owned))
        };
        let recordings = folder.as_ref().map(|folder| recordings(&folder.join(RECORDINGS))).transpose()?;
        let folder = folder.filter(|_| found.is_dir());
        Ok(Self { component, recordings: recordings.unwrap_or_default(), folder })
    }

    /// Says when a source is newer than what was built of it: the results are those of yesterday's plugin.
    pub(super) fn warn_when_stale(&self) {
        let built = std::fs::metadata(&self.component).and_then(|found| found.modified()).ok();
        let newest = self.folder.as_deref().and_then(newest_source);
        if let (Some(built), Some((changed, source))) = (built, newest)
            && changed > built
        {
            let (component, source) = (self.component.display(), source.display());
            complain(format_args!("{component} is older than {source}: build it again"));
        }
    }

    /// How `poll` is told of it: `--plugin FILE`, or `--kind KIND` where it comes with this program.
    pub(super) fn option(&self) -> &'static str {
        if built_in(&self.component).is_some() { "kind" } else { "plugin" }
    }

    /// Loads the component as a host would.
    pub(super) async fn load(&self) -> anyhow::Result<(Sandbox, Plugin)> {
        let refused = |why: String| anyhow!("{} is refused: {why}", self.component.display());
        let content = content(&self.component).map_err(refused)?;
        let sandbox = usual_sandbox(Backtrace::of(&content))?;
        say_compiling(&sandbox, &content, &self.component);
        let plugin = sandbox.load(&content).await.map_err(|refusal| refused(refusal.message))?;
        Ok((sandbox, plugin))
    }
}

/// A sandbox for one plugin, with the usual data directory: what a host has compiled is not compiled again.
pub(super) fn usual_sandbox(backtrace: Backtrace) -> anyhow::Result<Sandbox> {
    let config = defaults(&Default::default()).map_err(|problems| anyhow!("{}", problems[0]))?;
    small_sandbox(&config.data_dir, backtrace)
}

fn built_in(path: &Path) -> Option<&'static builtin::Builtin> {
    builtin::ALL.iter().find(|plugin| path.as_os_str() == plugin.kind && !path.exists())
}

/// A file's content, or, for a kind's name alone, the plugin that comes with this program.
pub(super) fn content(file: &Path) -> Result<Vec<u8>, String> {
    match built_in(file) {
        Some(plugin) => Ok(plugin.component.to_vec()),
        None => read(file),
    }
}

/// Where a recording's golden report lies.
pub(super) fn golden(recording: &Path) -> PathBuf {
    recording.with_extension(&GOLDEN[1..])
}

fn newest_component(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let elsewhere = std::env::var_os("CARGO_TARGET_DIR").map(|dir| PathBuf::from(dir).join("wasm32-wasip2/release"));
    // A shared target directory holds other projects' components too: this one's has its folder's name.
    let own = folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().replace('-', "_")));
    let elsewhere = elsewhere.zip(own).map(|(dir, own)| dir.join(format!("{own}.wasm")));
    if let Some(component) = elsewhere.filter(|component| component.is_file()) {
        return Ok(component);
    }
    for place in PLACES {
        for entry in std::fs::read_dir(folder.join(place)).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "wasm")
                && let Ok(built) = entry.metadata().and_then(|found| found.modified())
            {
                // `./x.wasm` rather than `././x.wasm`.
                found.push((built, path.components().collect()));
            }
        }
    }
    match found.into_iter().max() {
        Some((_, component)) => Ok(component),
        None => bail!(
            "no component in {} (looked in {}): build it first, as the project's README.md says",
            folder.display(),
            PLACES.join(", ")
        ),
    }
}

/// The source of a project that was changed last.
pub(super) fn newest_source(folder: &Path) -> Option<(SystemTime, PathBuf)> {
    const SOURCES: [&str; 8] = ["rs", "toml", "js", "mjs", "ts", "py", "wit", "json"];
    const OTHERS: [&str; 6] = ["target", "node_modules", ".venv", "types", "__pycache__", RECORDINGS];
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !OTHERS.iter().any(|other| name == *other) && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if kind.is_file()
                && path.extension().is_some_and(|ending| SOURCES.iter().any(|source| ending == *source))
                && !name.to_string_lossy().contains("-lock.")
                && let Ok(changed) = entry.metadata().and_then(|found| found.modified())
                && newest.as_ref().is_none_or(|(latest, _)| changed > *latest)
            {
                newest = Some((changed, path));
            }
        }
    }
    newest
}

fn recordings(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".json") && !name.ends_with(GOLDEN)
        })
        .collect();
    found.sort();
    Ok(found)
}
