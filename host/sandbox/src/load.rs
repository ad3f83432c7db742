//! Loads a plugin: checks its imports, compiles it, and checks its descriptor.

use crate::call::Call;
use crate::compile::{Compiled, MAX_FILE_BYTES};
use crate::host::State;
use crate::host::v0_1::{self, NotifierPlugin, NotifierPluginPre, PluginPre};
use crate::imports::{check_import, check_version};
use crate::limits::Limits;
use crate::plugin::{Descriptor, Exports, Parts, Plugin, Role};
use crate::refusal::Refusal;
use crate::run::Sandbox;
use crate::secret_spec::SecretSpec;
use crate::setup::Setup;
use crate::wasi;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use machine_code::{BuiltIn, Unpacked};
use model::{Failure, FailureCategory, Kind, clean};
use regex::RegexBuilder;
use rustix::io::Errno;
use schema::{Schema, SettingsProblem};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::time::timeout;
use wasmtime::component::Component;
use wasmtime::{Engine, Store};

/// Maximum length of a title in bytes.
const TITLE: usize = 256;
/// Maximum length of a version or a secret's name in bytes.
const VERSION: usize = 64;
/// Maximum number of secrets of a plugin.
const SECRETS: usize = 32;
/// Maximum length of a secret's pattern in bytes. The regex parser has no limit for the memory and time of long
/// patterns.
const PATTERN_BYTES: usize = 1 << 10;
/// Maximum size of a secret's compiled pattern in bytes.
const COMPILED_PATTERN_BYTES: usize = 1 << 20;
/// Time limit for preparing a schema and for validating settings.
const SCHEMA: Duration = Duration::from_secs(5);
/// Maximum number of problems with settings that are listed. The others are counted.
const PROBLEMS: usize = 20;
/// Minimum interval that an operator can configure, and so a plugin can suggest.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum interval that an operator can configure.
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);
/// Minimum timeout that an operator can configure.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum timeout that an operator can configure.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

impl Sandbox {
    /// Loads a plugin file: compiles it, checks its imports, and calls `describe`.
    pub fn load<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<Plugin, Refusal>> {
        self.load_bytes(bytes).boxed()
    }

    async fn load_bytes(&self, bytes: &[u8]) -> Result<Plugin, Refusal> {
        check_format(bytes)?;
        let digest = Sha256::digest(bytes).into();
        // The same bytes are refused for the same reason, which may have taken a minute to find.
        if let Some(refusal) = self.compiler().refused(self.engine(), digest) {
            return Err(refusal);
        }
        let loaded = match self.compiler().compiled(self.engine(), bytes, digest).await {
            Ok(compiled) => self.prepare(digest, Some(bytes.len()), compiled, None).await,
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = loaded.as_ref().map_err(Clone::clone).map(drop)
            && !refusal.is_passing()
        {
            self.compiler().remember(self.engine(), digest, &refusal);
        }
        loaded
    }

    /// Returns whether [`Self::load`] can decide about a file without compiling it, because its machine code or its
    /// refusal is stored.
    pub fn is_judged(&self, bytes: &[u8]) -> bool {
        if check_format(bytes).is_err() {
            return true;
        }
        let digest = Sha256::digest(bytes).into();
        self.compiler().refused(self.engine(), digest).is_some()
            || self.compiler().kept(self.engine(), digest).is_some()
    }

    /// Loads a built-in plugin without compiling it. Several that are loaded with the same `shared` are unpacked once.
    pub fn load_built_in<'a>(
        &'a self,
        plugin: BuiltIn,
        shared: &'a Arc<Unpacked>,
    ) -> BoxFuture<'a, Result<Plugin, Refusal>> {
        let loaded = async move {
            let unpacked = self.unpacked(plugin, shared).await?;
            self.prepare(plugin.digest, Some(plugin.size), unpacked, Some(plugin)).await
        };
        loaded.boxed()
    }

    /// Writes the machine code of a built-in plugin to its file, unless it is there.
    pub(crate) async fn unpacked(&self, plugin: BuiltIn, shared: &Arc<Unpacked>) -> Result<Compiled, Refusal> {
        let (compiler, engine, shared) = (self.compiler().clone(), self.engine().clone(), shared.clone());
        let unpacked = tokio::task::spawn_blocking(move || compiler.unpacked(&engine, &plugin, &shared));
        let stopped = |_| Refusal::transient("not_compiled", "the program ended while it wrote the machine code");
        unpacked.await.map_err(stopped)?
    }

    /// Loads a plugin from its stored machine code, without its file. Returns `None` if that fails.
    pub fn load_kept(&self, digest: [u8; 32]) -> BoxFuture<'_, Option<Plugin>> {
        let loaded = async move {
            let path = self.compiler().kept(self.engine(), digest)?;
            self.prepare(digest, None, Compiled { path, took: None }, None).await.ok()
        };
        loaded.boxed()
    }

    async fn prepare(
        &self,
        digest: [u8; 32],
        size: Option<usize>,
        compiled: Compiled,
        built_in: Option<BuiltIn>,
    ) -> Result<Plugin, Refusal> {
        let component = map(self.engine(), &compiled.path).map_err(|error| not_mapped(&error))?;
        let compile_time = compiled.took;
        let (imports, is_notifier) = self.check_interfaces(&component)?;
        check_resources(&component)?;
        let exports = self.link(&component, is_notifier)?;
        let (described, role) = self.describe(&exports).await?;
        // The check is bounded, but it must not block other tasks of this runtime.
        let checked = tokio::task::spawn_blocking(move || check_descriptor(described, role));
        let (descriptor, schema) = timeout(SCHEMA, checked).await.map_err(|_| slow())?.map_err(|_| slow())??;
        let exports = RwLock::new(Some(Arc::new(exports)));
        Ok(Parts { exports, built_in, descriptor, schema, digest, size, imports, compile_time }.into())
    }

    /// Links a component with the host's functions.
    pub(crate) fn link(&self, component: &Component, is_notifier: bool) -> Result<Exports, Refusal> {
        let mismatch = |why: &str| {
            let message = format!("it does not match the contract: {why}: build it with the SDK of this version");
            Refusal::permanent("contract_mismatch", message)
        };
        let instance = wasi::linker_for(component, self.linker()).and_then(|linker| linker.instantiate_pre(component));
        let differs = |error: wasmtime::Error| mismatch(&first_line(&error));
        if is_notifier {
            return Ok(Exports::Notifier(instance.and_then(NotifierPluginPre::new).map_err(differs)?));
        }
        let pre = instance.and_then(PluginPre::new).map_err(differs)?;
        let poll = v0_1::poll_export(component).ok_or_else(|| mismatch("it has no function `poll`"))?;
        Ok(Exports::Poller { pre, poll })
    }

    /// Returns the problems of settings. The schema is checked first. If it finds no problem, the plugin checks them.
    /// Fails with the reason if the plugin cannot check any settings.
    pub fn check_settings<'a>(
        &'a self,
        plugin: &'a Plugin,
        settings: &'a Value,
    ) -> BoxFuture<'a, Result<Vec<SettingsProblem>, String>> {
        self.problems(plugin, settings).boxed()
    }

    async fn problems(&self, plugin: &Plugin, settings: &Value) -> Result<Vec<SettingsProblem>, String> {
        let (checked, held) = (plugin.clone(), settings.clone());
        let check = move || checked.schema().problems(&checked.descriptor().settings_schema, &held);
        let checked = timeout(SCHEMA, tokio::task::spawn_blocking(check)).await;
        let Ok(Ok(problems)) = checked else {
            return Err("the validation by its schema took too long: simplify the schema or the settings".to_owned());
        };
        if !problems.is_empty() {
            return Ok(problems);
        }
        let could_not = |fault: Failure| format!("the plugin could not check them: {}", fault.message);
        let (text, exports) = (settings.to_string(), self.exports(plugin).await.map_err(could_not)?);
        let enter = move |mut store: Store<State>| async move {
            let result = match &*exports {
                Exports::Poller { pre, .. } => match pre.instantiate_async(&mut store).await {
                    Ok(instance) => instance.polliwog_poller_poller().call_check_settings(&mut store, &text).await,
                    Err(error) => Err(error),
                },
                Exports::Notifier(pre) => match pre.instantiate_async(&mut store).await {
                    Ok(instance) => instance.polliwog_poller_notifier().call_check_settings(&mut store, &text).await,
                    Err(error) => Err(error),
                },
            };
            (result, store)
        };
        match self.caller.call(Call::pure(plugin.descriptor().kind.as_str(), self.slot().await), enter).await.result {
            Ok(problems) => {
                let more = problems.len().saturating_sub(PROBLEMS);
                let shown = problems.iter().take(PROBLEMS).map(|problem| clean(problem, TITLE * 4));
                let all = shown.chain((more > 0).then(|| format!("{more} more problems")));
                Ok(all.map(SettingsProblem::from_plugin).collect())
            }
            Err(fault) => Err(could_not(fault)),
        }
    }

    /// Checks the imports and exports of a component. Returns its imports, and whether it is a notifier.
    pub(crate) fn check_interfaces(&self, component: &Component) -> Result<(Vec<String>, bool), Refusal> {
        let kind = component.component_type();
        let imports: Vec<String> = kind.imports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        for import in &imports {
            check_import(import)?;
        }
        let exports: Vec<String> = kind.exports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        let exported = |prefix| exports.iter().find(|export| export.starts_with(prefix));
        let (poller, notifier) = (exported("polliwog:poller/poller@"), exported("polliwog:poller/notifier@"));
        let refuse = |code, message: &str| Err(Refusal::permanent(code, message));
        match (poller, notifier) {
            (Some(_), Some(_)) => {
                refuse("two_roles", "it exports both a poller and a notifier: make two plugins of it")
            }
            (Some(export), None) | (None, Some(export)) => {
                check_version(export)?;
                Ok((imports, notifier.is_some()))
            }
            (None, None) => refuse(
                "no_poller",
                "it is a component, but exports neither polliwog:poller/poller nor polliwog:poller/notifier: build it \
                 with the SDK",
            ),
        }
    }

    async fn describe(&self, exports: &Exports) -> Result<(v0_1::Descriptor, Role), Refusal> {
        // The exports may have the right names but different types: the inner error.
        match exports {
            Exports::Poller { pre, .. } => {
                let pre = pre.clone();
                let enter = move |mut store: Store<State>| async move {
                    let result = match pre.instance_pre().instantiate_async(&mut store).await {
                        Ok(instance) => match v0_1::Plugin::new(&mut store, &instance) {
                            Ok(plugin) => plugin.polliwog_poller_poller().call_describe(&mut store).await.map(Ok),
                            Err(error) => Ok(Err(error)),
                        },
                        Err(error) => Err(error),
                    };
                    (result, store)
                };
                Ok((
                    described(self.caller.call(Call::pure("describe", self.slot().await), enter).await.result)?,
                    Role::Poller,
                ))
            }
            Exports::Notifier(pre) => {
                let pre = pre.clone();
                let enter = move |mut store: Store<State>| async move {
                    let result = match pre.instance_pre().instantiate_async(&mut store).await {
                        Ok(instance) => match NotifierPlugin::new(&mut store, &instance) {
                            Ok(plugin) => plugin.polliwog_poller_notifier().call_describe(&mut store).await.map(Ok),
                            Err(error) => Ok(Err(error)),
                        },
                        Err(error) => Err(error),
                    };
                    (result, store)
                };
                let called = self.caller.call(Call::pure("describe", self.slot().await), enter).await;
                Ok(v0_1::of_notifier(described(called.result)?))
            }
        }
    }
}

/// Returns the result of `describe`, or the refusal for a plugin that did not return one.
fn described<T>(result: Result<wasmtime::Result<T>, Failure>) -> Result<T, Refusal> {
    let found = result.map_err(|fault| {
        if fault.category == FailureCategory::Transient {
            // The plugin did not exhaust its CPU time, so the machine is busy.
            return Refusal::transient("not_described", "describe did not finish in time: this machine is busy");
        }
        Refusal::stored("describe_failed", format!("describe failed ({}): {}", fault.code, fault.message))
    })?;
    found.map_err(|error| {
        let why = clean(&error.root_cause().to_string(), TITLE * 4);
        let message = format!("its types differ from the contract ({why}): build it with this host's SDK");
        Refusal::permanent("contract_mismatch", message)
    })
}

/// Returns the refusal for a descriptor whose check took too long.
fn slow() -> Refusal {
    Refusal::transient("not_described", "the check of its descriptor did not finish in time: this machine is busy")
}

/// Maps a file with machine code that this installation compiled.
#[allow(unsafe_code, reason = "the only place that maps machine code")]
pub(crate) fn map(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file's content was just authenticated with this installation's key, so our own child wrote it for
    // this engine. The file is in a folder that no other user can write to, and this program never writes to it again.
    unsafe { Component::deserialize_file(engine, path) }
}

/// Classifies an error of [`map`]. An error of the operating system is the host's and may pass; any other error is
/// about what the component needs.
pub(crate) fn not_mapped(error: &wasmtime::Error) -> Refusal {
    let system = error.chain().any(|cause| cause.is::<std::io::Error>() || cause.is::<Errno>());
    let why = first_line(error);
    if system {
        return Refusal::transient(
            "not_compiled",
            format!(
                "this host cannot use its machine code ({why}): check that the data directory is readable and not \
                 mounted noexec, and that no rule forbids executable memory (MemoryDenyWriteExecute= of systemd); \
                 Polliwog will try again"
            ),
        );
    }
    Refusal::stored("too_large", format!("it needs more memory, tables or instances than a poll may have: {why}"))
}

fn first_line(error: &wasmtime::Error) -> String {
    clean(format!("{error:#}").lines().next().unwrap_or_default(), TITLE * 2)
}

fn check_format(bytes: &[u8]) -> Result<(), Refusal> {
    const CORE: [u8; 8] = *b"\0asm\x01\0\0\0";
    const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
    let refuse = |code, message: &str| Err(Refusal::permanent(code, message));
    match bytes {
        [] => refuse("empty", "it is empty: copy it again"),
        _ if bytes.len() > MAX_FILE_BYTES => {
            refuse("too_large", "it is larger than 64 MiB: build it without debug information")
        }
        _ if bytes.starts_with(&COMPONENT) => Ok(()),
        _ if bytes.starts_with(&CORE) => {
            refuse("core_module", "it is a core module, not a component: build it for the target wasm32-wasip2")
        }
        _ if bytes.starts_with(b"\x7fELF") => refuse(
            "not_wasm",
            "it is machine code (ELF), which Polliwog does not load: use the .wasm file it was built from",
        ),
        _ if bytes.starts_with(b"(") => refuse("not_wasm", "it is WebAssembly text: convert it to a component first"),
        _ => refuse("not_wasm", "it is not WebAssembly: use a component that was built with the SDK"),
    }
}

fn check_resources(component: &Component) -> Result<(), Refusal> {
    let limit = Limits::default().memory as u64;
    let required = component.resources_required();
    let initial = required.and_then(|required| required.max_initial_memory_size).unwrap_or(0);
    // The documentation of wasmtime says pages, but some versions return bytes. The comparison refuses no valid plugin
    // in either case.
    if initial > limit {
        let message =
            format!("it starts with {initial} bytes of memory, more than the {limit} bytes that a poll may have");
        return Err(Refusal::permanent("memory_limit", message));
    }
    Ok(())
}

fn check_descriptor(found: v0_1::Descriptor, role: Role) -> Result<(Descriptor, Schema), Refusal> {
    let bad = |message: String| Refusal::stored("bad_descriptor", message);
    let kind = Kind::new(&found.kind).map_err(|error| bad(format!("its kind is not valid: {error}")))?;
    if found.version.is_empty() || found.version.len() > VERSION {
        return Err(bad("its version is empty or longer than 64 bytes".to_owned()));
    }
    if !is_semantic(&found.version) {
        let version = clean(&found.version, VERSION);
        return Err(bad(format!("its version {version:?} is not a semantic version: write it as 1.2.3")));
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
    let clamp = |name: &str, ms: u32, (low, high): (Duration, Duration)| {
        let suggested = Duration::from_millis(ms.into());
        let used = suggested.clamp(low, high);
        if used != suggested {
            tracing::warn!(
                "plugin {kind}: its default {name} of {suggested:?} is out of range; {used:?} is used instead"
            );
        }
        used
    };
    let default_interval = match role {
        Role::Poller => clamp("interval", found.default_interval_ms, (SHORTEST_INTERVAL, LONGEST_INTERVAL)),
        Role::Notifier { .. } => Duration::ZERO,
    };
    let default_timeout = clamp("timeout", found.default_timeout_ms, (SHORTEST_TIMEOUT, LONGEST_TIMEOUT));
    let setup = found.setup.map(|setup| Setup::read(setup, &secrets, &settings_schema)).transpose();
    let setup = setup.map_err(|why| bad(format!("its setup {why}")))?;
    let descriptor = Descriptor {
        role,
        kind,
        title: clean(&found.title, TITLE),
        version: clean(&found.version, VERSION),
        summary: clean(&found.summary, TITLE * 4),
        settings_schema,
        secrets,
        default_interval,
        default_timeout,
        setup,
    };
    Ok((descriptor, schema))
}

fn secret(spec: v0_1::types::SecretSpec) -> Result<SecretSpec, Refusal> {
    let name = clean(&spec.name, VERSION);
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if name.is_empty() || name != spec.name || !is_plain {
        let message = format!("the name of its secret {name:?} is not 1 to {VERSION} letters, digits, _ and -");
        return Err(Refusal::stored("bad_descriptor", message));
    }
    if spec.pattern.as_ref().is_some_and(|pattern| pattern.len() > PATTERN_BYTES) {
        let message = format!("the pattern of its secret {name:?} is longer than {PATTERN_BYTES} bytes");
        return Err(Refusal::stored("bad_descriptor", message));
    }
    let compile =
        |pattern: String| RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(COMPILED_PATTERN_BYTES).build();
    let pattern = spec.pattern.map(compile).transpose();
    Ok(SecretSpec {
        pattern: pattern.map_err(|_| {
            Refusal::stored("bad_descriptor", format!("the pattern of its secret {name:?} is not a regular expression"))
        })?,
        description: clean(&spec.description, TITLE * 4),
        required: spec.required,
        hint: spec.hint.map(|hint| clean(&hint, TITLE * 4)),
        example: spec.example.map(|example| clean(&example, TITLE * 4)),
        name,
    })
}

/// Returns whether a version consists of three numbers, optionally followed by the parts after - and + of semver.org.
fn is_semantic(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    let rest = &version[core.len()..];
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    numbers.len() == 3 && numbers.iter().all(is_number) && rest.len() != 1 && rest.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_operating_system_is_not_remembered_as_a_fault_of_the_file() {
        let forbidden = wasmtime::Error::from(Errno::ACCESS).context("unable to make memory executable");
        let unreadable = wasmtime::Error::from(std::io::Error::from_raw_os_error(5)).context("failed to open file");
        for error in [forbidden, unreadable] {
            let refusal = not_mapped(&error);
            assert_eq!(refusal.code, "not_compiled", "{error:#}");
            assert!(refusal.is_passing(), "{error:#}");
        }
        let refusal = not_mapped(&wasmtime::Error::msg("component has too many tables"));
        assert_eq!(refusal.code, "too_large");
        assert!(refusal.is_stored());
    }
}
