//! Compiling plugins, in a child process with limits.
//!
//! Compiling is the one thing that wasmtime does not promise to bound, and it costs hundreds of megabytes for a plugin in
//! JavaScript or Python. So it happens in a child: this program, started anew, which limits itself before it reads the
//! first byte, takes the plugin from stdin and writes machine code to stdout, a file that the parent has opened. The
//! parent maps the result ([`crate::artifacts`]) and never compiles anything itself.
//!
//! The child's engine allocates on demand: a pool fails under a limit of the address space. What it compiles fits the
//! parent's pool all the same, because pooling changes no machine code.

use crate::artifacts::Artifacts;
use crate::convert::clean;
use crate::engine::{self, Backtrace};
use crate::load::Refusal;
use rustix::process::{Resource, Rlimit, Signal, nice, setrlimit};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use wasmtime::Engine;

/// The largest plugin file.
pub(crate) const FILE: usize = 64 << 20;
/// Address space of the child. A Python plugin of 18 MB needs between 256 MiB and 1 GiB.
const MEMORY: u64 = 1 << 30;
/// CPU seconds of the child: it is told to end at the first and ended at the second.
const CPU: (u64, u64) = (60, 65);
/// Wall clock of the child. Two cores that are busy otherwise double its CPU time, and more.
const WALL: Duration = Duration::from_secs(240);
/// The longest machine code. A JavaScript plugin of 12 MB has 36 MB of it.
const CODE: u64 = 512 << 20;
/// The child's file descriptors.
const DESCRIPTORS: u64 = 64;
/// Threads of the child.
const THREADS: &str = "2";
/// The child makes way for polls.
const NICE: i32 = 10;
/// What of the child's words is read.
const WORDS: u64 = 4096;
/// Refusals that cost time to find, and hold for the same bytes whenever they are judged.
const REMEMBERED: [&str; 5] = ["compile_limit", "not_valid", "too_large", "bad_descriptor", "describe_failed"];
/// Set in the child's environment when files and lines are to be kept.
const SOURCE_LINES: &str = "POLLIWOG_COMPILE_SOURCE_LINES";
/// Set there when the child is to keep its normal priority.
const AT_ONCE: &str = "POLLIWOG_COMPILE_AT_ONCE";
/// The child's exit code when the plugin is at fault.
const NOT_VALID: u8 = 2;

/// How plugins are compiled, and where what was compiled is kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: PathBuf,
    arguments: Vec<OsString>,
    artifacts: Arc<Artifacts>,
    backtrace: Backtrace,
    /// Whether the child keeps its normal priority.
    at_once: bool,
    /// Children at a time.
    turns: Arc<Semaphore>,
    /// A folder that ends with this.
    _temporary: Option<Arc<TempDir>>,
}

/// A plugin's machine code, ready to be mapped.
pub(crate) struct Compiled {
    pub path: PathBuf,
    /// How long compiling took; nothing when it had been compiled before.
    pub took: Option<Duration>,
}

impl Compiler {
    /// Compiles with `program` and `arguments`, which must do nothing but call [`compile_child`].
    ///
    /// Machine code is kept in `folder`, which is made where it is missing and must belong to this user alone; it is
    /// authenticated with `key`, which must be this installation's own. Fails with what is wrong with the folder.
    pub fn new(
        (program, arguments): (impl Into<PathBuf>, &[&str]),
        folder: &Path,
        key: [u8; 32],
        children: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            artifacts: Arc::new(Artifacts::open(folder, key)?),
            backtrace: Backtrace::default(),
            at_once: false,
            turns: Arc::new(Semaphore::new(children.max(1))),
            _temporary: None,
        })
    }

    /// The same, with a folder that is gone when the last clone is: nothing is kept for the next time.
    pub fn temporary(command: (impl Into<PathBuf>, &[&str]), key: [u8; 32], children: usize) -> io::Result<Self> {
        let folder = TempDir::with_prefix("polliwog-")?;
        let compiler = Self::new(command, folder.path(), key, children)?;
        Ok(Self { _temporary: Some(Arc::new(folder)), ..compiler })
    }

    /// The same, for an engine whose traps tell this.
    pub(crate) fn with_backtrace(self, backtrace: Backtrace) -> Self {
        Self { backtrace, ..self }
    }

    /// Compiles at normal priority, for a command whose user waits for the result.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    /// A plugin's machine code: as it was kept, or compiled now.
    pub(crate) async fn compiled(&self, engine: &Engine, bytes: &[u8], digest: [u8; 32]) -> Result<Compiled, Refusal> {
        let name = self.artifacts.name(digest, engine);
        if let Some(path) = self.artifacts.find(&name) {
            return Ok(Compiled { path, took: None });
        }
        let _turn = self.turns.acquire().await;
        // Somebody else may have compiled the same meanwhile.
        if let Some(path) = self.artifacts.find(&name) {
            return Ok(Compiled { path, took: None });
        }
        let started = Instant::now();
        let unusable = |error: io::Error| {
            let place = self.artifacts.folder().display();
            Refusal::new("not_compiled", format!("it could not be compiled in {place}: {error}"))
        };
        let draft = self.artifacts.draft().map_err(unusable)?;
        self.run(bytes, draft.output().map_err(unusable)?).await?;
        let path = draft.keep(&self.artifacts, &name).map_err(unusable)?;
        Ok(Compiled { path, took: Some(started.elapsed()) })
    }

    /// A plugin's machine code, where it was kept.
    pub(crate) fn kept(&self, engine: &Engine, digest: [u8; 32]) -> Option<PathBuf> {
        self.artifacts.find(&self.artifacts.name(digest, engine))
    }

    /// Why these bytes were refused before, by this version of the host.
    pub(crate) fn refused(&self, engine: &Engine, digest: [u8; 32]) -> Option<Refusal> {
        let text = self.artifacts.refusal(&self.artifacts.name(digest, engine))?;
        let (code, message) = text.split_once('\n')?;
        let code = REMEMBERED.into_iter().find(|known| *known == code)?;
        Some(Refusal::new(code, clean(message, 1024)))
    }

    /// Keeps why a plugin was refused. What cannot be kept is found out again.
    pub(crate) fn remember(&self, engine: &Engine, digest: [u8; 32], refusal: &Refusal) {
        if REMEMBERED.contains(&refusal.code) {
            let text = format!("{}\n{}", refusal.code, refusal.message);
            let _ = self.artifacts.keep_refusal(&self.artifacts.name(digest, engine), &text);
        }
    }

    async fn run(&self, bytes: &[u8], output: std::fs::File) -> Result<(), Refusal> {
        let failed = |error: io::Error| {
            Refusal::new(
                "not_compiled",
                format!("{} could not be started to compile it: {error}", self.program.display()),
            )
        };
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            // Threads reserve address space, each 64 MiB for its memory alone: with many cores that would be all of it.
            .env("RAYON_NUM_THREADS", THREADS)
            .env("MALLOC_ARENA_MAX", THREADS)
            .envs(self.at_once.then_some((AT_ONCE, "1")))
            .envs((self.backtrace == Backtrace::SourceLines).then_some((SOURCE_LINES, "1")))
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (mut input, words) = (child.stdin.take(), child.stderr.take());
        let ended = async {
            let feed = async {
                if let Some(input) = &mut input {
                    // A child that ends early has said why.
                    let _ = input.write_all(bytes).await;
                }
                drop(input.take());
            };
            let mut text = Vec::new();
            let listen = async {
                if let Some(words) = words {
                    let _ = words.take(WORDS).read_to_end(&mut text).await;
                }
            };
            tokio::join!(feed, listen);
            (child.wait().await, text)
        };
        match timeout(WALL, ended).await {
            Ok((Ok(status), words)) => verdict(status, &String::from_utf8_lossy(&words)),
            Ok((Err(error), _)) => Err(failed(error)),
            Err(_) => {
                let why = format!(
                    "compiling it was not done after {} s: this machine is busy; it is tried again",
                    WALL.as_secs()
                );
                Err(Refusal::new("not_compiled", why))
            }
        }
    }
}

fn too_much(what: &str) -> Refusal {
    Refusal::new("compile_limit", format!("compiling it took more than {what}: make it smaller"))
}

/// What the child's end says about the plugin.
fn verdict(status: ExitStatus, words: &str) -> Result<(), Refusal> {
    let words = clean(words.lines().next().unwrap_or_default(), 512);
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) if code == i32::from(NOT_VALID) => {
            Err(Refusal::new("not_valid", format!("it does not compile: {words}: build it anew, or copy it again")))
        }
        (_, Some(signal)) if signal == Signal::XCPU.as_raw() => Err(too_much(&format!("{} s of CPU time", CPU.0))),
        (_, Some(signal)) if signal == Signal::KILL.as_raw() => Err(Refusal::new(
            "not_compiled",
            "compiling it was ended from outside, most likely because this machine has too little memory for it: it is tried \
             again",
        )),
        (_, Some(signal)) if signal == Signal::ABORT.as_raw() => {
            Err(too_much(&format!("{} MiB of memory", MEMORY >> 20)))
        }
        (_, Some(signal)) if signal == Signal::XFSZ.as_raw() => {
            Err(too_much(&format!("{} MiB of machine code", CODE >> 20)))
        }
        _ => Err(Refusal::new("not_compiled", format!("compiling it ended oddly ({status}): {words}"))),
    }
}

/// What the child process does: limits itself, reads a plugin from stdin, writes its machine code to stdout.
///
/// Nothing may have happened in the process before: no runtime, no threads.
pub fn compile_child() -> ExitCode {
    match compile(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fault::Plugin(error)) => {
            eprintln!("{}", format!("{error:#}").lines().collect::<Vec<_>>().join(": "));
            ExitCode::from(NOT_VALID)
        }
        Err(Fault::Host(what)) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

enum Fault {
    Plugin(wasmtime::Error),
    Host(String),
}

fn compile(input: impl Read, mut output: impl Write) -> Result<(), Fault> {
    let host = |what: &'static str| move |error: io::Error| Fault::Host(format!("{what}: {error}"));
    limit_oneself().map_err(host("setting limits"))?;
    let mut bytes = Vec::new();
    input.take(FILE as u64 + 1).read_to_end(&mut bytes).map_err(host("reading the plugin"))?;
    let backtrace = std::env::var_os(SOURCE_LINES).map_or(Backtrace::Functions, |_| Backtrace::SourceLines);
    let engine = Engine::new(&engine::config(None, backtrace)).map_err(|error| Fault::Host(format!("{error:#}")))?;
    let code = engine.precompile_component(&bytes).map_err(Fault::Plugin)?;
    output.write_all(&code).and_then(|()| output.flush()).map_err(host("writing the machine code"))
}

fn limit_oneself() -> io::Result<()> {
    let limits = [
        (Resource::As, (MEMORY, MEMORY)),
        (Resource::Cpu, CPU),
        (Resource::Fsize, (CODE, CODE)),
        (Resource::Core, (0, 0)),
        (Resource::Nofile, (DESCRIPTORS, DESCRIPTORS)),
    ];
    for (resource, (soft, hard)) in limits {
        setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) })?;
    }
    if std::env::var_os(AT_ONCE).is_none() {
        nice(NICE)?;
    }
    // The child ends with its parent, even when that is killed.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childs_end_tells_what_was_too_much() {
        let ended = |raw: i32, words: &str| verdict(ExitStatus::from_raw(raw), words).map_err(|refusal| refusal.code);
        let cases = [
            (0, "", Ok(())),
            (2 << 8, "unexpected end", Err("not_valid")),
            (1 << 8, "setting limits: no", Err("not_compiled")),
            (Signal::XCPU.as_raw(), "", Err("compile_limit")),
            (Signal::KILL.as_raw(), "", Err("not_compiled")),
            (Signal::ABORT.as_raw(), "memory allocation of 9 bytes failed", Err("compile_limit")),
            (Signal::XFSZ.as_raw(), "", Err("compile_limit")),
            (Signal::SEGV.as_raw(), "", Err("not_compiled")),
        ];
        for (raw, words, expected) in cases {
            assert_eq!(ended(raw, words), expected, "{raw} {words}");
        }
    }
}
