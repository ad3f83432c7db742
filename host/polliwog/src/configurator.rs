//! The configuration of a running host: read again when its file changes or a setting is changed.
//!
//! There is one way to take up a change: the whole configuration is read and checked as at a start, compared with what
//! runs, and what is different is handed to the driver. A configuration with a problem changes nothing and is shown.

use crate::config::{CHANGEABLE, Config, Overrides, Places, Problem, Source, scheduler_values, setting, show_duration};
use crate::driver::{Configured, Message};
use crate::estate::{self, Target};
use crate::plugins::PluginSet;
use crate::setup;
use model::{Event, EventKind, TargetId};
use sandbox::Sandbox;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use store::Store;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use web::{CommandError, SettingView, SettingsView};

/// How often the file is looked at. Looking works on every file system, unlike being told.
const LOOK: Duration = Duration::from_secs(1);
/// How long a change waits to be on disk before whoever made it is told that it is not.
const DURABLE: Duration = Duration::from_secs(10);

/// What changes a running host's configuration.
pub(crate) struct Configurator {
    parts: Parts,
    state: Mutex<State>,
    /// What anybody may look at without waiting.
    shown: RwLock<Shown>,
}

/// What it is made of.
pub(crate) struct Parts {
    /// Time.
    pub clock: crate::clock::Clock,
    /// Where configuration and data lie.
    pub places: Places,
    /// The port of the simulated services, where there are any.
    pub demo: Option<u16>,
    /// Who checks settings.
    pub sandbox: Arc<Sandbox>,
    /// Who serves which kind.
    pub plugins: Arc<PluginSet>,
    /// Where settings are kept.
    pub store: Arc<Store>,
    /// Where changes go.
    pub sender: std::sync::mpsc::SyncSender<Message>,
}

struct State {
    config: Config,
    overrides: Overrides,
    targets: BTreeMap<TargetId, Arc<Target>>,
}

struct Shown {
    names: HashMap<TargetId, String>,
    settings: SettingsView,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Configurator {
    /// For a host that runs with this configuration and these targets.
    pub(crate) fn new(parts: Parts, config: Config, overrides: Overrides, targets: &[Arc<Target>]) -> Self {
        let targets = targets.iter().map(|target| (target.id().clone(), target.clone())).collect();
        let state = State { config, overrides, targets };
        let shown = RwLock::new(Shown { names: state.names(), settings: state.view(Vec::new()) });
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

    /// Changes settings while the host runs; a value of nothing unsets. All of them, or none.
    pub(crate) async fn set(&self, changes: Vec<(String, Option<String>)>) -> Result<(), CommandError> {
        let mut state = self.state.lock().await;
        let mut overrides = state.overrides.clone();
        for (key, value) in &changes {
            state.may_change(key)?;
            match value {
                Some(value) => drop(overrides.insert(key.clone(), value.clone())),
                None => drop(overrides.remove(key)),
            }
        }
        self.take_up(&mut state, overrides).await.map_err(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            CommandError::Invalid(all.join("; "))
        })?;
        let at = self.parts.clock.wall();
        let kept: Vec<_> =
            (changes.iter()).map(|(key, value)| self.parts.store.writer().setting(key, value.as_deref(), at)).collect();
        let wait = move || kept.into_iter().all(|kept| kept.recv_timeout(DURABLE).is_ok());
        match tokio::task::spawn_blocking(wait).await {
            Ok(true) => Ok(()),
            _ => Err(CommandError::Conflict(
                "the change is in force, but the database does not take it: it is lost when the host ends before that"
                    .to_owned(),
            )),
        }
    }

    /// Reads the file again.
    pub(crate) async fn reload(&self) {
        let mut state = self.state.lock().await;
        let overrides = state.overrides.clone();
        let file = state.config.file.clone();
        match self.take_up(&mut state, overrides).await {
            Ok(()) => {
                tracing::info!("{file} was read again");
                let kind = EventKind::SettingsChanged { what: file, value: None };
                self.parts.store.writer().event(Event { at: self.parts.clock.wall(), kind });
            }
            Err(problems) => {
                for problem in &problems {
                    tracing::error!("{problem}");
                }
                tracing::error!("{file} is not taken up; the host goes on as it was");
                self.show(&state, problems);
            }
        }
    }

    /// Reads the file again whenever it has changed and stood still for a look.
    pub(crate) async fn watch(self: Arc<Self>, ending: CancellationToken) {
        let file = std::path::PathBuf::from(self.state.lock().await.config.file.clone());
        let look = || std::fs::metadata(&file).ok().map(|metadata| stamp(&metadata));
        let (mut taken, mut before) = (look(), look());
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = ending.cancelled() => return,
            }
            let now = look();
            // A file that is gone for a moment, while an editor replaces it, is no change.
            if now.is_some() && now != taken && now == before {
                taken = now;
                self.reload().await;
            }
            before = now;
        }
    }

    /// Checks everything, and takes up what is different from what runs.
    async fn take_up(&self, state: &mut State, overrides: Overrides) -> Result<(), Vec<Problem>> {
        let Parts { places, demo, sandbox, plugins, sender, .. } = &self.parts;
        let failed = |message: String| vec![Problem { place: state.config.file.clone(), message }];
        let config = setup::read_with(places, *demo, &overrides).map_err(|error| failed(format!("{error:#}")))??;
        let targets = estate::build(&config, sandbox, plugins, &state.targets).await?;
        let targets: BTreeMap<TargetId, Arc<Target>> =
            targets.into_iter().map(|target| (target.id().clone(), target)).collect();
        for what in needs_a_start(&state.config, &config) {
            tracing::warn!("{what} changed: that takes effect at the next start");
        }
        let different = targets.values().filter_map(|target| match state.targets.get(target.id()) {
            Some(before) if Arc::ptr_eq(before, target) => None,
            Some(before) => Some((target.clone(), Some(target.change_from(before)))),
            None => Some((target.clone(), None)),
        });
        let configured = Configured {
            settings: config.scheduler.clone(),
            changed: different.collect(),
            removed: state.targets.keys().filter(|id| !targets.contains_key(*id)).cloned().collect(),
            aliases: Arc::new(config.aliases.clone()),
        };
        let (sender, message) = (sender.clone(), Message::Configured(Box::new(configured)));
        // The driver takes what comes within 2 ms; a full channel is waited for.
        let sent = tokio::task::spawn_blocking(move || sender.send(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err(failed("the host is ending".to_owned()));
        }
        *state = State { config, overrides, targets };
        self.show(state, Vec::new());
        Ok(())
    }

    fn show(&self, state: &State, problems: Vec<Problem>) {
        let problems = problems.iter().map(ToString::to_string).collect();
        let shown = Shown { names: state.names(), settings: state.view(problems) };
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

impl State {
    fn names(&self) -> HashMap<TargetId, String> {
        self.targets.values().map(|target| (target.id().clone(), target.config.name.clone())).collect()
    }

    /// Whether there is such a setting, and nothing that wins over it.
    fn may_change(&self, key: &str) -> Result<(), CommandError> {
        let known: Vec<String> = self.values().map(|(key, _)| key).collect();
        if !known.iter().any(|name| name == key) && !self.overrides.contains_key(key) {
            let near: Vec<&str> = known.iter().map(String::as_str).collect();
            let near = if near.len() > 64 && key.starts_with("target.") {
                ": is there such a target? Of one, enabled, interval and cadence can be set".to_owned()
            } else {
                crate::config::suggestion(key, &near)
            };
            return Err(CommandError::NoSetting(format!("there is no setting {key:?}{near}")));
        }
        match self.config.sources.get(key) {
            Some(Source::Environment(variable)) => Err(CommandError::Conflict(format!(
                "{key} is set by the environment variable {variable}, which wins: unset that and start the host again"
            ))),
            _ => Ok(()),
        }
    }

    /// Every setting that there is, with its value.
    fn values(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let scheduler = scheduler_values(&self.config.scheduler).into_iter();
        let of_target = |target: &Arc<Target>| {
            let config = &target.config;
            let values = [
                Some(config.enabled.to_string()),
                config.interval.map(show_duration),
                config.cadence.map(|cadence| cadence.as_str().to_owned()),
            ];
            CHANGEABLE.into_iter().zip(values).map(|(key, value)| (setting(&config.id, key), value)).collect::<Vec<_>>()
        };
        let targets = self.targets.values().flat_map(of_target);
        scheduler.map(|(key, value)| (key.to_owned(), value)).chain(targets)
    }

    fn view(&self, problems: Vec<String>) -> SettingsView {
        let settings = self.values().map(|(key, value)| {
            let source = self.config.sources.get(&key).unwrap_or(&Source::Default);
            SettingView { value, source: source.as_str(), from: source.to_string(), key }
        });
        let mut settings: Vec<SettingView> = settings.collect();
        // What was set for a target that is gone is kept until it is unset.
        let gone = self.overrides.iter().filter(|(key, _)| !settings.iter().any(|setting| setting.key == **key));
        let gone: Vec<SettingView> = gone
            .map(|(key, value)| SettingView {
                key: key.clone(),
                value: Some(value.clone()),
                source: "setting",
                from: "setting, of a target that is gone".to_owned(),
            })
            .collect();
        settings.extend(gone);
        SettingsView { file: self.config.file.clone(), problems, settings }
    }
}

/// What is read at a start only, and is another now.
fn needs_a_start(before: &Config, after: &Config) -> Vec<&'static str> {
    let store = |config: &Config| (config.store.path.clone(), config.store.history_days, config.store.history_rows);
    let checks = [
        ("server.listen", before.listen != after.listen),
        ("server.metrics_listen", before.metrics_listen != after.metrics_listen),
        ("metrics.prefix", before.metrics_prefix != after.metrics_prefix),
        ("[store]", store(before) != store(after)),
        ("egress.max_requests_per_host", before.max_requests_per_host != after.max_requests_per_host),
        ("egress.max_body_bytes_in_flight", before.max_body_bytes_in_flight != after.max_body_bytes_in_flight),
        ("plugins.dir", before.plugin_dir != after.plugin_dir),
        ("plugins.instance_slots", before.instance_slots != after.instance_slots),
    ];
    checks.into_iter().filter(|(_, changed)| *changed).map(|(what, _)| what).collect()
}

fn stamp(metadata: &std::fs::Metadata) -> Stamp {
    Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    }
}
