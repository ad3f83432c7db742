//! A plugin's project: finds its component and its recordings.

use crate::configuration::defaults;
use crate::output::complain;
use crate::plugins::{say_compiling, small_sandbox};
use anyhow::{Context, anyhow, bail};
use catalog::read;
use sandbox::{Backtrace, BuiltIn, Plugin, Role, Sandbox};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The folders where the languages' tools put a component. The newest component is used.
const PLACES: [&str; 4] = [".", "dist", "target/wasm32-wasip2/release", "target/wasm32-wasip2/debug"];
const RECORDINGS: &str = "recordings";
const GOLDEN: &str = ".report.json";

/// A plugin that was built, and its recordings.
pub(super) struct Project {
    /// The path of the component, or a built-in plugin's kind.
    pub component: PathBuf,
    /// The recordings, by name.
    pub recordings: Vec<PathBuf>,
    /// The project's folder; `None` if the path of a component was given.
    folder: Option<PathBuf>,
}

impl Project {
    /// Finds the project of a folder or of a component. A built-in plugin's kind is accepted instead of a path.
    pub(super) fn find(path: &Path) -> anyhow::Result<Self> {
        if built_in(path).is_some() {
            return Ok(Self { component: path.to_owned(), recordings: Vec::new(), folder: None });
        }
        if path.as_os_str() == "email" && !path.exists() {
            bail!("the host itself sends email, without a plugin: use a [[channel]] and `polliwog channel test`");
        }
        let found = std::fs::metadata(path).with_context(|| missing(path))?;
        let (component, folder) = if found.is_dir() {
            (newest_component(path)?, Some(path.to_owned()))
        } else {
            // A component may be several levels below the project's folder.
            let around = path.ancestors().skip(1).take(4).find(|folder| folder.join(RECORDINGS).is_dir());
            (path.to_owned(), around.map(Path::to_owned))
        };
        let recordings = folder.as_ref().map(|folder| recordings(&folder.join(RECORDINGS))).transpose()?;
        let folder = folder.filter(|_| found.is_dir());
        Ok(Self { component, recordings: recordings.unwrap_or_default(), folder })
    }

    /// Warns on stderr if a source file is newer than the component.
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

    /// The name of `poll`'s option for this plugin: `kind` for a built-in one, else `plugin`.
    pub(super) fn option(&self) -> &'static str {
        if built_in(&self.component).is_some() { "kind" } else { "plugin" }
    }

    /// The command that records a call of the plugin, without its URL and file.
    pub(super) fn recorder(&self, plugin: &Plugin) -> String {
        let component = self.component.display();
        match plugin.descriptor().role {
            Role::Poller => format!("poll --{} {component}", self.option()),
            Role::Notifier { .. } => format!("plugin send {component}"),
        }
    }

    /// Loads the component as a host does.
    pub(super) async fn load(&self) -> anyhow::Result<(Sandbox, Plugin)> {
        let refused = |why: String| anyhow!("{} is refused: {why}", self.component.display());
        if let Some(plugin) = built_in(&self.component) {
            let sandbox = usual_sandbox(Backtrace::default())?;
            let plugin =
                sandbox.load_built_in(*plugin, &Arc::default()).await.map_err(|refusal| refused(refusal.message))?;
            return Ok((sandbox, plugin));
        }
        let content = read(&self.component).map_err(refused)?;
        let sandbox = usual_sandbox(Backtrace::of(&content))?;
        say_compiling(&sandbox, &content, &self.component);
        let plugin = sandbox.load(&content).await.map_err(|refusal| refused(refusal.message))?;
        Ok((sandbox, plugin))
    }
}

/// Creates a sandbox for one plugin with the default data directory, so that components compiled by a host are reused.
pub(super) fn usual_sandbox(backtrace: Backtrace) -> anyhow::Result<Sandbox> {
    let config = defaults(&Default::default()).map_err(|problems| anyhow!("{}", problems[0]))?;
    small_sandbox(&config, backtrace)
}

/// Returns the built-in plugin if `path` is its kind and not a file.
pub(super) fn built_in(path: &Path) -> Option<&'static BuiltIn> {
    builtin_code::ALL.iter().find(|plugin| path.as_os_str() == plugin.kind && !path.exists())
}

fn missing(path: &Path) -> String {
    let kinds: Vec<&str> = builtin_code::ALL.iter().map(|plugin| plugin.kind).collect();
    format!("cannot find {}; the built-in plugins are {}", path.display(), kinds.join(", "))
}

/// Returns the path of a recording's golden report.
pub(super) fn golden(recording: &Path) -> PathBuf {
    recording.with_extension(&GOLDEN[1..])
}

fn newest_component(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
    let elsewhere = std::env::var_os("CARGO_TARGET_DIR").map(|dir| PathBuf::from(dir).join("wasm32-wasip2/release"));
    // A shared target directory contains other projects' components too; this project's has the folder's name.
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
                // Normalizes `././x.wasm` to `./x.wasm`.
                found.push((built, path.components().collect()));
            }
        }
    }
    match found.into_iter().max() {
        Some((_, component)) => Ok(component),
        None => bail!(
            "no component in {} (searched {}): build it first, as the project's README.md describes",
            folder.display(),
            PLACES.join(", ")
        ),
    }
}

/// Returns the source file of a project that was changed last, and the time of the change.
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
