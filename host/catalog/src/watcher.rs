//! Plugins while the host runs: files come, change and go.

use crate::directory::PluginDirectory;
use crate::registry::{Cause, PluginRegistry, Verdict, Version};
use crate::served_record::{LastServed, ServedRecord};
use crate::{Admit, BUILT_IN, BuiltIn, PluginSet, Refused, Served, Trust, UsageCounter, hex};
use model::{EventKind, Kind};
use sandbox::{Plugin, Sandbox};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the directory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Files that could be taken if something else were different are judged again after this many looks.
const AGAIN: u32 = 10;

/// How a start treats files that are not compiled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncompiled {
    /// Compile them now: a command answers once.
    Compile,
    /// Compile them while the host runs: a start never waits for a file in the directory.
    Defer,
}

/// What looks after the plugins.
pub struct PluginWatcher {
    sandbox: Arc<Sandbox>,
    path: PathBuf,
    directory: PluginDirectory,
    registry: PluginRegistry<Plugin>,
    trust: Trust,
    record: ServedRecord,
    remembered: BTreeMap<Kind, LastServed>,
    /// What of that is on disk.
    written: BTreeMap<Kind, LastServed>,
    built_in: BTreeMap<Kind, Plugin>,
    /// Those of them that could not be loaded.
    unbuilt: Vec<Refused>,
    usage: BTreeMap<Kind, Arc<UsageCounter>>,
    set: PluginSet,
}

/// Where plugins and the catalog's records lie, and which plugins come with the host.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The directory that plugins are dropped into.
    pub plugins: &'a Path,
    /// The data directory.
    pub data: &'a Path,
    /// The plugins that come with the host.
    pub built_in: &'static [BuiltIn],
}

impl PluginWatcher {
    /// Loads the built-in plugins and those in the directory. A user's file beats the built-in one of its kind.
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
            if uncompiled_files == Uncompiled::Defer && read.as_ref().is_ok_and(|bytes| !sandbox.is_judged(bytes)) {
                tracing::info!("{} is compiled while the host runs", path.join(&name).display());
                directory.read_again(&shown(&name));
                let name = shown(&name);
                // What it was before goes on serving meanwhile.
                meanwhile.extend(last_good(&sandbox, &remembered, &name).await.map(|version| (name, version)));
                continue;
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
            // Its file is bad now, and nothing else serves its kind: what it was before serves on.
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

    /// What serves now.
    pub fn set(&self) -> &PluginSet {
        &self.set
    }

    /// Everything as the registry says it is.
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
        PluginSet::new(served, self.refused())
    }

    /// Checks the plugins found at a start with `fit`. A file that does not fit the targets of its kind is replaced by its
    /// earlier version, by the built-in plugin of its kind, or by none. `reason` words problems for the refusal.
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

    /// Refuses the first file whose removal reduces the number of problems. Returns whether there was one.
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
            // First its earlier version, if that is known, then the plugin that would serve without the file.
            let earlier = before.clone().map(|version| Some((version.plugin, self.file(&name))));
            for (other, is_earlier) in earlier.map(|other| (other, true)).into_iter().chain([(built_in, false)]) {
                let served = other.map(|(plugin, source)| self.served(plugin, source));
                let left = fit(Arc::new(self.set.with(&kind, served))).await.err().unwrap_or_default();
                if left.len() >= problems.len() {
                    continue;
                }
                let solved: Vec<P> = problems.iter().filter(|problem| !left.contains(problem)).cloned().collect();
                self.registry.refuse(&name, Cause::Targets, reason(&solved));
                self.registry.serve_with(&name, before.filter(|_| is_earlier));
                self.set = self.everything();
                return true;
            }
        }
        false
    }

    /// A plugin with its kind's account, which goes on whichever version runs.
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
                format!(" (the version before it, {}, goes on serving kind {})", descriptor.version, descriptor.kind)
            });
            Refused { file: self.file(name), reason: format!("{reason}{serves_on}") }
        };
        self.unbuilt.iter().cloned().chain(self.registry.refused().map(refusal)).collect()
    }

    /// Looks at the directory until the host ends, and takes up what has changed.
    pub async fn watch(mut self, host: Arc<impl Admit>, ending: CancellationToken) {
        self.remember();
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut looks = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = ending.cancelled() => return,
            }
            looks += 1;
            if looks % AGAIN == 0 {
                self.judge_again(&*host);
            }
            // Uncompiled a file takes as long as compiling it; the host may end meanwhile.
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

    /// Does something with the directory where it may wait for a disk or a server.
    async fn blocking<T: Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut PluginDirectory) -> T + Send + 'static,
    ) -> Option<T> {
        let mut directory = std::mem::replace(&mut self.directory, PluginDirectory::new(&self.path));
        let done = tokio::task::spawn_blocking(move || (act(&mut directory), directory)).await;
        // It fails only where the host ends.
        let (result, directory) = done.ok()?;
        self.directory = directory;
        Some(result)
    }

    /// A file was judged: it serves from now on, or it is refused and changes nothing else.
    async fn take(&mut self, name: &str, verdict: Verdict<Plugin>, host: &impl Admit) {
        let version = match verdict {
            Ok(version) => version,
            Err(refusal) => return self.refuse(name, refusal, host),
        };
        let kind = version.kind.clone();
        let before = self.registry.serving(name).map(|version| (version.kind.clone(), version.plugin.digest()));
        if before == Some((kind.clone(), version.plugin.digest())) {
            // What it was before it was something bad, or touched and not changed.
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
            return self.refuse(name, (Cause::Targets, reason), host);
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
            tracing::info!("{} is gone", self.file(name));
            self.remembered.retain(|_, served| served.file != name);
            // The only other file of its kind takes over at once.
            for next in self.registry.to_judge_again() {
                self.read(OsString::from(next), host).await;
            }
            if self.registry.holder(&kind).is_none() {
                self.fall_back(&kind, host).await;
            }
        }
        self.publish(host);
    }

    /// A kind has lost its file: the built-in plugin serves it, where there is one that fits its targets; else nobody.
    async fn fall_back(&mut self, kind: &Kind, host: &impl Admit) {
        if let Some(plugin) = self.built_in.get(kind).cloned() {
            let served = self.served(plugin, BUILT_IN.to_owned());
            match host.admit(kind, Some(served.clone())).await {
                Ok(()) => return self.loaded(kind, &served, host),
                Err(reason) => tracing::warn!("the built-in plugin of kind {kind} does not take over: {reason}"),
            }
        }
        if let Err(reason) = host.admit(kind, None).await {
            // Only a host that ends does not take that.
            tracing::error!("kind {kind} keeps the plugin of a file that is gone: {reason}");
            return;
        }
        tracing::warn!("no plugin serves kind {kind} any more; its targets are not polled until one is dropped in");
    }

    fn loaded(&self, kind: &Kind, served: &Served, host: &impl Admit) {
        let version = served.plugin.descriptor().version.clone();
        tracing::info!("{} serves kind {kind} with version {version}", served.source);
        host.record(EventKind::PluginLoaded { plugin: kind.clone(), version });
    }

    fn refuse(&mut self, name: &str, (cause, reason): (Cause, String), host: &impl Admit) {
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

    /// Shows what is refused, and remembers what serves.
    fn publish(&mut self, host: &impl Admit) {
        let refused = self.refused();
        host.refuse(refused);
        self.remember();
    }

    /// Of kinds that nobody serves what is remembered stays: their file may only be late.
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

/// Loads the plugins that come with the host, side by side, because each may have to be compiled first. Returns them by kind,
/// and those that could not be loaded.
async fn load_built_in(sandbox: &Sandbox, all: &[BuiltIn]) -> (BTreeMap<Kind, Plugin>, Vec<Refused>) {
    let (mut built_in, mut refused) = (BTreeMap::new(), Vec::new());
    let uncompiled = all.iter().filter(|plugin| !sandbox.is_judged(plugin.component)).count();
    if uncompiled > 0 {
        tracing::info!(
            "compiling {uncompiled} built-in plugins, as at the first start of each version of this program: that takes some \
             seconds"
        );
    }
    let loads = all.iter().map(|plugin| sandbox.load(plugin.component));
    for (plugin, loaded) in all.iter().zip(futures_util::future::join_all(loads).await) {
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

/// A file's name, as it is shown and told apart.
fn shown(name: &OsString) -> String {
    name.to_string_lossy().into_owned()
}

/// Who polls the targets of a kind, or did last: a file's name, or the plugin that came with the host.
fn publisher(
    remembered: &BTreeMap<Kind, LastServed>,
    built_in: &BTreeMap<Kind, Plugin>,
    kind: &Kind,
) -> Option<String> {
    let file = remembered.get(kind).map(|served| served.file.clone());
    file.or_else(|| built_in.contains_key(kind).then(|| BUILT_IN.to_owned()))
}

/// A good version, where an operator has nothing against it.
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
    Ok(Version { kind: plugin.descriptor().kind.clone(), plugin })
}

/// What a file that is bad now was when it served last, where its machine code was kept.
async fn last_good(sandbox: &Sandbox, remembered: &BTreeMap<Kind, LastServed>, name: &str) -> Option<Version<Plugin>> {
    let (kind, served) = remembered.iter().find(|(_, served)| served.file == name)?;
    let digest: Vec<u8> =
        (0..32).map(|n| u8::from_str_radix(served.sha256.get(2 * n..2 * n + 2)?, 16).ok()).collect::<Option<_>>()?;
    let plugin = sandbox.load_kept(digest.try_into().ok()?).await?;
    (plugin.descriptor().kind == *kind).then(|| Version { kind: kind.clone(), plugin })
}
