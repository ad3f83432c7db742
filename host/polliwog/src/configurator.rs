//! The configuration of a running host: read again when its file changes, one that it names (a secret), or a setting.
//!
//! There is one way to take up a change: the whole configuration is checked as at a start, compared with what runs, and
//! what is different is handed to the driver. A file with a problem changes nothing and is shown. A setting that was
//! changed while the host ran and does not fit the file any more is parked: it is kept, shown, and not in force.

mod difference;
mod watch;

pub(crate) use watch::Named;

use crate::common::Document;
use crate::driver::{Configured, Message};
use crate::estate::{self, Files, Target};
use crate::plugins::{PluginSet, Served};
use config::{CHANGEABLE, Config, Overrides, Places, Problem, Source, scheduler_values, setting};
use model::{Event, EventKind, Kind, TargetId};
use sandbox::Sandbox;
use scheduler::Change;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use store::{Known, Store};
use tokio::sync::Mutex;
use web::{CommandError, SettingView, SettingsView};

/// What is known of so many targets that are in the file no more is kept in memory, in case they come back.
pub(crate) const DORMANT: usize = 10_000;
/// How long a change waits to be on disk before whoever made it is told that it is not.
const DURABLE: Duration = Duration::from_secs(10);

/// What changes a running host's configuration.
pub(crate) struct Configurator {
    parts: Parts,
    state: Mutex<State>,
    /// What anybody may look at without waiting.
    shown: RwLock<Shown>,
}

/// What checks a configuration.
pub(crate) struct Checker {
    /// Where configuration and data lie.
    pub places: Places,
    /// The port of the simulated services, where there are any.
    pub demo: Option<u16>,
    /// Who checks settings.
    pub sandbox: Arc<Sandbox>,
    /// Who serves which kind.
    pub plugins: RwLock<Arc<PluginSet>>,
}

/// What it is made of.
pub(crate) struct Parts {
    /// Time.
    pub clock: crate::clock::Clock,
    /// What checks a configuration.
    pub checker: Checker,
    /// Where settings are kept.
    pub store: Arc<Store>,
    /// Where changes go.
    pub sender: std::sync::mpsc::SyncSender<Message>,
}

/// A configuration with the settings that fit it.
pub(crate) struct Fitted {
    /// What is in force.
    pub config: Config,
    /// Every setting that is kept.
    pub overrides: Overrides,
    /// Those of them that are not in force, with what is wrong.
    pub parked: BTreeMap<String, String>,
    /// Its targets.
    pub targets: BTreeMap<TargetId, Arc<Target>>,
}

impl Fitted {
    /// Whether what it is made of says the same: secrets and certificates too.
    fn is_same(&self, before: &Self) -> bool {
        let same = |target: &Arc<Target>| {
            let before = before.targets.get(target.id());
            before.is_some_and(|before| target.change_from(before) == Change::Nothing)
        };
        self.targets.len() == before.targets.len() && self.targets.values().all(same)
    }
}

struct State {
    document: Document,
    fitted: Fitted,
    /// Why the file as it is now is not what is in force; nothing where it is.
    problems: Vec<String>,
    /// What is known of targets that are in the file no more, in case they come back.
    dormant: HashMap<TargetId, Known>,
    /// What the host was started with: some of it stays in force until the next start.
    started: Config,
}

struct Shown {
    names: HashMap<TargetId, String>,
    kinds: BTreeSet<Kind>,
    settings: SettingsView,
}

impl Checker {
    /// Who serves which kind now.
    pub(crate) fn plugins(&self) -> Arc<PluginSet> {
        self.plugins.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks with these from now on.
    pub(crate) fn set_plugins(&self, plugins: Arc<PluginSet>) {
        *self.plugins.write().unwrap_or_else(PoisonError::into_inner) = plugins;
    }

    /// Checks a document with the settings that were changed while the host ran; those that do not fit it are parked.
    pub(crate) async fn fit(
        &self,
        document: &Document,
        overrides: Overrides,
        (before, files): (&BTreeMap<TargetId, Arc<Target>>, Files),
    ) -> Result<Fitted, Vec<Problem>> {
        let read = |overrides: &Overrides| document.config(&self.places, self.demo, overrides);
        let (config, parked) = match read(&overrides) {
            Ok(config) => (config, BTreeMap::new()),
            Err(_) => park(read, &overrides)?,
        };
        let targets = estate::build(&config, (&self.sandbox, &self.plugins()), before, files).await?;
        let targets = targets.into_iter().map(|target| (target.id().clone(), target)).collect();
        Ok(Fitted { config, overrides, parked, targets })
    }
}

/// Of settings that do not all fit: the configuration with as many as fit, and what is wrong with the others.
fn park(
    read: impl Fn(&Overrides) -> Result<Config, Vec<Problem>>,
    overrides: &Overrides,
) -> Result<(Config, BTreeMap<String, String>), Vec<Problem>> {
    // The file by itself, or nothing.
    let mut config = read(&Overrides::new())?;
    // Whether a target is polled fits any file; the others are tried one by one.
    let (mut accepted, mut others): (Overrides, Overrides) =
        overrides.clone().into_iter().partition(|(key, _)| key.ends_with(".enabled"));
    match read(&accepted) {
        Ok(found) => config = found,
        Err(_) => others.append(&mut accepted),
    }
    // One may fit only once another does: bounds, and what lies between them.
    loop {
        let (before, mut parked) = (others.len(), BTreeMap::new());
        for (key, value) in std::mem::take(&mut others) {
            accepted.insert(key.clone(), value.clone());
            match read(&accepted) {
                Ok(found) => config = found,
                Err(problems) => {
                    accepted.remove(&key);
                    parked.insert(key.clone(), first(&problems));
                    others.insert(key, value);
                }
            }
        }
        if others.len() == before || others.is_empty() {
            return Ok((config, parked));
        }
    }
}

/// Why a plugin does not serve: the first few of what is wrong, because there may be one for each of thousands of targets.
pub(crate) fn misfit(problems: &[Problem]) -> String {
    format!("it does not fit the configuration: {}", first(problems))
}

/// The first few of many problems: a bound may be too narrow for each of thousands of targets.
fn first(problems: &[Problem]) -> String {
    const SHOWN: usize = 5;
    let more = problems.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more problems") } else { String::new() };
    format!("{}{more}", all(&problems[..problems.len().min(SHOWN)]))
}

/// Problems as one sentence after another.
fn all(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Configurator {
    /// For a host that runs with this, and knows this of targets that are in the file no more.
    pub(crate) fn new(parts: Parts, document: Document, fitted: Fitted, dormant: HashMap<TargetId, Known>) -> Self {
        let started = fitted.config.clone();
        let state = State { document, fitted, problems: Vec::new(), dormant, started };
        let shown = RwLock::new(Shown { names: state.names(), kinds: state.kinds(), settings: state.view() });
        Self { parts, state: Mutex::new(state), shown }
    }

    /// A target's name.
    pub(crate) fn name(&self, target: &TargetId) -> Option<String> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).names.get(target).cloned()
    }

    /// Every setting with its value and where that comes from.
    pub(crate) fn view(&self) -> SettingsView {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).settings.clone()
    }

    /// Problems that keep what is configured from being in force.
    pub(crate) fn problems(&self) -> usize {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).settings.problems.len()
    }

    /// Changes settings while the host runs; a value of nothing unsets. All of them, or none.
    ///
    /// Goes on when whoever asked has left: half a change would be worse than one that nobody waits for.
    pub(crate) async fn set(self: Arc<Self>, changes: Vec<(String, Option<String>)>) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        tokio::spawn(async move { self.change(changes).await }).await.map_err(|_| ending())?
    }

    async fn change(&self, mut changes: Vec<(String, Option<String>)>) -> Result<(), CommandError> {
        let mut state = self.state.lock().await;
        self.enable_as_written(&state, &mut changes);
        let mut overrides = state.fitted.overrides.clone();
        for (key, value) in &changes {
            state.may_change(key, value.is_some())?;
            match value {
                Some(value) => drop(overrides.insert(key.clone(), value.clone())),
                None => drop(overrides.remove(key)),
            }
        }
        let document = state.document.clone();
        let fitted = self.parts.checker.fit(&document, overrides, (&state.fitted.targets, Files::Kept)).await;
        let fitted = fitted.map_err(|problems| CommandError::Invalid(all(&problems)))?;
        for (key, problem) in &fitted.parked {
            let sent = changes.iter().any(|(changed, value)| changed == key && value.is_some());
            // One that was in force and would no longer be is as good a reason to refuse.
            if sent || !state.fitted.parked.contains_key(key) {
                return Err(CommandError::Invalid(problem.clone()));
            }
        }
        self.take_up(&mut state, (document, fitted), None).await.map_err(CommandError::Conflict)?;
        for (key, value) in &changes {
            match value {
                Some(value) => {
                    tracing::info!("the setting {key} is now {value}, and wins over the file until it is unset");
                }
                None => tracing::info!("the setting {key} is unset"),
            }
        }
        let kept = self.parts.store.writer().settings(changes, self.parts.clock.wall());
        match tokio::task::spawn_blocking(move || kept.recv_timeout(DURABLE)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(CommandError::Conflict(
                "the change is in force, but the database does not take it: it is lost when the host ends before that"
                    .to_owned(),
            )),
        }
    }

    /// Whoever enables what the file enables, or disables what it disables, wants what the file says: a setting that lasts would
    /// keep a later change of the file from having any effect.
    fn enable_as_written(&self, state: &State, changes: &mut [(String, Option<String>)]) {
        let Checker { places, demo, .. } = &self.parts.checker;
        let is_enabled = |key: &str| key.starts_with("target.") && key.ends_with(".enabled");
        if !changes.iter().any(|(key, _)| is_enabled(key)) {
            return;
        }
        let Ok(written) = state.document.config(places, *demo, &Overrides::new()) else { return };
        for (key, value) in changes.iter_mut().filter(|(key, _)| is_enabled(key)) {
            let target = written.targets.iter().find(|target| setting(&target.id, "enabled") == *key);
            if target.is_some_and(|target| value.as_deref() == Some(target.enabled.to_string().as_str())) {
                *value = None;
            }
        }
    }

    /// Kinds that have targets.
    pub(crate) fn kinds_in_use(&self) -> BTreeSet<Kind> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).kinds.clone()
    }

    /// Who serves which kind now.
    pub(crate) fn plugins(&self) -> Arc<PluginSet> {
        self.parts.checker.plugins()
    }

    /// Another plugin serves a kind from now on, or none does. In one sentence, why not: settings or secrets of a target
    /// do not fit it. Polls under way end with the plugin they began with.
    pub(crate) async fn plug(&self, kind: &Kind, served: Option<Arc<Served>>) -> Result<(), String> {
        let mut state = self.state.lock().await;
        let before = self.plugins();
        self.parts.checker.set_plugins(Arc::new(before.with(kind, served)));
        let (document, overrides) = (state.document.clone(), state.fitted.overrides.clone());
        match self.parts.checker.fit(&document, overrides, (&state.fitted.targets, Files::Kept)).await {
            Ok(fitted) => self.take_up(&mut state, (document, fitted), Some(kind.clone())).await,
            Err(problems) => {
                self.parts.checker.set_plugins(before);
                Err(misfit(&problems))
            }
        }
    }

    /// Changes which files are refused; gives the set with that.
    pub(crate) fn refuse_plugins(&self, change: impl FnOnce(&PluginSet) -> PluginSet) -> PluginSet {
        let mut plugins = self.parts.checker.plugins.write().unwrap_or_else(PoisonError::into_inner);
        *plugins = Arc::new(change(&plugins));
        PluginSet::clone(&plugins)
    }

    /// Reads the file again; gives the files that it names now, where that can be read.
    async fn reload(&self) -> Option<Named> {
        let mut state = self.state.lock().await;
        let path = state.document.path.clone()?;
        let document = match Document::read(path) {
            Ok(document) => document,
            Err(message) => {
                let place = state.document.name.clone();
                self.refuse(&mut state, &[Problem { place, message }]);
                return None;
            }
        };
        // Of a file that is refused too: what is wrong with it may be one that is not there yet. Settings name none.
        let Checker { places, demo, .. } = &self.parts.checker;
        let named = document.config(places, *demo, &Overrides::new()).ok().map(|config| Named::by(&config));
        let was_refused = !state.problems.is_empty();
        match self.reread(&mut state, document).await {
            Ok(()) if was_refused => tracing::info!("{} is good again, and in force", state.document.name),
            Ok(()) => {}
            Err(problems) => self.refuse(&mut state, &problems),
        }
        named
    }

    /// The host goes on as it was, and says why until the file is taken up.
    fn refuse(&self, state: &mut State, problems: &[Problem]) {
        for problem in problems {
            tracing::error!("{problem}");
        }
        tracing::error!("{} is not taken up; the host goes on as it was", state.document.name);
        state.problems = problems.iter().map(ToString::to_string).collect();
        self.show(state);
    }

    async fn reread(&self, state: &mut State, document: Document) -> Result<(), Vec<Problem>> {
        let name = document.name.clone();
        let failed = |message: String| vec![Problem { place: name.clone(), message }];
        let overrides = state.fitted.overrides.clone();
        let fitted = self.parts.checker.fit(&document, overrides, (&state.fitted.targets, Files::Reread)).await?;
        if document.text == state.document.text && fitted.is_same(&state.fitted) {
            // A file was written anew, and says what it said.
            tracing::info!("{name} was read again; nothing in it is different from what is in force");
            state.document = document;
            state.problems.clear();
            self.show(state);
            return Ok(());
        }
        if fitted.targets.is_empty() && !state.fitted.targets.is_empty() {
            let message =
                "it has no [[target]] any more, as if it had been cut short: start the host anew if that is meant";
            return Err(failed(message.to_owned()));
        }
        for (key, problem) in &fitted.parked {
            tracing::warn!("the setting {key} is not in force any more: {problem}");
        }
        let changes = difference::between(&state.fitted, &fitted);
        let Checker { places, demo, .. } = &self.parts.checker;
        let written = |document: &Document| document.config(places, *demo, &Overrides::new());
        if !fitted.overrides.is_empty()
            && let (Ok(before), Ok(after)) = (written(&state.document), written(&document))
        {
            for key in difference::outvoted((&before, &after), &fitted.overrides) {
                tracing::warn!(
                    "{name}: {key} was changed, which has no effect as long as a setting wins over it: `polliwog settings unset \
                     {key}`"
                );
            }
        }
        state.problems.clear();
        self.take_up(state, (document, fitted), None).await.map_err(failed)?;
        tracing::info!("{name} was read again: {changes}");
        let kind = EventKind::SettingsChanged { what: name, value: None };
        self.parts.store.writer().event(Event { at: self.parts.clock.wall(), kind });
        Ok(())
    }

    /// Hands what is different from what runs to the driver.
    async fn take_up(
        &self,
        state: &mut State,
        (document, mut fitted): (Document, Fitted),
        plugged: Option<Kind>,
    ) -> Result<(), String> {
        let before = &state.fitted;
        let waiting = needs_a_start(&state.started, &fitted.config);
        for what in needs_a_start(&before.config, &fitted.config) {
            match waiting.contains(&what) {
                true => tracing::warn!("{what} changed: that takes effect at the next start"),
                false => tracing::info!("{what} has the value again that is in force"),
            }
        }
        let mut changed = Vec::new();
        for target in fitted.targets.values() {
            match before.targets.get(target.id()) {
                Some(before) if Arc::ptr_eq(before, target) => {}
                Some(before) => changed.push((target.clone(), Some(target.change_from(before)))),
                None => {
                    if let Some(known) = state.dormant.remove(target.id()) {
                        target.restore(known);
                    }
                    changed.push((target.clone(), None));
                }
            }
        }
        let plugins = self.parts.checker.plugins();
        estate::warn_of(changed.iter().map(|(target, _)| target), &plugins);
        let removed: Vec<TargetId> =
            before.targets.keys().filter(|id| !fitted.targets.contains_key(*id)).cloned().collect();
        for id in &removed {
            state.dormant.insert(id.clone(), before.targets[id].freeze());
            if state.dormant.len() > DORMANT {
                let oldest = state.dormant.iter().min_by_key(|(_, known)| known.last_report).map(|(id, _)| id.clone());
                if let Some(id) = oldest {
                    state.dormant.remove(&id);
                    self.parts.store.writer().forget(id, self.parts.clock.wall());
                }
            }
        }
        let aliases = Arc::new(fitted.config.aliases.clone());
        let settings = fitted.config.scheduler.clone();
        let configured = Configured { settings, changed, removed, aliases, plugins, plugged };
        let (sender, message) = (self.parts.sender.clone(), Message::Configured(Box::new(configured)));
        // The driver takes what comes within 2 ms; a full channel is waited for.
        let sent = tokio::task::spawn_blocking(move || sender.send(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err("the host is ending".to_owned());
        }
        fitted.config.file.clone_from(&document.name);
        (state.document, state.fitted) = (document, fitted);
        self.show(state);
        Ok(())
    }

    fn show(&self, state: &State) {
        let shown = Shown { names: state.names(), kinds: state.kinds(), settings: state.view() };
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

impl State {
    fn names(&self) -> HashMap<TargetId, String> {
        self.fitted.targets.values().map(|target| (target.id().clone(), target.config.name.clone())).collect()
    }

    fn kinds(&self) -> BTreeSet<Kind> {
        self.fitted.targets.values().map(|target| target.config.kind.clone()).collect()
    }

    /// Whether there is such a setting, and, where it is to have a value, nothing that wins over it.
    fn may_change(&self, key: &str, sets: bool) -> Result<(), CommandError> {
        if self.fitted.overrides.contains_key(key) && !sets {
            return Ok(());
        }
        self.is_setting(key).map_err(CommandError::NoSetting)?;
        match self.fitted.config.sources.get(key) {
            Some(Source::Environment(variable)) if sets => Err(CommandError::Conflict(format!(
                "{key} is set by the environment variable {variable}, which wins: unset that and start the host again"
            ))),
            _ => Ok(()),
        }
    }

    fn is_setting(&self, key: &str) -> Result<(), String> {
        let of_target = key.strip_prefix("target.").and_then(|rest| rest.rsplit_once('.'));
        if let Some((target, what)) = of_target {
            return match TargetId::new(target) {
                Ok(id) if self.fitted.targets.contains_key(&id) && CHANGEABLE.contains(&what) => Ok(()),
                Ok(id) if self.fitted.targets.contains_key(&id) => {
                    Err(format!("of a target, {} can be set while the host runs, not {what:?}", CHANGEABLE.join(", ")))
                }
                _ => Err(format!("there is no setting {key:?}, because there is no target {target:?}")),
            };
        }
        let known = scheduler_values(&self.fitted.config.scheduler).map(|(key, _)| key);
        if known.contains(&key) {
            return Ok(());
        }
        let near = config::suggestion(key, &known);
        Err(format!("there is no setting {key:?} that can be changed while the host runs{near}"))
    }

    /// Every setting that there is, with its value.
    fn values(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let scheduler = scheduler_values(&self.fitted.config.scheduler).into_iter();
        let targets = self.fitted.targets.values().flat_map(|target| target.config.changeable());
        scheduler.map(|(key, value)| (key.to_owned(), value)).chain(targets)
    }

    fn view(&self) -> SettingsView {
        let Fitted { config, overrides, parked, .. } = &self.fitted;
        let mut known = std::collections::HashSet::new();
        let mut settings = Vec::new();
        for (key, value) in self.values() {
            let source = config.sources.get(&key).unwrap_or(&Source::Default);
            known.insert(key.clone());
            settings.push(SettingView { value, source: source.as_str(), from: source.to_string(), key });
        }
        // What was set for a target that is gone is kept until it is unset.
        for (key, value) in overrides.iter().filter(|(key, _)| !known.contains(*key)) {
            let (key, value) = (key.clone(), Some(value.clone()));
            let from = "setting, of a target that is gone".to_owned();
            settings.push(SettingView { key, value, source: "setting", from });
        }
        let parked = parked.iter().map(|(key, why)| {
            let value = overrides.get(key).map_or("", String::as_str);
            format!("the setting {key} = {value} is kept and not in force: {why}; unset it, or set it anew")
        });
        let problems = self.problems.iter().cloned().chain(parked).collect();
        SettingsView { file: self.document.name.clone(), problems, settings }
    }
}

/// What is read at a start only, and is another now.
fn needs_a_start(before: &Config, after: &Config) -> Vec<&'static str> {
    let store = |config: &Config| {
        let store = &config.store;
        (store.path.clone(), store.history_days, store.history_rows, store.history_bytes)
    };
    let checks = [
        ("server.listen", before.listen != after.listen),
        ("server.metrics_listen", before.metrics_listen != after.metrics_listen),
        ("server.hosts", before.hosts != after.hosts),
        ("metrics.prefix", before.metrics_prefix != after.metrics_prefix),
        ("[store]", store(before) != store(after)),
        ("egress.max_requests_per_host", before.max_requests_per_host != after.max_requests_per_host),
        ("egress.max_body_bytes_in_flight", before.max_body_bytes_in_flight != after.max_body_bytes_in_flight),
        ("plugins.dir", before.plugin_dir != after.plugin_dir),
        ("plugins.trust", before.trusted_plugins != after.trusted_plugins),
        ("plugins.instance_slots", before.instance_slots != after.instance_slots),
    ];
    checks.into_iter().filter(|(_, changed)| *changed).map(|(what, _)| what).collect()
}
