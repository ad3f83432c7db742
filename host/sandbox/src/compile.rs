//! Compiles plugins in a child process with limits.
//!
//! wasmtime does not guarantee a bound for the cost of compiling, and a plugin in JavaScript or Python needs hundreds
//! of megabytes. So compiling happens in a child: this program, started again. The child limits its resources before it
//! reads the first byte, reads the plugin from stdin, and writes machine code to stdout, which is a file that the
//! parent has opened. The parent maps the result ([`crate::artifacts`]) and never compiles.
//!
//! The child's engine allocates on demand, because a pool does not fit into the limit of the address space. The
//! compiled code still fits the parent's pool, because pooling does not change the machine code.

use crate::artifacts::Artifacts;
use crate::refusal::Refusal;
use machine_code::{Backtrace, BuiltIn, Unpacked};
use model::clean;
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

/// Maximum size of a plugin file in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 64 << 20;
/// Address space of the child in bytes. A Python plugin of 18 MB needs between 256 MiB and 1 GiB.
const MEMORY: u64 = 1 << 30;
/// CPU seconds that the child has for a plugin of any size.
const CPU: u64 = 60;
/// CPU seconds that it has in addition for each started megabyte of the plugin. A JavaScript plugin of 12 MB takes
/// between 20 s and 80 s on servers, and a multiple of that on a single-board computer.
const CPU_PER_MEGABYTE: u64 = 20;
/// CPU seconds after its limit, and SIGXCPU, after which the child gets SIGKILL.
const CPU_GRACE: u64 = 5;
/// Wall-clock limit of the child, as a multiple of its CPU limit. On busy cores it takes a multiple of its CPU time.
const WALL_PER_CPU: u64 = 4;
/// Maximum size of the machine code in bytes. A JavaScript plugin of 12 MB has 36 MB of machine code.
const CODE: u64 = 512 << 20;
/// Maximum number of file descriptors of the child.
const DESCRIPTORS: u64 = 64;
/// Number of threads of the child.
const THREADS: &str = "2";
/// Nice value of the child, so that polls have priority.
const NICE: i32 = 10;
/// Maximum number of bytes that are read from the child's stderr.
const MAX_STDERR_BYTES: u64 = 4096;
/// Environment variable of the child. If set, the machine code keeps source files and lines.
const SOURCE_LINES: &str = "POLLIWOG_COMPILE_SOURCE_LINES";
/// Environment variable of the child. If set, the child keeps its normal priority.
const AT_ONCE: &str = "POLLIWOG_COMPILE_AT_ONCE";
/// Exit code of the child if the plugin is not valid.
const NOT_VALID: u8 = 2;

/// Compiles plugins and stores the results. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: PathBuf,
    arguments: Vec<OsString>,
    artifacts: Arc<Artifacts>,
    backtrace: Backtrace,
    /// Whether the child keeps its normal priority.
    at_once: bool,
    /// Limits the concurrent children.
    turns: Arc<Semaphore>,
    /// A temporary folder. It is removed with the last clone.
    _temporary: Option<Arc<TempDir>>,
}

/// A plugin's machine code, ready to be mapped.
pub(crate) struct Compiled {
    pub path: PathBuf,
    /// The duration of compiling. `None` if the plugin was compiled earlier.
    pub took: Option<Duration>,
}

impl Compiler {
    /// Compiles with `program` and `arguments`. This command must only call [`compile_child`].
    ///
    /// Machine code is stored in `folder` and authenticated with `key`, which must be unique to this installation. The
    /// folder is created if it is missing. Fails if the folder does not belong to this user alone or cannot be used.
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

    /// Like [`Self::new`], with a temporary folder that is removed with the last clone.
    pub fn temporary(command: (impl Into<PathBuf>, &[&str]), key: [u8; 32], children: usize) -> io::Result<Self> {
        let folder = TempDir::with_prefix("polliwog-")?;
        let compiler = Self::new(command, folder.path(), key, children)?;
        Ok(Self { _temporary: Some(Arc::new(folder)), ..compiler })
    }

    /// Sets the contents of trap messages for the engine.
    pub(crate) fn with_backtrace(self, backtrace: Backtrace) -> Self {
        Self { backtrace, ..self }
    }

    /// Compiles at normal priority, for a command whose user waits for the result.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    /// Returns a plugin's machine code. Compiles it if it is not stored.
    pub(crate) async fn compiled(&self, engine: &Engine, bytes: &[u8], digest: [u8; 32]) -> Result<Compiled, Refusal> {
        let name = self.artifacts.name(digest, engine);
        if let Some(path) = self.artifacts.find(&name) {
            return Ok(Compiled { path, took: None });
        }
        let _turn = self.turns.acquire().await;
        // Another task may have compiled the same plugin in the meantime.
        if let Some(path) = self.artifacts.find(&name) {
            return Ok(Compiled { path, took: None });
        }
        let started = Instant::now();
        let draft = self.artifacts.draft().map_err(|error| self.unusable(&error))?;
        self.run(bytes, draft.output().map_err(|error| self.unusable(&error))?).await?;
        let path = draft.keep(&self.artifacts, &name).map_err(|error| self.unusable(&error))?;
        Ok(Compiled { path, took: Some(started.elapsed()) })
    }

    /// Returns the machine code of a built-in plugin. Unpacks it if it is not stored.
    pub(crate) fn unpacked(&self, engine: &Engine, plugin: &BuiltIn, unpacked: &Unpacked) -> Result<Compiled, Refusal> {
        let name = self.artifacts.name(plugin.digest, engine);
        let path = self.artifacts.find(&name).map_or_else(
            || {
                let draft = self.artifacts.draft()?;
                unpacked.write(plugin, draft.output()?)?;
                draft.keep(&self.artifacts, &name)
            },
            Ok,
        );
        Ok(Compiled { path: path.map_err(|error| self.unusable(&error))?, took: None })
    }

    fn unusable(&self, error: &io::Error) -> Refusal {
        let place = self.artifacts.folder().display();
        Refusal::transient("not_compiled", format!("its machine code could not be written to {place}: {error}"))
    }

    /// Returns a plugin's stored machine code. `None` if it is not stored.
    pub(crate) fn kept(&self, engine: &Engine, digest: [u8; 32]) -> Option<PathBuf> {
        self.artifacts.find(&self.artifacts.name(digest, engine))
    }

    /// Returns why this version of the host refused the same bytes. `None` if no refusal is stored.
    pub(crate) fn refused(&self, engine: &Engine, digest: [u8; 32]) -> Option<Refusal> {
        let text = self.artifacts.refusal(&self.artifacts.name(digest, engine))?;
        let (code, message) = text.split_once('\n')?;
        Refusal::from_stored(code, clean(message, 1024))
    }

    /// Stores a refusal if its reason took long to find. If that fails, the next load finds the reason again.
    pub(crate) fn remember(&self, engine: &Engine, digest: [u8; 32], refusal: &Refusal) {
        if refusal.is_stored() {
            let text = format!("{}\n{}", refusal.code, refusal.message);
            let _ = self.artifacts.keep_refusal(&self.artifacts.name(digest, engine), &text);
        }
    }

    async fn run(&self, bytes: &[u8], output: std::fs::File) -> Result<(), Refusal> {
        let failed = |error: io::Error| {
            Refusal::transient(
                "not_compiled",
                format!("{} could not be started for compiling: {error}", self.program.display()),
            )
        };
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            // Each thread needs memory, and glibc reserves 64 MiB of address space for each that allocates in libraries
            // in C. With many cores that would exceed the limit.
            .env("RAYON_NUM_THREADS", THREADS)
            .env("MALLOC_ARENA_MAX", THREADS)
            // By default, the program's allocator reserves the whole address space that the child may have. This is the
            // smallest part that it accepts.
            .env("MIMALLOC_ARENA_RESERVE", "32M")
            .envs(self.at_once.then_some((AT_ONCE, "1")))
            .envs((self.backtrace == Backtrace::SourceLines).then_some((SOURCE_LINES, "1")))
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (mut input, stderr) = (child.stdin.take(), child.stderr.take());
        let ended = async {
            let feed = async {
                if let Some(input) = &mut input {
                    // If the child ends early, its exit status and stderr contain the reason.
                    let _ = input.write_all(bytes).await;
                }
                drop(input.take());
            };
            let mut text = Vec::new();
            let listen = async {
                if let Some(stderr) = stderr {
                    let _ = stderr.take(MAX_STDERR_BYTES).read_to_end(&mut text).await;
                }
            };
            tokio::join!(feed, listen);
            (child.wait().await, text)
        };
        let cpu = cpu_limit(bytes.len());
        let wall = Duration::from_secs(WALL_PER_CPU * cpu);
        match timeout(wall, ended).await {
            Ok((Ok(status), stderr)) => verdict(status, &String::from_utf8_lossy(&stderr), cpu),
            Ok((Err(error), _)) => Err(failed(error)),
            Err(_) => {
                let why = format!(
                    "compiling did not finish within {} s: this machine is busy; Polliwog will try again",
                    wall.as_secs()
                );
                Err(Refusal::transient("not_compiled", why))
            }
        }
    }
}

fn too_much(what: &str) -> Refusal {
    Refusal::stored("compile_limit", format!("compiling it took more than {what}: reduce its size"))
}

/// Returns the CPU seconds that compiling a plugin of `size` bytes may take.
fn cpu_limit(size: usize) -> u64 {
    CPU + CPU_PER_MEGABYTE * size.div_ceil(1_000_000) as u64
}

/// Converts the exit status and stderr of the child, whose limit was `cpu` seconds of CPU time.
fn verdict(status: ExitStatus, stderr: &str, cpu: u64) -> Result<(), Refusal> {
    let reason = clean(stderr.lines().next().unwrap_or_default(), 512);
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) if code == i32::from(NOT_VALID) => {
            Err(Refusal::stored("not_valid", format!("it does not compile: {reason}: build it again or copy it again")))
        }
        (_, Some(signal)) if signal == Signal::XCPU.as_raw() => Err(too_much(&format!("{cpu} s of CPU time"))),
        (_, Some(signal)) if signal == Signal::KILL.as_raw() => Err(Refusal::transient(
            "not_compiled",
            "another process killed the compiler, most likely because this machine has too little memory; Polliwog will \
             try again",
        )),
        (_, Some(signal)) if signal == Signal::ABORT.as_raw() => {
            Err(too_much(&format!("{} MiB of memory", MEMORY >> 20)))
        }
        (_, Some(signal)) if signal == Signal::XFSZ.as_raw() => {
            Err(too_much(&format!("{} MiB of machine code", CODE >> 20)))
        }
        _ => Err(Refusal::transient("not_compiled", format!("compiling failed unexpectedly ({status}): {reason}"))),
    }
}

/// Runs the child process: limits its resources, reads a plugin from stdin, and writes the machine code to stdout.
///
/// It must be the first action of the process, before any runtime or thread starts.
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

/// Why compiling failed in the child.
enum Fault {
    Plugin(wasmtime::Error),
    Host(String),
}

fn compile(input: impl Read, mut output: impl Write) -> Result<(), Fault> {
    let host = |what: &'static str| move |error: io::Error| Fault::Host(format!("{what}: {error}"));
    limit_resources().map_err(host("setting limits"))?;
    let mut bytes = Vec::new();
    input.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(host("reading the plugin"))?;
    limit_cpu(bytes.len()).map_err(host("setting limits"))?;
    let backtrace = std::env::var_os(SOURCE_LINES).map_or(Backtrace::Functions, |_| Backtrace::SourceLines);
    let code = machine_code::compile(&bytes, backtrace).map_err(Fault::Plugin)?;
    output.write_all(&code).and_then(|()| output.flush()).map_err(host("writing the machine code"))
}

fn limit_cpu(size: usize) -> io::Result<()> {
    let limit = cpu_limit(size);
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(limit), maximum: Some(limit + CPU_GRACE) })?)
}

fn limit_resources() -> io::Result<()> {
    // The size of the plugin is not known yet, and a limit can only be lowered.
    limit_cpu(MAX_FILE_BYTES + 1)?;
    let limits = [
        (Resource::As, (MEMORY, MEMORY)),
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
    // The child ends with its parent, even if the parent is killed.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_of_the_child_determines_the_refusal() {
        let ended =
            |raw: i32, stderr: &str| verdict(ExitStatus::from_raw(raw), stderr, 60).map_err(|refusal| refusal.code);
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
        for (raw, stderr, expected) in cases {
            assert_eq!(ended(raw, stderr), expected, "{raw} {stderr}");
        }
    }

    #[test]
    fn a_large_plugin_may_take_longer_to_compile() {
        let cases = [(0, 60), (1, 80), (1_000_000, 80), (1_000_001, 100), (12_300_000, 320), (20_500_000, 480)];
        for (size, seconds) in cases {
            assert_eq!(cpu_limit(size), seconds, "{size}");
        }
    }
}
