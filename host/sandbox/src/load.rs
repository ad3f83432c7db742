//! Loads a plugin: checks its imports, compiles it, and checks its descriptor.

use crate::call::Call;
use crate::compile::{Compiled, MAX_FILE_BYTES};
use crate::descriptor::{self, Described};
use crate::host::State;
use crate::host::v0_1::{definition, notifier, poller, session, setup};
use crate::imports::{check_import, check_version, refuse_earlier};
use crate::limits::Limits;
use crate::plugin::{Exports, Parts, Plugin, RoleExports};
use crate::refusal::Refusal;
use crate::run::Sandbox;
use crate::wasi;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use machine_code::{BuiltIn, Unpacked};
use model::{Failure, FailureCategory, clean};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::time::timeout;
use wasmtime::component::Component;
use wasmtime::{Engine, Store};

/// Maximum length of a shown message in bytes.
pub(crate) const MESSAGE: usize = 1024;
/// Time limit for preparing a schema and for validating settings.
pub(crate) const SCHEMA: Duration = Duration::from_secs(5);
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
        let (imports, interfaces) = self.check_interfaces(&component)?;
        check_resources(&component)?;
        let exports = Arc::new(self.link(&component, interfaces)?);
        let described = self.describe(&exports).await?;
        // The check is bounded, but it must not block other tasks of this runtime.
        let checked = tokio::task::spawn_blocking(move || descriptor::check(described));
        let (descriptor, schema) = timeout(SCHEMA, checked).await.map_err(|_| slow())?.map_err(|_| slow())??;
        let has_session = exports.session.is_some();
        let exports = RwLock::new(Some(exports));
        let parts = Parts { exports, built_in, descriptor, schema, has_session, digest, size, imports, compile_time };
        Ok(parts.into())
    }

    /// Links a component with the host's functions.
    pub(crate) fn link(&self, component: &Component, interfaces: Interfaces) -> Result<Exports, Refusal> {
        let differs = |error: wasmtime::Error| {
            let why = first_line(&error);
            let message = format!("it does not match the contract: {why}: build it with the SDK of this version");
            Refusal::permanent("contract_mismatch", message)
        };
        let pre = wasi::linker_for(component, self.linker()).and_then(|linker| linker.instantiate_pre(component));
        let pre = pre.map_err(differs)?;
        let definition = definition::GuestIndices::new(&pre).map_err(differs)?;
        let role = match interfaces.is_notifier {
            true => RoleExports::Notifier(notifier::GuestIndices::new(&pre).map_err(differs)?),
            false => RoleExports::Poller(poller::GuestIndices::new(&pre).map_err(differs)?),
        };
        let setup = interfaces.has_setup.then(|| setup::GuestIndices::new(&pre)).transpose().map_err(differs)?;
        let session = interfaces.has_session.then(|| session::GuestIndices::new(&pre)).transpose().map_err(differs)?;
        Ok(Exports { pre, definition, role, setup, session })
    }

    /// Checks the imports and exports of a component. Returns its imports, and the interfaces that it exports.
    pub(crate) fn check_interfaces(&self, component: &Component) -> Result<(Vec<String>, Interfaces), Refusal> {
        let kind = component.component_type();
        let imports: Vec<String> = kind.imports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        let exports: Vec<String> = kind.exports(self.engine()).map(|(name, _)| name.to_owned()).collect();
        // The most helpful message comes first: an old plugin has old imports, too.
        for interface in exports.iter().chain(&imports) {
            refuse_earlier(interface)?;
        }
        for import in &imports {
            check_import(import)?;
        }
        let refuse = |message: &str| Err(Refusal::permanent("wrong_exports", message));
        let has = |interface: &str| {
            let prefix = format!("polliwog:plugin/{interface}@");
            match exports.iter().find(|export| export.starts_with(&prefix)) {
                Some(export) => check_version(export).map(|()| true),
                None => Ok(false),
            }
        };
        let (is_poller, is_notifier) = (has("poller")?, has("notifier")?);
        match (is_poller, is_notifier) {
            (true, true) => return refuse("it exports both a poller and a notifier: make two plugins of it"),
            (false, false) => {
                return refuse(
                    "it is a component, but exports neither polliwog:plugin/poller nor polliwog:plugin/notifier: build \
                     it with the SDK",
                );
            }
            _ if !has("definition")? => {
                return refuse("it does not export polliwog:plugin/definition: build it with the SDK");
            }
            _ => {}
        }
        Ok((imports, Interfaces { is_notifier, has_setup: is_poller && has("setup")?, has_session: has("session")? }))
    }

    /// Calls the functions that describe a plugin.
    async fn describe(&self, exports: &Arc<Exports>) -> Result<Described, Refusal> {
        let exports = exports.clone();
        let enter = move |mut store: Store<State>| async move {
            let described = async {
                let instance = exports.pre.instantiate_async(&mut store).await?;
                // The exports may have the right names but different types: the inner error.
                let loaded = (|| {
                    let definition = exports.definition.load(&mut store, &instance)?;
                    let notifier = match &exports.role {
                        RoleExports::Poller(poller) => {
                            poller.load(&mut store, &instance)?;
                            None
                        }
                        RoleExports::Notifier(notifier) => Some(notifier.load(&mut store, &instance)?),
                    };
                    let setup = exports.setup.as_ref().map(|setup| setup.load(&mut store, &instance)).transpose()?;
                    exports.session.as_ref().map(|session| session.load(&mut store, &instance)).transpose()?;
                    wasmtime::Result::Ok((definition, notifier, setup))
                })();
                let (definition, notifier, setup) = match loaded {
                    Ok(loaded) => loaded,
                    Err(error) => return Ok(Err(error)),
                };
                let descriptor = definition.call_describe(&mut store).await?;
                let delivery = match notifier {
                    Some(notifier) => Some(notifier.call_describe_delivery(&mut store).await?),
                    None => None,
                };
                let setup = match setup {
                    Some(setup) => Some(setup.call_describe_setup(&mut store).await?),
                    None => None,
                };
                Ok(Ok(Described { descriptor, delivery, setup }))
            };
            (described.await, store)
        };
        described(self.caller.call(Call::pure("describe", self.slot().await), enter).await.result)
    }
}

/// The interfaces that a component exports.
#[derive(Clone, Copy)]
pub(crate) struct Interfaces {
    is_notifier: bool,
    has_setup: bool,
    has_session: bool,
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
        let why = clean(&error.root_cause().to_string(), MESSAGE);
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
    clean(format!("{error:#}").lines().next().unwrap_or_default(), MESSAGE / 2)
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
