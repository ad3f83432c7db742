//! Plugins while the host runs: files come, change and go.

use super::account::Account;
use super::folder::Folder;
use super::last::{self, Last};
use super::shelf::{Cause, Shelf, Verdict, Version};
use super::{BUILT_IN, PluginSet, Refused, Served, Trust, hex};
use crate::common::Document;
use crate::configurator::{Checker, Configurator, Fitted, misfit};
use crate::estate::Files;
use config::{Overrides, Problem};
use model::{Event, EventKind, Kind};
use sandbox::{Plugin, Sandbox};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio_util::sync::CancellationToken;

/// How often the directory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Files that could be taken if something else were different are judged again after this many looks.
const AGAIN: u32 = 10;

/// What becomes at a start of files that must be compiled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judging {
    /// They are waited for: a command answers once.
    All,
    /// They are judged while the host runs: a start never waits for a stranger's file.
    Known,
}

/// What looks after the plugins.
pub(crate) struct Keeper {
    sandbox: Arc<Sandbox>,
    path: PathBuf,
    folder: Folder,
    shelf: Shelf<Plugin>,
    trust: Trust,
    last: Last,
    remembered: BTreeMap<Kind, last::Served>,
    /// What of that is on disk.
    written: BTreeMap<Kind, last::Served>,
    built_in: BTreeMap<Kind, Plugin>,
    /// Those of them that could not be loaded.
    unbuilt: Vec<Refused>,
    accounts: BTreeMap<Kind, Arc<Account>>,
    set: PluginSet,
}

/// What a running host gives it to work with.
pub(crate) struct Parts {
    /// Who checks a plugin against the targets of its kind, and hands it to the driver.
    pub configurator: Arc<Configurator>,
    /// Where events go.
    pub store: Arc<Store>,
    /// Time.
    pub clock: crate::clock::Clock,
}

impl Keeper {
    /// Loads the built-in plugins and those in the directory. A user's file beats the built-in one of its kind.
    pub(crate) async fn start(
        sandbox: Arc<Sandbox>,
        (path, data_dir): (&Path, &Path),
        trust: Trust,
        judging: Judging,
    ) -> Self {
        let mut built_in = BTreeMap::new();
        let mut refused = Vec::new();
        let uncompiled = builtin::ALL.iter().filter(|builtin| !sandbox.is_judged(builtin.component)).count();
        if uncompiled > 0 {
            tracing::info!(
                "compiling {uncompiled} built-in plugins, as at the first start of each version of this program: that takes some \
                 seconds"
            );
        }
        // Compiled side by side when they are compiled for the first time.
        let loads = builtin::ALL.iter().map(|builtin| sandbox.load(builtin.component));
        for (builtin, loaded) in builtin::ALL.iter().zip(futures_util::future::join_all(loads).await) {
            match loaded {
                Ok(plugin) => drop(built_in.insert(plugin.descriptor().kind.clone(), plugin)),
                Err(refusal) => {
                    refused.push(Refused { file: format!("{BUILT_IN} {}", builtin.kind), reason: refusal.message });
                }
            }
        }
        let last = Last::new(data_dir);
        let remembered = last.read();
        let (mut folder, mut judged) = (Folder::new(path), Vec::new());
        let (mut spare, mut meanwhile) = (Vec::new(), Vec::new());
        for name in folder.first_look() {
            let Some(read) = folder.read(&name) else { continue };
            if judging == Judging::Known && read.as_ref().is_ok_and(|bytes| !sandbox.is_judged(bytes)) {
                tracing::info!("{} is compiled while the host runs", path.join(&name).display());
                folder.read_again(&shown(&name));
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
        let mut shelf = Shelf::new(judged, &files);
        for (name, version) in spare {
            // Its file is bad now, and nothing else serves its kind: what it was before serves on.
            if shelf.holder(&version.kind).is_none() {
                shelf.serve_with(&name, Some(version));
            }
        }
        for (name, version) in meanwhile {
            if shelf.holder(&version.kind).is_none() {
                shelf.take(&name, version);
            }
        }
        let mut keeper = Self {
            sandbox,
            path: path.to_owned(),
            folder,
            shelf,
            trust,
            last,
            written: remembered.clone(),
            remembered,
            built_in,
            unbuilt: refused,
            accounts: BTreeMap::new(),
            set: PluginSet::default(),
        };
        keeper.set = keeper.everything();
        keeper
    }

    /// What serves now.
    pub(crate) fn set(&self) -> &PluginSet {
        &self.set
    }

    /// Everything as the shelf says it is.
    fn everything(&mut self) -> PluginSet {
        let mut served = BTreeMap::new();
        for (kind, plugin) in self.built_in.clone() {
            served.insert(kind, self.served(plugin, BUILT_IN.to_owned()));
        }
        let of_files: Vec<_> =
            self.shelf.all_serving().map(|(name, version)| (self.file(name), version.clone())).collect();
        for (file, Version { kind, plugin }) in of_files {
            if served.contains_key(&kind) {
                tracing::info!("{file} replaces the built-in plugin of kind {kind}");
            }
            served.insert(kind, self.served(plugin, file));
        }
        PluginSet { served, refused: self.refused() }
    }

    /// What was found at a start, held against the configuration: a file that does not fit its targets gives way to what
    /// it was before, to the built-in plugin of its kind, or to nothing. What then is still wrong is not the plugins'.
    pub(crate) async fn hold_against(
        &mut self,
        checker: &Checker,
        document: &Document,
    ) -> Result<Fitted, Vec<Problem>> {
        loop {
            checker.set_plugins(Arc::new(self.set.clone()));
            match fit(checker, document).await {
                Ok(fitted) => return Ok(fitted),
                Err(problems) if !self.give_way(checker, document, &problems).await => return Err(problems),
                Err(_) => {}
            }
        }
    }

    /// Refuses the first file without which less is wrong.
    async fn give_way(&mut self, checker: &Checker, document: &Document, problems: &[Problem]) -> bool {
        let serving: Vec<_> =
            self.shelf.all_serving().map(|(name, version)| (name.to_owned(), version.clone())).collect();
        for (name, Version { kind, plugin }) in serving {
            let before = last_good(&self.sandbox, &self.remembered, &name).await;
            let before = before.filter(|before| before.plugin.digest() != plugin.digest());
            let built_in = self.built_in.get(&kind).cloned().map(|plugin| (plugin, BUILT_IN.to_owned()));
            // What it was before, where that is known; then what would serve if it were not there.
            let earlier = before.clone().map(|version| Some((version.plugin, self.file(&name))));
            for (other, is_earlier) in earlier.map(|other| (other, true)).into_iter().chain([(built_in, false)]) {
                let served = other.map(|(plugin, source)| self.served(plugin, source));
                checker.set_plugins(Arc::new(self.set.with(&kind, served)));
                let left = fit(checker, document).await.err().unwrap_or_default();
                if left.len() >= problems.len() {
                    continue;
                }
                let solved: Vec<Problem> = problems.iter().filter(|problem| !left.contains(problem)).cloned().collect();
                self.shelf.refuse(&name, Cause::Targets, misfit(&solved));
                self.shelf.serve_with(&name, before.filter(|_| is_earlier));
                self.set = self.everything();
                return true;
            }
        }
        false
    }

    /// A plugin with its kind's account, which goes on whichever version runs.
    fn served(&mut self, plugin: Plugin, source: String) -> Arc<Served> {
        let account = self.accounts.entry(plugin.descriptor().kind.clone()).or_default().clone();
        Arc::new(Served { plugin, source, account })
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
        self.unbuilt.iter().cloned().chain(self.shelf.refused().map(refusal)).collect()
    }

    /// Looks at the directory until the host ends, and takes up what has changed.
    pub(crate) async fn watch(mut self, parts: Parts, ending: CancellationToken) {
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
                self.judge_again(&parts);
            }
            // Judging a file takes as long as compiling it; the host may end meanwhile.
            tokio::select! {
                () = self.look(&parts) => {}
                () = ending.cancelled() => return,
            }
        }
    }

    fn judge_again(&mut self, parts: &Parts) {
        self.trust.used_by(parts.configurator.kinds_in_use());
        for name in self.shelf.to_judge_again() {
            self.folder.read_again(&name);
        }
    }

    async fn look(&mut self, parts: &Parts) {
        let Some(look) = self.blocking(Folder::look).await else { return };
        for name in look.gone {
            self.take_away(&shown(&name), parts).await;
        }
        for name in look.ready {
            self.read(name, parts).await;
        }
    }

    async fn read(&mut self, name: OsString, parts: &Parts) {
        let wanted = name.clone();
        let Some(Some(read)) = self.blocking(move |folder| folder.read(&wanted)).await else { return };
        let verdict = judge(&self.sandbox, read).await;
        self.take(&shown(&name), verdict, parts).await;
    }

    /// Does something with the directory where it may wait for a disk or a server.
    async fn blocking<T: Send + 'static>(&mut self, act: impl FnOnce(&mut Folder) -> T + Send + 'static) -> Option<T> {
        let mut folder = std::mem::replace(&mut self.folder, Folder::new(&self.path));
        let done = tokio::task::spawn_blocking(move || (act(&mut folder), folder)).await;
        // It fails only where the host ends.
        let (result, folder) = done.ok()?;
        self.folder = folder;
        Some(result)
    }

    /// A file was judged: it serves from now on, or it is refused and changes nothing else.
    async fn take(&mut self, name: &str, verdict: Verdict<Plugin>, parts: &Parts) {
        let version = match verdict {
            Ok(version) => version,
            Err(refusal) => return self.refuse(name, refusal, parts),
        };
        let kind = version.kind.clone();
        let before = self.shelf.serving(name).map(|version| (version.kind.clone(), version.plugin.digest()));
        if before == Some((kind.clone(), version.plugin.digest())) {
            // What it was before it was something bad, or touched and not changed.
            self.shelf.take(name, version);
            return self.publish(parts);
        }
        if let Err(reason) = self.shelf.may_serve(name, &kind) {
            return self.refuse(name, (Cause::Rival(kind), reason), parts);
        }
        self.trust.used_by(parts.configurator.kinds_in_use());
        let publisher = publisher(&self.remembered, &self.built_in, &kind);
        let version = match trusted(&self.trust, name, publisher.as_deref(), version) {
            Ok(version) => version,
            Err(refusal) => return self.refuse(name, refusal, parts),
        };
        let served = self.served(version.plugin.clone(), self.file(name));
        if let Err(reason) = parts.configurator.plug(&kind, Some(served)).await {
            return self.refuse(name, (Cause::Targets, reason), parts);
        }
        self.shelf.take(name, version);
        self.loaded(&kind, parts);
        if let Some((old, _)) = before.filter(|(old, _)| *old != kind) {
            self.fall_back(&old, parts).await;
        }
        self.publish(parts);
    }

    async fn take_away(&mut self, name: &str, parts: &Parts) {
        if let Some(kind) = self.shelf.remove(name) {
            tracing::info!("{} is gone", self.file(name));
            self.remembered.retain(|_, served| served.file != name);
            // The only other file of its kind takes over at once.
            for next in self.shelf.to_judge_again() {
                self.read(OsString::from(next), parts).await;
            }
            if self.shelf.holder(&kind).is_none() {
                self.fall_back(&kind, parts).await;
            }
        }
        self.publish(parts);
    }

    /// A kind has lost its file: the built-in plugin serves it, where there is one that fits its targets; else nobody.
    async fn fall_back(&mut self, kind: &Kind, parts: &Parts) {
        if let Some(plugin) = self.built_in.get(kind).cloned() {
            let served = self.served(plugin, BUILT_IN.to_owned());
            match parts.configurator.plug(kind, Some(served)).await {
                Ok(()) => return self.loaded(kind, parts),
                Err(reason) => tracing::warn!("the built-in plugin of kind {kind} does not take over: {reason}"),
            }
        }
        if let Err(reason) = parts.configurator.plug(kind, None).await {
            // Only a host that ends does not take that.
            tracing::error!("kind {kind} keeps the plugin of a file that is gone: {reason}");
            return;
        }
        tracing::warn!("no plugin serves kind {kind} any more; its targets are not polled until one is dropped in");
    }

    fn loaded(&mut self, kind: &Kind, parts: &Parts) {
        let set = parts.configurator.plugins();
        let Some(served) = set.get(kind) else { return };
        let version = served.plugin.descriptor().version.clone();
        tracing::info!("{} serves kind {kind} with version {version}", served.source);
        let kind = EventKind::PluginLoaded { plugin: kind.clone(), version };
        parts.store.writer().event(Event { at: parts.clock.wall(), kind });
    }

    fn refuse(&mut self, name: &str, (cause, reason): (Cause, String), parts: &Parts) {
        let known = self.shelf.refused().any(|(file, why, _)| file == name && why == reason);
        self.shelf.refuse(name, cause, reason.clone());
        self.publish(parts);
        if known {
            return;
        }
        let file = self.file(name);
        tracing::warn!("{file} is refused: {reason}");
        parts.store.writer().event(Event { at: parts.clock.wall(), kind: EventKind::PluginRefused { file, reason } });
    }

    /// Shows what is refused, and remembers what serves.
    fn publish(&mut self, parts: &Parts) {
        let refused = self.refused();
        self.set = parts.configurator.refuse_plugins(|set| set.refusing(refused));
        self.remember();
    }

    /// Of kinds that nobody serves what is remembered stays: their file may only be late.
    fn remember(&mut self) {
        for (name, version) in self.shelf.all_serving() {
            let sha256 = hex(&version.plugin.digest());
            self.remembered.insert(version.kind.clone(), last::Served { file: name.to_owned(), sha256 });
        }
        if self.written != self.remembered && self.last.write(&self.remembered) {
            self.written = self.remembered.clone();
        }
    }
}

/// A file's name, as it is shown and told apart.
fn shown(name: &OsString) -> String {
    name.to_string_lossy().into_owned()
}

async fn fit(checker: &Checker, document: &Document) -> Result<Fitted, Vec<Problem>> {
    checker.fit(document, Overrides::new(), (&BTreeMap::new(), Files::Reread)).await
}

/// Who polls the targets of a kind, or did last: a file's name, or the plugin that came with the host.
fn publisher(
    remembered: &BTreeMap<Kind, last::Served>,
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
async fn last_good(
    sandbox: &Sandbox,
    remembered: &BTreeMap<Kind, last::Served>,
    name: &str,
) -> Option<Version<Plugin>> {
    let (kind, served) = remembered.iter().find(|(_, served)| served.file == name)?;
    let digest: Vec<u8> =
        (0..32).map(|n| u8::from_str_radix(served.sha256.get(2 * n..2 * n + 2)?, 16).ok()).collect::<Option<_>>()?;
    let plugin = sandbox.load_kept(digest.try_into().ok()?).await?;
    (plugin.descriptor().kind == *kind).then(|| Version { kind: kind.clone(), plugin })
}
