//! Taking a plugin: what it may import, who it says it is.

use crate::CONTRACT_VERSIONS;
use crate::compile::{Compiled, FILE};
use crate::convert::clean;
use crate::host::v0_1::{self, PluginPre};
use crate::host::{Log, State};
use crate::limits::{Limiter, Limits};
use crate::run::{Call, Sandbox};
use crate::schema::{Schema, SettingsProblem};
use model::{FailureCategory, Kind, Timestamp};
use regex::{Regex, RegexBuilder};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wasmtime::component::Component;
use wasmtime::{Engine, Store};

const TITLE: usize = 256;
const VERSION: usize = 64;
const SECRETS: usize = 32;
/// Bytes of a secret's pattern, and bytes that it may take once it is compiled. Parsing a long one takes memory and time
/// without a limit of its own.
const PATTERN: (usize, usize) = (1 << 10, 1 << 20);
/// Checking settings against a schema, and making a schema ready, take no longer.
const SCHEMA: Duration = Duration::from_secs(5);
/// Problems with settings that are shown one by one; the rest are counted.
const PROBLEMS: usize = 20;
/// What plugins of all three languages import of WASI; it is linked with nothing behind it.
const INERT: [&str; 6] = ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];
const CONTRACT: [&str; 4] = ["cache", "http", "log", "types"];
/// What operators may enter as an interval, and so what a plugin may suggest.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Why a file was not taken: a code for programs, and one sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Stable, snake_case.
    pub code: &'static str,
    /// What is wrong, and the remedy.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Whether it is this machine that could not, just then: the same file may be taken the next time.
    pub fn is_passing(&self) -> bool {
        matches!(self.code, "not_compiled" | "not_described")
    }
}

/// Who a plugin says it is, checked.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The kind it serves.
    pub kind: Kind,
    /// What people call it.
    pub title: String,
    /// Its own version.
    pub version: String,
    /// One sentence.
    pub summary: String,
    /// A JSON Schema.
    pub settings_schema: Value,
    /// The secrets an operator can give.
    pub secrets: Vec<SecretSpec>,
    /// How often a target is polled where nobody says.
    pub default_interval: Duration,
    /// How long a poll may take where nobody says.
    pub default_timeout: Duration,
}

/// A secret that a plugin knows how to use.
#[derive(Clone, Debug)]
pub struct SecretSpec {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Whether nothing works without it.
    pub required: bool,
    /// What the whole value looks like.
    pub pattern: Option<Regex>,
    /// What to say when it does not.
    pub hint: Option<String>,
}

/// A plugin, ready to poll. Cheap to clone.
#[derive(Clone)]
pub struct Plugin(Arc<Inner>);

struct Inner {
    pre: PluginPre<State>,
    descriptor: Descriptor,
    schema: Schema,
    digest: [u8; 32],
    size: Option<usize>,
    imports: Vec<String>,
    compile_time: Option<Duration>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({} {})", self.0.descriptor.kind, self.0.descriptor.version)
    }
}

impl Plugin {
    /// Who it says it is.
    pub fn descriptor(&self) -> &Descriptor {
        &self.0.descriptor
    }

    /// The SHA-256 of its file.
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest
    }

    /// The size of its file in bytes; nothing where the file was gone already.
    pub fn size(&self) -> Option<usize> {
        self.0.size
    }

    /// What it imports, in order.
    pub fn imports(&self) -> &[String] {
        &self.0.imports
    }

    /// How long compiling it took; nothing when it had been compiled before.
    pub fn compile_time(&self) -> Option<Duration> {
        self.0.compile_time
    }

    /// The version of the contract it was built for.
    pub fn contract_version(&self) -> &'static str {
        CONTRACT_VERSIONS[0]
    }

    pub(crate) fn pre(&self) -> &PluginPre<State> {
        &self.0.pre
    }
}

impl Sandbox {
    /// Takes a plugin's file: checks what it imports, compiles it, and asks who it is.
    pub async fn load(&self, bytes: &[u8]) -> Result<Plugin, Refusal> {
        check_format(bytes)?;
        let digest = Sha256::digest(bytes).into();
        // The same bytes are judged the same way: what took a minute to refuse takes none the next time.
        if let Some(refusal) = self.compiler().refused(self.engine(), digest) {
            return Err(refusal);
        }
        let loaded = match self.compiler().compiled(self.engine(), bytes, digest).await {
            Ok(compiled) => self.take(digest, Some(bytes.len()), compiled).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = loaded.as_ref().map_err(Clone::clone).map(drop)
            && !refusal.is_passing()
        {
            self.compiler().remember(self.engine(), digest, &refusal);
        }
        loaded
    }

    /// Whether a file would be taken or refused without compiling it: what it was compiled to, or why it was refused, is
    /// known.
    pub fn is_judged(&self, bytes: &[u8]) -> bool {
        if check_format(bytes).is_err() {
            return true;
        }
        let digest = Sha256::digest(bytes).into();
        self.compiler().refused(self.engine(), digest).is_some()
            || self.compiler().kept(self.engine(), digest).is_some()
    }

    /// Takes a plugin whose file is no longer there, where its machine code was kept.
    pub async fn load_kept(&self, digest: [u8; 32]) -> Option<Plugin> {
        let path = self.compiler().kept(self.engine(), digest)?;
        self.take(digest, None, Compiled { path, took: None }).await.ok()
    }

    async fn take(&self, digest: [u8; 32], size: Option<usize>, compiled: Compiled) -> Result<Plugin, Refusal> {
        let component = map(self.engine(), &compiled.path).map_err(|error| {
            if let Some(error) = error.downcast_ref::<std::io::Error>() {
                return Refusal::new(
                    "not_compiled",
                    format!("its machine code cannot be read ({error}): it is tried again"),
                );
            }
            let why = format!("it needs more memory, tables or instances than a poll may have: {}", first_line(&error));
            Refusal::new("too_large", why)
        })?;
        let compile_time = compiled.took;
        let imports = self.check_imports(&component)?;
        check_resources(&component)?;
        let instance = self.linker().instantiate_pre(&component);
        let pre = instance.and_then(PluginPre::new).map_err(|error| {
            let message =
                format!("it does not fit the contract: {}: build it with the SDK of this version", first_line(&error));
            Refusal::new("contract_mismatch", message)
        })?;
        let described = self.describe(&pre).await?;
        // Its work is bounded, but other tasks of this runtime must not wait for it.
        let checked = tokio::task::spawn_blocking(move || check_descriptor(described));
        let (descriptor, schema) = timeout(SCHEMA, checked).await.map_err(|_| slow())?.map_err(|_| slow())??;
        let inner = Inner { pre, descriptor, schema, digest, size, imports, compile_time };
        Ok(Plugin(Arc::new(inner)))
    }

    /// What is wrong with settings: by their schema first, and where that has nothing to say, by the plugin itself. Fails
    /// where the plugin cannot tell, and says why: it would fail with any settings.
    pub async fn check_settings(&self, plugin: &Plugin, settings: &Value) -> Result<Vec<SettingsProblem>, String> {
        let (inner, held) = (plugin.0.clone(), settings.clone());
        let check = move || inner.schema.problems(&inner.descriptor.settings_schema, &held);
        let checked = timeout(SCHEMA, tokio::task::spawn_blocking(check)).await;
        let Ok(Ok(problems)) = checked else {
            return Err("its schema could not check them in time: make schema or settings simpler".to_owned());
        };
        if !problems.is_empty() {
            return Ok(problems);
        }
        let (text, pre) = (settings.to_string(), plugin.pre().clone());
        let enter = move |mut store: Store<State>| async move {
            let result = match pre.instantiate_async(&mut store).await {
                Ok(instance) => instance.polliwog_poller_poller().call_check_settings(&mut store, &text).await,
                Err(error) => Err(error),
            };
            (result, store)
        };
        match self.call(Call::pure(plugin.descriptor().kind.as_str(), self.slot().await), enter).await.result {
            Ok(problems) => {
                let more = problems.len().saturating_sub(PROBLEMS);
                let shown = problems.iter().take(PROBLEMS).map(|problem| clean(problem, TITLE * 4));
                let all = shown.chain((more > 0).then(|| format!("{more} more problems")));
                Ok(all.map(SettingsProblem::said).collect())
            }
            Err(fault) => Err(format!("the plugin could not check them: {}", fault.message)),
        }
    }

    fn check_imports(&self, component: &Component) -> Result<Vec<String>, Refusal> {
        let kind = component.component_type();
        let imports: Vec<String> = kind.imports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        for import in &imports {
            check_import(import)?;
        }
        let exports: Vec<String> = kind.exports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        match exports.iter().find(|export| export.starts_with("polliwog:poller/poller@")) {
            Some(export) => check_version(export)?,
            None => {
                let message = "it is a component, but does not export polliwog:poller/poller: build it with the SDK";
                return Err(Refusal::new("no_poller", message));
            }
        }
        Ok(imports)
    }

    async fn describe(&self, pre: &PluginPre<State>) -> Result<v0_1::Descriptor, Refusal> {
        let pre = pre.clone();
        let enter = move |mut store: Store<State>| async move {
            let result = match pre.instantiate_async(&mut store).await {
                Ok(instance) => instance.polliwog_poller_poller().call_describe(&mut store).await,
                Err(error) => Err(error),
            };
            (result, store)
        };
        self.call(Call::pure("describe", self.slot().await), enter).await.result.map_err(|fault| {
            if fault.category == FailureCategory::Transient {
                // It did not use up its CPU time: others did.
                return Refusal::new("not_described", "it could not be asked who it is in time: this machine is busy");
            }
            // What it exports has the right names, and other types.
            if fault.code == "trap" && fault.message.contains("expected ") && fault.message.contains("found ") {
                let why = &fault.message;
                let message = format!("its types are not those of the contract ({why}): build it with this host's SDK");
                return Refusal::new("contract_mismatch", message);
            }
            Refusal::new("describe_failed", format!("asking who it is failed ({}): {}", fault.code, fault.message))
        })
    }
}

/// Why a descriptor could not be checked.
fn slow() -> Refusal {
    Refusal::new("not_described", "its descriptor could not be checked in time: this machine is busy")
}

/// Maps machine code that this installation has compiled.
#[allow(unsafe_code, reason = "the one place where machine code is taken up")]
fn map(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file's content was authenticated with this installation's key a moment ago, so it is what our own child
    // wrote for this engine; it lies in a folder that no other user can write to, and nobody of ours writes to it again.
    unsafe { Component::deserialize_file(engine, path) }
}

fn first_line(error: &wasmtime::Error) -> String {
    clean(format!("{error:#}").lines().next().unwrap_or_default(), TITLE * 2)
}

fn check_format(bytes: &[u8]) -> Result<(), Refusal> {
    const CORE: [u8; 8] = *b"\0asm\x01\0\0\0";
    const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
    let refuse = |code, message: &str| Err(Refusal::new(code, message));
    match bytes {
        [] => refuse("empty", "it is empty: copy it again"),
        _ if bytes.len() > FILE => refuse("too_large", "it is larger than 64 MiB: build it without debug information"),
        _ if bytes.starts_with(&COMPONENT) => Ok(()),
        _ if bytes.starts_with(&CORE) => {
            refuse("core_module", "it is a core module and no component: build it for the target wasm32-wasip2")
        }
        _ if bytes.starts_with(b"\x7fELF") => {
            refuse("not_wasm", "it is machine code (ELF), which is never loaded: drop in the .wasm it was made from")
        }
        _ if bytes.starts_with(b"(") => {
            refuse("not_wasm", "it is WebAssembly text: assemble it into a component first")
        }
        _ => refuse("not_wasm", "it is no WebAssembly: drop in a component, as the SDK builds it"),
    }
}

fn check_import(name: &str) -> Result<(), Refusal> {
    let known = CONTRACT.iter().any(|part| name.starts_with(&format!("polliwog:poller/{part}@")));
    if known {
        return check_version(name);
    }
    if INERT.iter().any(|prefix| name.starts_with(prefix)) {
        return Ok(());
    }
    let message = if name.starts_with("polliwog:poller/") && !name.contains('@') {
        format!(
            "it imports {name} without a version: build it with the contract that `polliwog plugin wit DIR` writes, whose package \
             line has one"
        )
    } else if name.starts_with("wasi:http/") {
        format!("it imports {name}, which plugins do not get: use polliwog:poller/http, which the host watches over")
    } else {
        format!(
            "it imports {name}, which this host does not have: a plugin may import polliwog:poller and nothing else"
        )
    };
    Err(Refusal::new("import_refused", message))
}

/// `polliwog:poller/x@0.1.z` fits a host that speaks 0.1.
fn check_version(name: &str) -> Result<(), Refusal> {
    let version = name.rsplit('@').next().unwrap_or_default();
    let minor = version.rsplitn(2, '.').last().unwrap_or_default();
    if CONTRACT_VERSIONS.contains(&minor) {
        return Ok(());
    }
    let speaks = CONTRACT_VERSIONS.join(" and ");
    let message =
        format!("it was built for polliwog:poller@{minor}, this host speaks {speaks}: build it with this host's SDK");
    Err(Refusal::new("contract_version", message))
}

fn check_resources(component: &Component) -> Result<(), Refusal> {
    let limit = Limits::default().memory as u64;
    let required = component.resources_required();
    let initial = required.and_then(|required| required.max_initial_memory_size).unwrap_or(0);
    // The documentation says pages; the value is bytes in some versions. Either way a limit of pages is the larger one.
    if initial > limit {
        let message = format!("it begins with {initial} bytes of memory, more than the {limit} that a poll may have");
        return Err(Refusal::new("memory_limit", message));
    }
    Ok(())
}

fn check_descriptor(found: v0_1::Descriptor) -> Result<(Descriptor, Schema), Refusal> {
    let bad = |message: String| Refusal::new("bad_descriptor", message);
    let kind = Kind::new(&found.kind).map_err(|error| bad(format!("its kind is no kind: {error}")))?;
    if found.version.is_empty() || found.version.len() > VERSION {
        return Err(bad("its version is empty or longer than 64 bytes".to_owned()));
    }
    if !is_semantic(&found.version) {
        let version = clean(&found.version, VERSION);
        return Err(bad(format!("its version {version:?} is no semantic version: write it as 1.2.3")));
    }
    let (settings_schema, schema) =
        Schema::read(&found.settings_schema).map_err(|why| bad(format!("its settings schema {why}")))?;
    if let Some(problem) = schema.own_problem(&settings_schema) {
        return Err(bad(format!("its settings schema {problem}")));
    }
    if found.secrets.len() > SECRETS {
        return Err(bad(format!("it names {} secrets, more than {SECRETS}", found.secrets.len())));
    }
    let secrets = found.secrets.into_iter().map(secret).collect::<Result<Vec<_>, _>>()?;
    for (place, spec) in secrets.iter().enumerate() {
        if secrets[..place].iter().any(|other| other.name == spec.name) {
            return Err(bad(format!("it names the secret {:?} twice", spec.name)));
        }
    }
    let clamp = |what: &str, ms: u32, (low, high): (Duration, Duration)| {
        let said = Duration::from_millis(ms.into());
        let taken = said.clamp(low, high);
        if taken != said {
            tracing::warn!(
                "plugin {kind}: its default {what} is {said:?}; {taken:?} is used, the nearest that makes sense"
            );
        }
        taken
    };
    let default_interval = clamp("interval", found.default_interval_ms, (SHORTEST_INTERVAL, LONGEST_INTERVAL));
    let default_timeout = clamp("timeout", found.default_timeout_ms, (SHORTEST_TIMEOUT, LONGEST_TIMEOUT));
    let descriptor = Descriptor {
        kind,
        title: clean(&found.title, TITLE),
        version: clean(&found.version, VERSION),
        summary: clean(&found.summary, TITLE * 4),
        settings_schema,
        secrets,
        default_interval,
        default_timeout,
    };
    Ok((descriptor, schema))
}

fn secret(spec: v0_1::types::SecretSpec) -> Result<SecretSpec, Refusal> {
    let name = clean(&spec.name, VERSION);
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if name.is_empty() || name != spec.name || !is_plain {
        let message = format!("the name of its secret {name:?} is not 1 to {VERSION} letters, digits, _ and -");
        return Err(Refusal::new("bad_descriptor", message));
    }
    let (longest, compiled) = PATTERN;
    if spec.pattern.as_ref().is_some_and(|pattern| pattern.len() > longest) {
        let message = format!("the pattern of its secret {name:?} is longer than {longest} bytes");
        return Err(Refusal::new("bad_descriptor", message));
    }
    let compile = |pattern: String| RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(compiled).build();
    let pattern = spec.pattern.map(compile).transpose();
    Ok(SecretSpec {
        pattern: pattern.map_err(|_| {
            Refusal::new("bad_descriptor", format!("the pattern of its secret {name:?} is no regular expression"))
        })?,
        description: clean(&spec.description, TITLE * 4),
        required: spec.required,
        hint: spec.hint.map(|hint| clean(&hint, TITLE * 4)),
        name,
    })
}

/// Three numbers, and behind them what semver.org allows after - and +.
fn is_semantic(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    let rest = &version[core.len()..];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    numbers.len() == 3 && numbers.iter().all(is_number) && rest.len() != 1 && rest.bytes().all(plain)
}

impl Call {
    fn pure(name: &str, slot: OwnedSemaphorePermit) -> Self {
        let limits = Limits::pure();
        let log = Log::new(name, "", limits.log_lines);
        let (now, wall) = (Timestamp::from_millis(0), limits.cpu * 20);
        Self { limits, log, limiter: Limiter::new(limits.memory), session: None, now, wall, slot }
    }
}
