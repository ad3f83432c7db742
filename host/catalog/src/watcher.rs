//! Watches the plugin directory while the host runs and applies changes.

use crate::directory::PluginDirectory;
use crate::registry::{Cause, PluginRegistry, Verdict, Version};
use crate::served_record::{LastServed, ServedRecord};
use crate::{Admit, BUILT_IN, PluginSet, Refused, Served, Trust, UsageCounter};
use futures_util::StreamExt;
use model::{EventKind, Kind, hex};
use sandbox::{BuiltIn, Plugin, Sandbox};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval between scans of the directory.
const SCAN: Duration = Duration::from_secs(1);
/// Refused files that may be accepted now are checked again after this many scans.
const AGAIN: u32 = 10;
/// Most built-in plugins that are loaded at the same time. With fewer, a start takes longer.
const LOADED_AT_ONCE: usize = 8;

/// How a start treats files that are not compiled yet.
#[derive(Clone, Copy, Debug)]
pub enum Uncompiled {
    /// Compile them now, because a command answers once. The function is called with the path of each before, because
    /// it takes a while.
    Compile(fn(&Path)),
    /// Compile them while the host runs, because a start must not wait for a file in the directory.
    Defer,
}

/// Watches the plugin directory and keeps the set of serving plugins.
pub struct PluginWatcher {
    sandbox: Arc<Sandbox>,
    path: PathBuf,
    directory: PluginDirectory,
    registry: PluginRegistry<Plugin>,
    trust: Trust,
    record: ServedRecord,
    remembered: BTreeMap<Kind, LastServed>,
    /// The part of `remembered` that is on disk.
    written: BTreeMap<Kind, LastServed>,
    built_in: BTreeMap<Kind, Plugin>,
    /// Built-in plugins that could not be loaded.
    unbuilt: Vec<Refused>,
    usage: BTreeMap<Kind, Arc<UsageCounter>>,
    set: PluginSet,
}

/// The directories of plugins and records, and the built-in plugins.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The plugin directory.
    pub plugins: &'a Path,
    /// The data directory.
    pub data: &'a Path,
    /// The built-in plugins.
    pub built_in: &'static [BuiltIn],
}

impl PluginWatcher {
    /// Loads the built-in plugins and those in the directory. A file takes precedence over the built-in plugin of its
    /// kind.
    pub async fn start(
        sandbox: Arc<Sandbox>,
        Location { plugins: path, data: data_dir, built_in: come_with_host }: Location<'_>,
        trust: Trust,
        uncompiled_files: Uncompiled,
    ) -> Self {
        let (built_in, refused) = load_built_in(&sandbox, come_with_host).await;
        let record = ServedRecord::new(data_dir);
        let remembered = record.read();
        let (mut directory, mut judged) = (PluginDirectory::new(path), Vec::new());
        let (mut spare, mut meanwhile) = (Vec::new(), Vec::new());
        for name in directory.first_scan() {
            let Some(read) = directory.read(&name) else { continue };
            let is_new = read.as_ref().is_ok_and(|bytes| !sandbox.is_judged(bytes));
            match uncompiled_files {
                Uncompiled::Compile(announce) if is_new => announce(&path.join(&name)),
                Uncompiled::Defer if is_new => {
                    tracing::info!("{} is being compiled while the host runs", path.join(&name).display());
                    directory.read_again(&shown(&name));
                    let name = shown(&name);
                    // The earlier version serves until then.
                    meanwhile.extend(last_good(&sandbox, &remembered, &name).await.map(|version| (name, version)));
                    continue;
                }
                _ => {}
            }
            let (name, verdict) = (shown(&name), judge(&sandbox, read).await);
            let verdict = verdict.and_then(|version| {
                let before = publisher(&remembered, &built_in, &version.kind);
                trusted(&trust, &name, before.as_deref(), version)
            });
            if verdict.is_err() {
                spare.extend(last_good(&sandbox, &remembered, &name).await.map(|version| (name.clone(), version)));
            }
            judged.push((name, verdict));
        }
        let files = remembered.iter().map(|(kind, served)| (kind.clone(), served.file.clone())).collect();
        let mut registry = PluginRegistry::new(judged, &files);
        for (name, version) in spare {
            // The file is bad now and no other file serves its kind, so the earlier version continues to serve.
            if registry.holder(&version.kind).is_none() {
                registry.serve_with(&name, Some(version));
            }
        }
        for (name, version) in meanwhile {
            if registry.holder(&version.kind).is_none() {
                registry.take(&name, version);
            }
        }
        let mut keeper = Self {
            sandbox,
            path: path.to_owned(),
            directory,
            registry,
            trust,
            record,
            written: remembered.clone(),
            remembered,
            built_in,
            unbuilt: refused,
            usage: BTreeMap::new(),
            set: PluginSet::default(),
        };
        keeper.set = keeper.everything();
        keeper
    }

    /// Returns the serving plugins.
    pub fn set(&self) -> &PluginSet {
        &self.set
    }

    /// Builds the complete set from the registry.
    fn everything(&mut self) -> PluginSet {
        let mut served = BTreeMap::new();
        for (kind, plugin) in self.built_in.clone() {
            served.insert(kind, self.served(plugin, BUILT_IN.to_owned()));
        }
        let of_files: Vec<_> =
            self.registry.all_serving().map(|(name, version)| (self.file(name), version.clone())).collect();
        for (file, Version { kind, plugin }) in of_files {
            if served.contains_key(&kind) {
                tracing::info!("{file} replaces the built-in plugin of kind {kind}");
            }
            served.insert(kind, self.served(plugin, file));
        }
        let candidates = self.candidates();
        PluginSet::new(served).refusing(self.refused(), candidates)
    }

    /// Returns the plugins of files that wait for a configuration that fits them.
    fn candidates(&mut self) -> Vec<Arc<Served>> {
        let held: Vec<_> =
            self.registry.candidates().map(|(name, version)| (self.file(name), version.plugin.clone())).collect();
        held.into_iter().map(|(file, plugin)| self.served(plugin, file)).collect()
    }

    /// Checks the plugins found at a start with `fit`. A file that does not fit the targets of its kind is replaced by
    /// its earlier version or by the built-in plugin of its kind, or removed. `reason` words problems for the refusal.
    ///
    /// # Errors
    /// The problems that remain, which no plugin causes.
    pub async fn fit<T, P: PartialEq + Clone>(
        &mut self,
        fit: &impl AsyncFn(Arc<PluginSet>) -> Result<T, Vec<P>>,
        reason: fn(&[P]) -> String,
    ) -> Result<T, Vec<P>> {
        loop {
            match fit(Arc::new(self.set.clone())).await {
                Ok(fitted) => return Ok(fitted),
                Err(problems) if !self.give_way(fit, reason, &problems).await => return Err(problems),
                Err(_) => {}
            }
        }
    }

    /// Refuses the first file whose removal reduces the number of problems. Returns true if there was one.
    async fn give_way<T, P: PartialEq + Clone>(
        &mut self,
        fit: &impl AsyncFn(Arc<PluginSet>) -> Result<T, Vec<P>>,
        reason: fn(&[P]) -> String,
        problems: &[P],
    ) -> bool {
        let serving: Vec<_> =
            self.registry.all_serving().map(|(name, version)| (name.to_owned(), version.clone())).collect();
        for (name, Version { kind, plugin }) in serving {
            let before = last_good(&self.sandbox, &self.remembered, &name).await;
            let before = before.filter(|before| before.plugin.digest() != plugin.digest());
            let built_in = self.built_in.get(&kind).cloned().map(|plugin| (plugin, BUILT_IN.to_owned()));
            // Try its earlier version first, if known, then the plugin that would serve without the file.
            let earlier = before.clone().map(|version| Some((version.plugin, self.file(&name))));
            for (other, is_earlier) in earlier.map(|other| (other, true)).into_iter().chain([(built_in, false)]) {
                let served = other.map(|(plugin, source)| self.served(plugin, source));
                let left = fit(Arc::new(self.set.with(&kind, served))).await.err().unwrap_or_default();
                if left.len() >= problems.len() {
                    continue;
                }
                let solved: Vec<P> = problems.iter().filter(|problem| !left.contains(problem)).cloned().collect();
                self.registry.refuse(&name, Cause::Targets(Version { kind, plugin }), reason(&solved));
                self.registry.serve_with(&name, before.filter(|_| is_earlier));
                self.set = self.everything();
                return true;
            }
        }
        false
    }

    /// Returns a plugin with the usage counter of its kind, which all versions share.
    fn served(&mut self, plugin: Plugin, source: String) -> Arc<Served> {
        let usage = self.usage.entry(plugin.descriptor().kind.clone()).or_default().clone();
        Arc::new(Served { plugin, source, usage })
    }

    fn file(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn refused(&self) -> Vec<Refused> {
        let refusal = |(name, reason, serving): (&str, &str, Option<&Version<Plugin>>)| {
            let serves_on = serving.map_or_else(String::new, |version| {
                let descriptor = version.plugin.descriptor();
                format!(" (the previous version, {}, continues to serve kind {})", descriptor.version, descriptor.kind)
            });
            Refused { file: self.file(name), reason: format!("{reason}{serves_on}") }
        };
        self.unbuilt.iter().cloned().chain(self.registry.refused().map(refusal)).collect()
    }

    /// Watches the directory until the host ends and applies changes.
    pub async fn watch(mut self, host: Arc<impl Admit>, ending: CancellationToken) {
        self.remember();
        let mut ticks = tokio::time::interval(SCAN);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looks = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    looks += 1;
                    if looks % AGAIN == 0 {
                        self.judge_again(&*host);
                    }
                }
                () = host.reconfigured() => self.judge_again(&*host),
                () = ending.cancelled() => return,
            }
            // Loading a file includes its compilation; the host may end meanwhile.
            tokio::select! {
                () = self.look(&*host) => {}
                () = ending.cancelled() => return,
            }
        }
    }

    fn judge_again(&mut self, host: &impl Admit) {
        self.trust.used_by(host.kinds_in_use());
        for name in self.registry.to_judge_again() {
            self.directory.read_again(&name);
        }
    }

    async fn look(&mut self, host: &impl Admit) {
        let Some(look) = self.blocking(PluginDirectory::scan).await else { return };
        for name in look.gone {
            self.take_away(&shown(&name), host).await;
        }
        for name in look.ready {
            self.read(name, host).await;
        }
    }

    async fn read(&mut self, name: OsString, host: &impl Admit) {
        let wanted = name.clone();
        let Some(Some(read)) = self.blocking(move |directory| directory.read(&wanted)).await else { return };
        let verdict = judge(&self.sandbox, read).await;
        self.take(&shown(&name), verdict, host).await;
    }

    /// Runs an operation on the directory on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut PluginDirectory) -> T + Send + 'static,
    ) -> Option<T> {
        let mut directory = std::mem::replace(&mut self.directory, PluginDirectory::new(&self.path));
        let done = tokio::task::spawn_blocking(move || (act(&mut directory), directory)).await;
        // This fails only while the host ends.
        let (result, directory) = done.ok()?;
        self.directory = directory;
        Some(result)
    }

    /// Applies the verdict on a file: the file serves from now on, or it is refused.
    async fn take(&mut self, name: &str, verdict: Verdict<Plugin>, host: &impl Admit) {
        let version = match verdict {
            Ok(version) => version,
            Err(refusal) => return self.refuse(name, refusal, host),
        };
        let kind = version.kind.clone();
        let before = self.registry.serving(name).map(|version| (version.kind.clone(), version.plugin.digest()));
        if before == Some((kind.clone(), version.plugin.digest())) {
            // The content is that of the serving version again, or was never changed.
            self.registry.take(name, version);
            return self.publish(host);
        }
        if let Err(reason) = self.registry.may_serve(name, &kind) {
            return self.refuse(name, (Cause::Conflict(kind), reason), host);
        }
        self.trust.used_by(host.kinds_in_use());
        let publisher = publisher(&self.remembered, &self.built_in, &kind);
        let version = match trusted(&self.trust, name, publisher.as_deref(), version) {
            Ok(version) => version,
            Err(refusal) => return self.refuse(name, refusal, host),
        };
        let served = self.served(version.plugin.clone(), self.file(name));
        if let Err(reason) = host.admit(&kind, Some(served.clone())).await {
            return self.refuse(name, (Cause::Targets(version), reason), host);
        }
        self.registry.take(name, version);
        self.loaded(&kind, &served, host);
        if let Some((old, _)) = before.filter(|(old, _)| *old != kind) {
            self.fall_back(&old, host).await;
        }
        self.publish(host);
    }

    async fn take_away(&mut self, name: &str, host: &impl Admit) {
        if let Some(kind) = self.registry.remove(name) {
            tracing::info!("{} was removed", self.file(name));
            self.remembered.retain(|_, served| served.file != name);
            // The only other file of the kind takes over at once.
            for next in self.registry.to_judge_again() {
                self.read(OsString::from(next), host).await;
            }
            if self.registry.holder(&kind).is_none() {
                self.fall_back(&kind, host).await;
            }
        }
        self.publish(host);
    }

    /// Replaces the removed file of a kind by the built-in plugin if it fits the targets. Otherwise the kind has no
    /// plugin.
    async fn fall_back(&mut self, kind: &Kind, host: &impl Admit) {
        if let Some(plugin) = self.built_in.get(kind).cloned() {
            let served = self.served(plugin, BUILT_IN.to_owned());
            match host.admit(kind, Some(served.clone())).await {
                Ok(()) => return self.loaded(kind, &served, host),
                Err(reason) => tracing::warn!("the built-in plugin of kind {kind} does not take over: {reason}"),
            }
        }
        if let Err(reason) = host.admit(kind, None).await {
            // This fails only while the host ends.
            tracing::error!("kind {kind} keeps the plugin of a removed file: {reason}");
            return;
        }
        tracing::warn!(
            "no plugin serves kind {kind} any more; its targets are not polled until a plugin file is added"
        );
    }

    fn loaded(&self, kind: &Kind, served: &Served, host: &impl Admit) {
        let version = served.plugin.descriptor().version.clone();
        tracing::info!("{} serves kind {kind} with version {version}", served.source);
        host.record(EventKind::PluginLoaded { plugin: kind.clone(), version });
    }

    fn refuse(&mut self, name: &str, (cause, reason): (Cause<Plugin>, String), host: &impl Admit) {
        let known = self.registry.refused().any(|(file, why, _)| file == name && why == reason);
        self.registry.refuse(name, cause, reason.clone());
        self.publish(host);
        if known {
            return;
        }
        let file = self.file(name);
        tracing::warn!("{file} is refused: {reason}");
        host.record(EventKind::PluginRefused { file, reason });
    }

    /// Passes the refused files to the host and remembers the serving files.
    fn publish(&mut self, host: &impl Admit) {
        let (refused, candidates) = (self.refused(), self.candidates());
        host.publish(refused, candidates);
        self.remember();
    }

    /// Remembers the serving files. The record of a kind without a plugin is kept, because its file may return.
    fn remember(&mut self) {
        for (name, version) in self.registry.all_serving() {
            let sha256 = hex(&version.plugin.digest());
            self.remembered.insert(version.kind.clone(), LastServed { file: name.to_owned(), sha256 });
        }
        if self.written != self.remembered && self.record.write(&self.remembered) {
            self.written = self.remembered.clone();
        }
    }
}

/// Loads the built-in plugins concurrently, because the first start unpacks their machine code; not all at once,
/// because each takes a slot whose memory stays in use. Returns the loaded plugins by kind, and those that could not be
/// loaded.
async fn load_built_in(sandbox: &Sandbox, all: &[BuiltIn]) -> (BTreeMap<Kind, Plugin>, Vec<Refused>) {
    let (mut built_in, mut refused) = (BTreeMap::new(), Vec::new());
    let unpacked = &Arc::default();
    let loads = all.iter().map(|plugin| async move { (plugin, sandbox.load_built_in(*plugin, unpacked).await) });
    let mut loads = futures_util::stream::iter(loads).buffered(LOADED_AT_ONCE);
    while let Some((plugin, loaded)) = loads.next().await {
        match loaded {
            Ok(loaded) => {
                built_in.insert(loaded.descriptor().kind.clone(), loaded);
            }
            Err(refusal) => {
                refused.push(Refused { file: format!("{BUILT_IN} {}", plugin.kind), reason: refusal.message });
            }
        }
    }
    (built_in, refused)
}

/// Returns the name of a file for messages and keys.
fn shown(name: &OsString) -> String {
    name.to_string_lossy().into_owned()
}

/// Returns the source that polls the targets of a kind, or did so last: a file name, or the built-in plugin.
fn publisher(
    remembered: &BTreeMap<Kind, LastServed>,
    built_in: &BTreeMap<Kind, Plugin>,
    kind: &Kind,
) -> Option<String> {
    let file = remembered.get(kind).map(|served| served.file.clone());
    file.or_else(|| built_in.contains_key(kind).then(|| BUILT_IN.to_owned()))
}

/// Refuses a good version if the operator does not permit it.
fn trusted(trust: &Trust, name: &str, before: Option<&str>, version: Version<Plugin>) -> Verdict<Plugin> {
    let digest = hex(&version.plugin.digest());
    match trust.may_take_over((name, &digest), &version.kind, before) {
        Ok(()) => Ok(version),
        Err(reason) => Err((Cause::Trust, reason)),
    }
}

async fn judge(sandbox: &Sandbox, read: Result<Vec<u8>, String>) -> Verdict<Plugin> {
    let content = read.map_err(|why| (Cause::Content, why))?;
    let plugin = sandbox.load(&content).await.map_err(|refusal| {
        let cause = if refusal.is_passing() { Cause::Host } else { Cause::Content };
        (cause, refusal.message)
    })?;
    let kind = plugin.descriptor().kind.clone();
    if kind.is_email() {
        return Err((Cause::Content, format!("the host itself serves kind {kind}: give the plugin another kind")));
    }
    Ok(Version { kind, plugin })
}

/// Returns the version of a bad file that served last, if its compiled code is cached.
async fn last_good(sandbox: &Sandbox, remembered: &BTreeMap<Kind, LastServed>, name: &str) -> Option<Version<Plugin>> {
    let (kind, served) = remembered.iter().find(|(_, served)| served.file == name)?;
    let digest: Vec<u8> =
        (0..32).map(|n| u8::from_str_radix(served.sha256.get(2 * n..2 * n + 2)?, 16).ok()).collect::<Option<_>>()?;
    let plugin = sandbox.load_kept(digest.try_into().ok()?).await?;
    (plugin.descriptor().kind == *kind).then(|| Version { kind: kind.clone(), plugin })
}
