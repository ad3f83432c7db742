//! Plugins while the host runs: files come, change and go.

use super::folder::Folder;
use super::last::{self, Last};
use super::shelf::{Cause, Shelf, Version};
use super::{BUILT_IN, PluginSet, Refused, Served, hex};
use crate::configurator::Configurator;
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
const AGAIN: u32 = 30;

/// What looks after the plugins.
pub(crate) struct Keeper {
    sandbox: Arc<Sandbox>,
    path: PathBuf,
    folder: Folder,
    shelf: Shelf<Plugin>,
    last: Last,
    built_in: BTreeMap<Kind, Plugin>,
    set: PluginSet,
}

/// What a running host gives it to work with.
pub(crate) struct Place {
    /// Who checks a plugin against the targets of its kind, and hands it to the driver.
    pub configurator: Arc<Configurator>,
    /// Where events go.
    pub store: Arc<Store>,
    /// Time.
    pub clock: crate::clock::Clock,
}

impl Keeper {
    /// Loads the built-in plugins and those in the directory. A user's file beats the built-in one of its kind.
    pub(crate) async fn start(sandbox: Arc<Sandbox>, path: &Path, data_dir: &Path) -> Self {
        let mut built_in = BTreeMap::new();
        let mut refused = Vec::new();
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
        let (mut folder, mut judged, mut spare) = (Folder::new(path), Vec::new(), Vec::new());
        for name in folder.first_look() {
            let Some(read) = folder.read(&name) else { continue };
            let (name, verdict) = (shown(&name), judge(&sandbox, read).await);
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
                shelf.keep_serving(&name, version);
            }
        }
        let mut keeper =
            Self { sandbox, path: path.to_owned(), folder, shelf, last, built_in, set: PluginSet::default() };
        keeper.set = keeper.everything(refused);
        keeper
    }

    /// What serves now.
    pub(crate) fn set(&self) -> &PluginSet {
        &self.set
    }

    /// Everything as the shelf says it is.
    fn everything(&self, mut refused: Vec<Refused>) -> PluginSet {
        let mut served = BTreeMap::new();
        for (kind, plugin) in &self.built_in {
            served.insert(kind.clone(), self.served(plugin.clone(), BUILT_IN.to_owned()));
        }
        for (name, version) in self.shelf.all_serving() {
            if served.contains_key(&version.kind) {
                tracing::info!("{} replaces the built-in plugin of kind {}", self.file(name), version.kind);
            }
            served.insert(version.kind.clone(), self.served(version.plugin.clone(), self.file(name)));
        }
        refused.extend(self.refused());
        PluginSet { served, refused }
    }

    /// A plugin with its kind's account, which goes on whichever version runs.
    fn served(&self, plugin: Plugin, source: String) -> Arc<Served> {
        let account = self.set.get(&plugin.descriptor().kind).map(|served| served.account.clone());
        Arc::new(Served { plugin, source, account: account.unwrap_or_default() })
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
        self.shelf.refused().map(refusal).collect()
    }

    /// Looks at the directory until the host ends, and takes up what has changed.
    pub(crate) async fn watch(mut self, place: Place, ending: CancellationToken) {
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
                self.judge_again();
            }
            // Judging a file takes as long as compiling it; the host may end meanwhile.
            tokio::select! {
                () = self.look(&place) => {}
                () = ending.cancelled() => return,
            }
        }
    }

    fn judge_again(&mut self) {
        for name in self.shelf.to_judge_again() {
            self.folder.read_again(&name);
        }
    }

    async fn look(&mut self, place: &Place) {
        let Some(look) = self.blocking(Folder::look).await else { return };
        for name in look.gone {
            self.take_away(&shown(&name), place).await;
        }
        for name in look.ready {
            let wanted = name.clone();
            let Some(Some(read)) = self.blocking(move |folder| folder.read(&wanted)).await else { continue };
            let verdict = judge(&self.sandbox, read).await;
            self.take(&shown(&name), verdict, place).await;
        }
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
    async fn take(&mut self, name: &str, verdict: Result<Version<Plugin>, String>, place: &Place) {
        let version = match verdict {
            Ok(version) => version,
            Err(reason) => return self.refuse(name, (Cause::Content, reason), place),
        };
        let kind = version.kind.clone();
        let before = self.shelf.serving(name).map(|version| (version.kind.clone(), version.plugin.digest()));
        if before == Some((kind.clone(), version.plugin.digest())) {
            // What it was before it was something bad, or touched and not changed.
            self.shelf.take(name, version);
            return self.publish(place);
        }
        if let Err(reason) = self.shelf.may_serve(name, &kind) {
            return self.refuse(name, (Cause::Rival(kind), reason), place);
        }
        let served = self.served(version.plugin.clone(), self.file(name));
        if let Err(reason) = place.configurator.plug(&kind, Some(served)).await {
            return self.refuse(name, (Cause::Targets, reason), place);
        }
        self.shelf.take(name, version);
        self.loaded(&kind, place);
        if let Some((old, _)) = before.filter(|(old, _)| *old != kind) {
            self.fall_back(&old, place).await;
        }
        self.publish(place);
    }

    async fn take_away(&mut self, name: &str, place: &Place) {
        if let Some(kind) = self.shelf.remove(name) {
            tracing::info!("{} is gone", self.file(name));
            self.fall_back(&kind, place).await;
        }
        self.judge_again();
        self.publish(place);
    }

    /// A kind has lost its file: the built-in plugin serves it, where there is one that fits its targets; else nobody.
    async fn fall_back(&mut self, kind: &Kind, place: &Place) {
        if let Some(plugin) = self.built_in.get(kind) {
            let served = self.served(plugin.clone(), BUILT_IN.to_owned());
            match place.configurator.plug(kind, Some(served)).await {
                Ok(()) => return self.loaded(kind, place),
                Err(reason) => tracing::warn!("the built-in plugin of kind {kind} does not take over: {reason}"),
            }
        }
        if let Err(reason) = place.configurator.plug(kind, None).await {
            tracing::error!("kind {kind} keeps the plugin of a file that is gone: {reason}");
        }
        tracing::warn!("no plugin serves kind {kind} any more; its targets are not polled until one is dropped in");
    }

    fn loaded(&mut self, kind: &Kind, place: &Place) {
        let set = place.configurator.plugins();
        let Some(served) = set.get(kind) else { return };
        let version = served.plugin.descriptor().version.clone();
        tracing::info!("{} serves kind {kind} with version {version}", served.source);
        let kind = EventKind::PluginLoaded { plugin: kind.clone(), version };
        place.store.writer().event(Event { at: place.clock.wall(), kind });
    }

    fn refuse(&mut self, name: &str, (cause, reason): (Cause, String), place: &Place) {
        let known = self.shelf.refused().any(|(file, why, _)| file == name && why == reason);
        self.shelf.refuse(name, cause, reason.clone());
        self.publish(place);
        if known {
            return;
        }
        let file = self.file(name);
        tracing::warn!("{file} is refused: {reason}");
        place.store.writer().event(Event { at: place.clock.wall(), kind: EventKind::PluginRefused { file, reason } });
    }

    /// Shows what is refused, and remembers what serves.
    fn publish(&mut self, place: &Place) {
        let of_built_in = self.set.refused.iter().filter(|refused| refused.file.starts_with(BUILT_IN)).cloned();
        let refused: Vec<Refused> = of_built_in.chain(self.refused()).collect();
        self.set = place.configurator.refuse_plugins(|set| set.refusing(refused));
        self.remember();
    }

    fn remember(&self) {
        let served = self.shelf.all_serving().map(|(name, version)| {
            let sha256 = hex(&version.plugin.digest());
            (version.kind.clone(), last::Served { file: name.to_owned(), sha256 })
        });
        let served: BTreeMap<_, _> = served.collect();
        if self.last.read() != served {
            self.last.write(&served);
        }
    }
}

/// A file's name, as it is shown and told apart.
fn shown(name: &OsString) -> String {
    name.to_string_lossy().into_owned()
}

async fn judge(sandbox: &Sandbox, read: Result<Vec<u8>, String>) -> Result<Version<Plugin>, String> {
    let plugin = sandbox.load(&read?).await.map_err(|refusal| refusal.message)?;
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
