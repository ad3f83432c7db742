//! Changes of a running host's configuration: of its file, of a file that it names (a secret), of a setting, of a
//! plugin.
//!
//! There is one way to apply a change: [`Validator::fit`] makes a [`Candidate`], which is compared with the running
//! configuration once, and its differences are handed to the driver. A change that does not fit changes nothing and is
//! shown. A setting that no longer fits the file becomes inactive: it is kept, shown, and has no effect.
//!
//! A file and a plugin that fit only each other are applied together: the one that comes first waits for the other. So
//! a plugin whose settings changed can be replaced while the host runs.
//!
//! The file is parsed once; settings and plugins are fitted to the parsed text, and targets that a change does not
//! concern stay the same `Arc`.

mod defining;
mod difference;
mod fit;
mod named_files;
mod plugins;
mod reload;
mod running;
mod settings;
mod watch;

pub use difference::changes;
pub use fit::{Candidate, Fit, Validator, misfit};
pub use named_files::NamedFiles;

use crate::alerts::AlertRules;
use crate::clock::Clock;
use crate::mailbox::Mailbox;
use crate::message::{Message, Reconfigured};
use crate::prepare::Files;
use crate::settings_versions::SettingsVersions;
use crate::target::warn_about;
use catalog::PluginSet;
use config::{Config, Document, Made, Overrides, STANDBY, Written, made_by, setting};
use fit::all;
use metrics::Metrics;
use model::{CommandError, EventKind, Kind, Moment, Setting, StatusPage, TargetId};
use running::Running;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use store::{KnownState, Store};
use tokio::sync::{Mutex, Notify};

/// The known state of this many removed targets is kept in memory, in case they come back.
pub const DORMANT: usize = 10_000;
/// The caller that changes a setting waits this long for it to be on disk.
const DURABLE: Duration = Duration::from_secs(10);

/// Changes a running host's configuration.
pub struct Reconfigurer {
    clock: Clock,
    validator: Validator,
    store: Arc<Store>,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    /// For readers, who do not wait for a change.
    shown: RwLock<Arc<Shown>>,
    plugins: RwLock<Arc<PluginSet>>,
    /// Wakes the catalog after each reload.
    reloaded: Notify,
}

/// The dependencies of a [`Reconfigurer`].
pub struct Parts {
    /// The clock.
    pub clock: Clock,
    /// Checks candidates.
    pub validator: Validator,
    /// Keeps settings.
    pub store: Arc<Store>,
    /// Leads to the driver.
    pub mailbox: Mailbox,
    /// Counts changes.
    pub metrics: Arc<Metrics>,
}

/// The configuration that a host starts with.
pub struct Initial {
    /// The text of the configuration.
    pub document: Document,
    /// The candidate, which becomes the running configuration.
    pub candidate: Candidate,
    /// The plugins that serve.
    pub plugins: Arc<PluginSet>,
    /// The known state of targets that are no longer configured.
    pub dormant: HashMap<TargetId, KnownState>,
}

struct State {
    document: Document,
    running: Running,
    /// Why the present file is not the running configuration; empty if it is.
    problems: Vec<String>,
    /// The present file, if it could be parsed and does not fit the plugins.
    waiting: Option<(Document, Arc<Written>)>,
    /// The known state of removed targets, in case they come back.
    dormant: HashMap<TargetId, KnownState>,
    /// The configuration of the start, parts of which are active until the next start.
    started: Arc<Config>,
}

/// The running configuration as readers see it.
struct Shown {
    file: String,
    problems: Vec<String>,
    config: Arc<Config>,
    overrides: Overrides,
    inactive: BTreeMap<String, String>,
}

/// A change under way.
struct Measure<'a> {
    metrics: &'a Metrics,
    clock: Clock,
    since: Moment,
}

impl Drop for Measure<'_> {
    fn drop(&mut self) {
        self.metrics.reconfiguration(self.clock.now().since(self.since));
    }
}

impl Reconfigurer {
    /// For a host that runs this configuration.
    pub fn new(parts: Parts, initial: Initial) -> Self {
        let Parts { clock, validator, store, mailbox, metrics } = parts;
        let Initial { document, candidate, plugins, dormant } = initial;
        note_converted(&candidate);
        settings_versions(&candidate).write(&candidate.config.data_dir);
        let running = Running::from(candidate);
        let started = running.config.clone();
        let state = State { document, running, problems: Vec::new(), waiting: None, dormant, started };
        let (shown, plugins) = (RwLock::new(Arc::new(state.shown())), RwLock::new(plugins));
        let (state, reloaded) = (Mutex::new(state), Notify::new());
        Self { clock, validator, store, mailbox, metrics, state, shown, plugins, reloaded }
    }

    /// Counts a change when it is dropped.
    fn measure(&self) -> Measure<'_> {
        Measure { metrics: &self.metrics, clock: self.clock, since: self.clock.now() }
    }

    fn shown(&self) -> Arc<Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, state: &State) {
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state.shown());
    }

    /// The name of the configuration's file.
    pub fn file(&self) -> String {
        self.shown().file.clone()
    }

    /// The problems that keep the file, or a setting, from being active; one sentence each.
    pub fn problems(&self) -> Vec<String> {
        self.shown().problems()
    }

    /// The public pages of chosen targets.
    pub fn status_pages(&self) -> Vec<StatusPage> {
        self.shown().config.status_pages.clone()
    }

    /// The running configuration, with all active settings.
    pub fn config(&self) -> Arc<Config> {
        self.shown().config.clone()
    }

    /// Every setting with its value and its origin.
    pub fn settings(&self) -> Vec<Setting> {
        self.shown().settings()
    }

    /// The settings of one target.
    pub fn settings_of(&self, target: &TargetId) -> Vec<Setting> {
        self.shown().settings_of(target)
    }

    /// The setting with this key.
    pub fn setting(&self, key: &str) -> Option<Setting> {
        self.shown().setting(key)
    }

    /// The scheduler's settings, and every target as the scheduler knows it.
    pub async fn scheduled(&self) -> (scheduler::Settings, Vec<scheduler::TargetSpec>) {
        let running = &self.state.lock().await.running;
        (running.config.scheduler.clone(), running.targets.values().map(|target| target.spec()).collect())
    }

    /// The plugins that serve.
    pub fn plugins(&self) -> Arc<PluginSet> {
        self.plugins.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes settings while the host runs: all of them, or none. A value of `None` unsets. A change goes on after its
    /// caller has left.
    ///
    /// # Errors
    /// If a setting does not exist, does not fit, or cannot be changed in this state.
    pub async fn set(self: Arc<Self>, changes: Vec<(String, Option<String>)>) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        tokio::spawn(async move { self.change(changes).await }).await.map_err(|_| ending())?
    }

    async fn change(&self, mut changes: Vec<(String, Option<String>)>) -> Result<(), CommandError> {
        let mut state = self.state.lock().await;
        unset_as_written(state.running.written.config(), &mut changes);
        for (key, value) in &changes {
            state.may_change(key, value.is_some())?;
        }
        self.carry_out(&mut state, changes).await
    }

    /// Applies changes of settings and stores them: all of them, or none.
    async fn carry_out(&self, state: &mut State, changes: Vec<(String, Option<String>)>) -> Result<(), CommandError> {
        let measure = self.measure();
        let mut overrides = state.running.overrides.clone();
        for (key, value) in &changes {
            match value {
                Some(value) => overrides.insert(key.clone(), value.clone()),
                None => overrides.remove(key),
            };
        }
        let plugins = self.plugins();
        let fit = Fit {
            written: state.running.written.clone(),
            overrides,
            plugins: &plugins,
            before: &state.running.targets,
            channels: &state.running.channels,
            files: &Files::none(),
        };
        let candidate = self.validator.fit(fit).await;
        let candidate = candidate.map_err(|problems| CommandError::Invalid(all(&problems)))?;
        for (key, problem) in &candidate.inactive {
            let sent = changes.iter().any(|(changed, value)| changed == key && value.is_some());
            let is_assigned = matches!(made_by(key), Some(Made::Assignment(_)));
            // A change that makes another setting inactive is refused as well. The part of a deployment that does not
            // fit is reported to the operator of the fleet, and the rest is polled.
            if !is_assigned && (sent || !state.running.inactive.contains_key(key)) {
                return Err(CommandError::Invalid(problem.clone()));
            }
        }
        self.apply(state, candidate, Vec::new()).await.map_err(CommandError::Conflict)?;
        for (key, value) in &changes {
            match (made_by(key), value) {
                (Some(made @ Made::Assignment(_)), Some(text)) if text == STANDBY => {
                    tracing::info!("another device may poll the {made}; this one stands by");
                }
                (Some(made @ Made::Assignment(_)), Some(_)) => tracing::info!("the {made} is active"),
                (Some(made @ Made::Assignment(_)), None) => tracing::info!("the {made} is withdrawn"),
                (Some(made), Some(_)) => tracing::info!("the {made} is defined"),
                (Some(made), None) => tracing::info!("the {made} is deleted"),
                (None, Some(value)) => {
                    tracing::info!("the setting {key} is now {value}; it wins over the file until it is unset");
                }
                (None, None) => tracing::info!("the setting {key} is unset"),
            }
        }
        drop(measure);
        let told = changes.iter().map(told).collect();
        let kept = self.store.writer().settings(changes, told, self.clock.wall());
        match tokio::task::spawn_blocking(move || kept.recv_timeout(DURABLE)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(CommandError::Conflict(
                "the change is active, but the database does not take it: it is lost when the host ends before that"
                    .to_owned(),
            )),
        }
    }

    /// Makes a candidate the running configuration: hands its differences to the driver. `plugged`: the kinds whose
    /// plugins changed.
    async fn apply(&self, state: &mut State, mut candidate: Candidate, plugged: Vec<Kind>) -> Result<(), String> {
        let waiting = difference::needs_restart(&state.started, &candidate.config);
        for what in difference::needs_restart(&state.running.config, &candidate.config) {
            match waiting.contains(&what) {
                true => tracing::warn!("{what} changed: that takes effect at the next start"),
                false => tracing::info!("{what} has its active value again"),
            }
        }
        let changed = std::mem::take(&mut candidate.prepared.changed);
        let removed = std::mem::take(&mut candidate.prepared.removed);
        for (target, _) in changed.iter().filter(|(_, change)| change.is_none()) {
            if let Some(known) = state.dormant.remove(target.id()) {
                target.restore(known);
            }
        }
        let channels = candidate.channels.changed.iter();
        warn_about(changed.iter().chain(channels).map(|(target, _)| target), &self.plugins());
        for id in &removed {
            self.retire(state, id);
        }
        let reconfigured = Reconfigured {
            settings: candidate.config.scheduler.clone(),
            changed,
            removed,
            aliases: Arc::new(candidate.config.aliases.clone()),
            plugins: self.plugins(),
            plugged,
            alerts: AlertRules::of(&candidate.config, candidate.channels.targets.clone()),
            deployments: candidate.config.deployments.clone(),
        };
        let (mailbox, message) = (self.mailbox.clone(), Message::Reconfigured(Box::new(reconfigured)));
        // The driver handles messages within 2 ms; a full channel is waited for.
        let sent = tokio::task::spawn_blocking(move || mailbox.send(message)).await;
        if !matches!(sent, Ok(true)) {
            return Err("the host is ending".to_owned());
        }
        note_converted(&candidate);
        let versions = settings_versions(&candidate);
        let data_dir = candidate.config.data_dir.clone();
        // A host that ends meanwhile writes it at its next start.
        let _ = tokio::task::spawn_blocking(move || versions.write(&data_dir)).await;
        state.running = Running::from(candidate);
        self.show(state);
        Ok(())
    }

    /// Keeps the known state of a removed target, in case it comes back.
    fn retire(&self, state: &mut State, id: &TargetId) {
        let Some(target) = state.running.targets.get(id) else { return };
        state.dormant.insert(id.clone(), target.freeze());
        if state.dormant.len() > DORMANT {
            let oldest = state.dormant.iter().min_by_key(|(_, known)| known.last_report).map(|(id, _)| id.clone());
            if let Some(id) = oldest {
                state.dormant.remove(&id);
                self.store.writer().forget(id);
            }
        }
    }
}

/// The versions of the settings of targets and channels.
fn settings_versions(candidate: &Candidate) -> SettingsVersions {
    SettingsVersions::of(candidate.prepared.targets.values().chain(candidate.channels.targets.values()))
}

/// Logs which settings were written for an earlier version of a plugin.
fn note_converted(candidate: &Candidate) {
    for converted in candidate.prepared.converted.iter().chain(&candidate.channels.converted) {
        tracing::warn!("{}: `polliwog check` prints them", converted.sentence());
    }
}

/// The event about a change of a setting. It has no definition, which may be long.
fn told((key, value): &(String, Option<String>)) -> EventKind {
    match (made_by(key), value) {
        (None, value) => EventKind::SettingsChanged { what: key.clone(), value: value.clone() },
        (Some(made), value) => {
            let word = match value.as_deref() {
                Some(STANDBY) => "on standby",
                Some(_) => "defined",
                None => "deleted",
            };
            EventKind::SettingsChanged { what: made.to_string(), value: Some(word.to_owned()) }
        }
    }
}

/// Unsets `enabled` settings that say what the file says: a lasting setting would keep later changes of the file from
/// having any effect.
fn unset_as_written(written: &Config, changes: &mut [(String, Option<String>)]) {
    let is_enabled = |key: &str| key.starts_with("target.") && key.ends_with(".enabled");
    for (key, value) in changes.iter_mut().filter(|(key, _)| is_enabled(key)) {
        let target = written.targets.iter().find(|target| setting(&target.id, "enabled") == *key);
        if target.is_some_and(|target| value.as_deref() == Some(target.enabled.to_string().as_str())) {
            *value = None;
        }
    }
}
