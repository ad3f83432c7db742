//! The configuration as every command reads it: the file that counts, and the demo's targets where they are wanted.

use crate::cli::COMPILE_PLUGIN;
use crate::clock::random_bytes;
use anyhow::{Context, bail};
use config::{Config, Invalid, Overrides, Places, Problem, SecretSource, TargetConfig, TlsConfig, find, misspelt};
use egress::Egress;
use model::{Kind, TargetId};
use sandbox::{Backtrace, Compiler, Sandbox};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest configuration, in bytes.
const CONFIG: u64 = 16 << 20;
/// The demo's targets are polled this often, at most and at least.
const DEMO_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// A configuration's text, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The file's name, for messages.
    pub name: String,
    /// What stands in it.
    pub text: String,
    /// The file; nothing for the demo without one.
    pub path: Option<PathBuf>,
    /// What the file was like before it was read.
    pub stamp: Option<Stamp>,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    length: u64,
    modified: (i64, i64),
    /// When who may read it changed, or anything else of it.
    changed: (i64, i64),
}

impl Stamp {
    /// Of a file as it is now, where there is one.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Some(Self { file: (metadata.dev(), metadata.ino()), length: metadata.len(), modified, changed })
    }
}

impl Document {
    /// Finds the file that counts, and reads it.
    pub(crate) fn find(places: &Places, demo: bool) -> anyhow::Result<Self> {
        match find(places, &environment) {
            Ok(path) => Self::read(path).map_err(|why| anyhow::anyhow!("the configuration: {why}")),
            Err(_) if demo => Ok(Self { name: "the demo".to_owned(), text: String::new(), path: None, stamp: None }),
            Err(looked_at) => {
                let places: Vec<String> = looked_at.iter().map(|path| path.display().to_string()).collect();
                bail!(
                    "there is no configuration ({}): write one, or look round with `polliwog run --demo`",
                    places.join(", ")
                );
            }
        }
    }

    /// Reads a file; in one sentence, why not.
    pub(crate) fn read(path: PathBuf) -> Result<Self, String> {
        let stamp = Stamp::of(&path);
        let text = read_text(&path, CONFIG)?;
        Ok(Self { name: path.display().to_string(), text, path: Some(path), stamp })
    }

    /// What it says, with settings that were changed while the host ran, and with the demo's targets where they are wanted.
    pub(crate) fn config(
        &self,
        places: &Places,
        demo: Option<u16>,
        overrides: &Overrides,
    ) -> Result<Config, Vec<Problem>> {
        let read = Config::read((&self.name, &self.text), (places, demo.is_some()), overrides, &environment);
        let mut config = read.map_err(|invalid| invalid.problems)?;
        let problems = demo.map(|port| add_demo(&mut config, port, overrides)).unwrap_or_default();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }
}

/// A variable that is set to something; compose files often set what they do not mean to nothing.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Variables of ours that are set and set nothing.
pub(crate) fn unknown_variables(config: &Config) -> Vec<Problem> {
    let set: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    misspelt(set.iter().map(String::as_str), &config.variables)
}

/// The configuration as far as it can be read, and everything that is wrong with it.
pub(crate) fn examine(places: &Places) -> anyhow::Result<(Option<Config>, Vec<Problem>)> {
    let document = Document::find(places, false)?;
    let read = Config::read((&document.name, &document.text), (places, false), &Overrides::new(), &environment);
    Ok(match read {
        Ok(config) => (Some(config), Vec::new()),
        Err(Invalid { problems, rest }) => (rest.map(|rest| *rest), problems),
    })
}

/// The configuration as it is written.
pub(crate) fn read(places: &Places) -> anyhow::Result<Result<Config, Vec<Problem>>> {
    Ok(Document::find(places, false)?.config(places, None, &Overrides::new()))
}

/// An operator's own target keeps its id.
fn add_demo(config: &mut Config, port: u16, overrides: &Overrides) -> Vec<Problem> {
    let mut problems = Vec::new();
    for simulated in demo::targets(port) {
        if config.targets.iter().any(|target| target.id.as_str() == simulated.id) {
            continue;
        }
        let mut target = TargetConfig {
            id: TargetId::new(simulated.id).expect("the demo's ids are ids"),
            name: simulated.name.to_owned(),
            kind: Kind::new(simulated.kind).expect("the demo's kinds are kinds"),
            url: simulated.url.parse().expect("the demo's URLs are URLs"),
            also: Vec::new(),
            tls: TlsConfig::default(),
            host_header: None,
            interval: Some(simulated.interval),
            cadence: None,
            min_interval: Some(DEMO_BOUNDS.0),
            max_interval: Some(DEMO_BOUNDS.1),
            timeout: None,
            enabled: true,
            secrets: simulated
                .secrets
                .iter()
                .map(|(name, value)| ((*name).to_owned(), SecretSource::Simulated(value)))
                .collect(),
            short_secrets: BTreeSet::new(),
            labels: BTreeMap::from([("estate".to_owned(), "demo".to_owned())]),
            settings: serde_json::from_str(simulated.settings).expect("the demo's settings are JSON"),
            line: 0,
            setting_lines: Vec::new(),
        };
        let found = target.override_with(overrides, &config.scheduler, &mut config.sources);
        let place = |place: Option<String>| place.unwrap_or_else(|| "the demo".to_owned());
        problems.extend(found.into_iter().map(|(at, message)| Problem { place: place(at), message }));
        config.targets.push(target);
    }
    problems
}

/// What compiles plugins: this program, started anew. What was compiled is kept in the data directory; where that cannot
/// be, it is not kept.
pub(crate) fn compiler(data_dir: &Path) -> anyhow::Result<Compiler> {
    let (command, children) = compile_command()?;
    let kept =
        installation_key(data_dir).and_then(|key| Compiler::new(command, &data_dir.join("compiled"), key, children));
    match kept {
        Ok(compiler) => Ok(compiler),
        Err(error) => {
            tracing::warn!(
                "what is compiled of plugins cannot be kept in {} ({error}): every start compiles them anew",
                data_dir.display()
            );
            let (command, children) = compile_command()?;
            Compiler::temporary(command, random_bytes(), children).context("making a folder to compile plugins in")
        }
    }
}

/// A sandbox for a command that runs one plugin, one poll at a time.
pub(crate) fn small_sandbox(data_dir: &Path, backtrace: Backtrace) -> anyhow::Result<Sandbox> {
    let slots =
        sandbox::Config { instance_slots: 1, lanes: NonZeroUsize::MIN, backtrace, ..sandbox::Config::default() };
    Ok(Sandbox::new(slots, compiler(data_dir)?.at_once(), &Egress::new(egress::Config::default()))?)
}

/// Says why nothing happens for a while, where a plugin has to be compiled first.
pub(crate) fn say_compiling(sandbox: &Sandbox, content: &[u8], file: &Path) {
    if !sandbox.is_judged(content) {
        complain(format_args!(
            "compiling {}: this takes seconds, for JavaScript and Python up to a minute",
            file.display()
        ));
    }
}

/// Plugins that are compiled at a time: each can take 364 MB.
const MOST_COMPILING: usize = 4;

/// This program where there is no /proc: as it was called.
fn by_its_name() -> anyhow::Result<PathBuf> {
    if let Ok(program) = std::env::current_exe() {
        return Ok(program);
    }
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let folders = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let places: Vec<PathBuf> = if called.components().count() > 1 {
        vec![called]
    } else {
        folders.unwrap_or_default().into_iter().map(|folder| folder.join(&called)).collect()
    };
    let found = places.into_iter().find_map(|place| place.canonicalize().ok().filter(|place| place.is_file()));
    found.context("this program cannot find itself, to compile plugins with: mount /proc, or call it by its whole path")
}

/// This program with what makes it compile a plugin, and how many of them run at a time.
fn compile_command() -> anyhow::Result<((PathBuf, &'static [&'static str]), usize)> {
    // On Linux this is this very program, even when its file was replaced or removed meanwhile.
    const OURSELVES: &str = "/proc/self/exe";
    let program = if Path::new(OURSELVES).exists() { PathBuf::from(OURSELVES) } else { by_its_name()? };
    Ok(((program, &[COMPILE_PLUGIN]), std::thread::available_parallelism().map_or(1, usize::from).min(MOST_COMPILING)))
}

/// What authenticates what this installation has compiled; made when it is first needed.
fn installation_key(data_dir: &Path) -> std::io::Result<[u8; 32]> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let path = data_dir.join("installation.key");
    if !path.exists() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
        let unique = u64::from_le_bytes(random_bytes());
        let draft = data_dir.join(format!("installation.key.{unique:016x}"));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&random_bytes::<32>())?;
        file.sync_all()?;
        // Of two that make one at the same time, the first one's counts; where there are no links, the last one's.
        let linked = std::fs::hard_link(&draft, &path);
        if linked.is_err() && !path.exists() {
            std::fs::rename(&draft, &path)?;
        } else {
            std::fs::remove_file(&draft)?;
        }
    }
    let key = std::fs::read(&path)?;
    key.try_into().map_err(|_| std::io::Error::other(format!("{} is no key of 32 bytes: remove it", path.display())))
}

/// `1 problem`, `2 problems`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Prints text for people. A reader may leave when it has read enough; a disk that is full is an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_line(&visible(text, |c| c.escape_unicode().to_string()))
}

/// Prints JSON on one line.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    let escaped = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    print_line(&visible(&value.to_string(), escaped))
}

fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("writing to stdout"),
        _ => Ok(()),
    }
}

/// Writes a line for people to stderr. A stderr that takes nothing must not end what goes on.
pub(crate) fn complain(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{}", visible(&line.to_string(), |c| c.escape_unicode().to_string()));
}

/// Text with what a terminal would obey, or not show, made visible: a plugin, a server or a cluster may have written it.
fn visible(text: &str, escaped: impl Fn(char) -> String) -> String {
    let acts = |c: char| c != '\n' && c != '\t' && (c.is_control() || model::is_invisible(c));
    if !text.contains(acts) {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if acts(c) {
            shown.push_str(&escaped(c));
        } else {
            shown.push(c);
        }
        shown
    })
}

/// A text file of at most `longest` bytes; in one sentence, why not.
pub(crate) fn read_text(file: &std::path::Path, longest: u64) -> Result<String, String> {
    use std::io::Read;
    let name = file.display();
    let why = |error: std::io::Error| match error.kind() {
        // Somebody may have written a secret where its file's name belongs.
        ErrorKind::NotFound if file.to_string_lossy().contains(['!', '=']) => {
            "there is no file of the name that was given: write the path of a file, not what stands in it".to_owned()
        }
        ErrorKind::NotFound => format!("there is no file {name}: check its path"),
        ErrorKind::PermissionDenied => format!("{name} may not be read by this user: change its permissions"),
        ErrorKind::InvalidData => format!("{name} is no UTF-8 text: check that it is the right file"),
        _ => format!("{name} cannot be read ({error})"),
    };
    if !std::fs::metadata(file).map_err(why)?.is_file() {
        return Err(format!("{name} is no ordinary file: give the path of one"));
    }
    let mut text = String::new();
    let mut opened = std::fs::File::open(file).map_err(why)?.take(longest + 1);
    opened.read_to_string(&mut text).map_err(why)?;
    if text.len() as u64 > longest {
        return Err(format!("{name} is longer than {longest} bytes: check that it is the right file"));
    }
    Ok(text)
}
