//! This host in a fleet: the agent and the operator over the host's database and configuration.

use crate::definer::{Definer, kept};
use crate::fleet_plugins::{Taken, offer};
use crate::kubernetes::settings;
use broker::{
    Agent, AgentHost, AgentLink, Description, Granted, Key, Keys, LeftAlerts, Link, Noticed, OPERATOR, Operator,
    PluginState, account_name,
};
use config::{Config, FleetConfig, Made, Problem, made_by};
use engine::{Clock, Log, Reconfigurer, random_bytes};
use fleet::names::is_name;
use fleet::wire::{Deployment, OfferedPlugin, OpenAlert};
use fleet::{
    AgentView, DeploymentView, DeviceDetail, DeviceFilter, DeviceView, Failures, FleetView, KubernetesState, LinkState,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::Controller;
use model::{CommandError, Event, FleetChange, FleetPlace, FleetRecord, LogPage, QueuedRecord, Subject, Timestamp};
use notify::TakenOver;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use store::{ReadError, Store};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

/// The agent waits this long for a change to be on disk.
const DURABLE: Duration = Duration::from_secs(30);

/// The keys of the file of credentials that hold the key of the operators, or that of the device.
pub(crate) const OPERATOR_KEY: &str = "operator_key";
pub(crate) const DEVICE_KEY: &str = "device_key";
/// The maximum size of the file of credentials in bytes.
const CREDENTIALS: u64 = 64 << 10;

/// This host in a fleet.
pub(crate) struct Fleet {
    config: FleetConfig,
    /// `None` if the host is no operator.
    definer: Option<Definer>,
    agent: Option<AgentLink>,
    /// The host of the agent, while that runs.
    asked: Weak<AgentStore>,
    kubernetes: Option<Arc<Mutex<KubernetesState>>>,
    store: Arc<Store>,
}

/// The database and the configuration of this host, for its agent.
pub(crate) struct AgentStore {
    store: Arc<Store>,
    /// Applies assignments; `None` for a simulated device, which has no targets.
    reconfigurer: Option<Arc<Reconfigurer>>,
    /// Where plugins of the operator go; `None` if the host takes none.
    taken: Option<Taken>,
    reported: Arc<Notify>,
    /// `None` for a simulated device.
    log: Option<Arc<Log>>,
    /// Answers the operator, once the API listens.
    reads: OnceLock<web::Reads>,
    clock: Clock,
}

impl AgentStore {
    /// Returns the host of a simulated device.
    pub(crate) fn new(store: Arc<Store>, clock: Clock) -> Self {
        Self {
            store,
            reconfigurer: None,
            taken: None,
            reported: Arc::new(Notify::new()),
            log: None,
            reads: OnceLock::new(),
            clock,
        }
    }

    /// Queues a record, and notifies the agent. The agent sends it once it is on disk.
    pub(crate) fn record(&self, record: FleetRecord) {
        let (kept, reported) = (self.store.writer().fleet(FleetChange::Record(record)), self.reported.clone());
        tokio::task::spawn_blocking(move || {
            let _ = kept.recv();
            reported.notify_one();
        });
    }
}

/// Begins a run as an agent, before any report: the epoch, and the description of this host.
pub(crate) fn begin(config: &Config, store: &Store) {
    let Some(fleet) = config.fleet.as_ref().filter(|fleet| fleet.role.is_agent()) else { return };
    let now = u32::try_from(engine::seconds()).unwrap_or(u32::MAX);
    drop(store.writer().fleet(FleetChange::Begin(now)));
    let text = description(fleet).text();
    drop(store.writer().fleet(FleetChange::Record(FleetRecord::Description(text))));
}

fn description(fleet: &FleetConfig) -> Description {
    let inventory =
        [("os".to_owned(), std::env::consts::OS.to_owned()), ("arch".to_owned(), std::env::consts::ARCH.to_owned())];
    Description {
        device: fleet.device.clone(),
        labels: fleet.labels.clone(),
        inventory: inventory.into(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn link(fleet: &FleetConfig, part: &str) -> anyhow::Result<Link> {
    let found = fleet.credentials.as_deref().map(credentials).transpose();
    let found = found.map_err(|why| anyhow::anyhow!("[fleet] credentials: {why}"))?;
    let (credentials, keys) = found.map_or((None, Keys::None), |(credentials, keys)| (Some(credentials), keys));
    if let Some(why) = credentials.as_ref().and_then(|(user, _)| other_user(fleet, user)) {
        anyhow::bail!("[fleet] credentials: {why}");
    }
    let name = format!("polliwog {part} {}", fleet.device);
    let tls = fleet.tls.build().map_err(|why| anyhow::anyhow!("[fleet] tls: {why}"))?.for_other_protocols();
    let seed = u64::from_le_bytes(random_bytes());
    Ok(Link { url: fleet.url.clone(), credentials, keys, tls: Some(tls), local: None, name, seed })
}

/// Reads the file with the user and the password for the broker, and the key that seals records, if it has one.
fn credentials(file: &Path) -> Result<((String, String), Keys), String> {
    let text = config::read_text(file, CREDENTIALS)?;
    let wrong = |why: &str| format!("{}: {why}", file.display());
    let table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.message()))?;
    let part = |key: &str| {
        let found = table.get(key).and_then(toml::Value::as_str);
        found.map(ToOwned::to_owned).ok_or_else(|| wrong(&format!("{key} is missing or not a text")))
    };
    let key = |name: &str| match table.contains_key(name) {
        true => Key::from_hex(&part(name)?)
            .map(Some)
            .ok_or_else(|| wrong(&format!("{name} is not a key of 64 hexadecimal digits"))),
        false => Ok(None),
    };
    let keys = match (key(OPERATOR_KEY)?, key(DEVICE_KEY)?) {
        (Some(key), _) => Keys::Operator(key),
        (None, Some(key)) => Keys::Device(key),
        (None, None) => Keys::None,
    };
    Ok(((part("user")?, part("password")?), keys))
}

/// Returns the problems of the files that `[fleet]` names, if any.
pub(crate) fn problems(config: &Config) -> Vec<Problem> {
    let Some(fleet) = &config.fleet else { return Vec::new() };
    let found = |key: &str, message: String| Problem { place: format!("{}: [fleet] {key}", config.file), message };
    let mut problems = Vec::new();
    if let Some(file) = &fleet.credentials {
        match credentials(file) {
            Ok(((user, _), _)) => {
                let why = other_user(fleet, &user).map(|why| format!("{}: {why}", file.display()));
                problems.extend(why.map(|why| found("credentials", why)));
            }
            Err(why) => problems.push(found("credentials", why)),
        }
    }
    if let Some(cluster) = &fleet.kubernetes
        && let Err(why) = settings(cluster)
    {
        problems.push(found("kubernetes", why));
    }
    problems
}

/// Why the user of a file of `fleet credentials` is not the one of this host. Other users are the broker's own affair.
fn other_user(fleet: &FleetConfig, user: &str) -> Option<String> {
    let is_of_agent = user.starts_with(&account_name(""));
    match (fleet.role.is_operator(), user) {
        (true, user) if is_of_agent => {
            Some(format!("this is the file of a device ({user}), and an operator needs {OPERATOR}.toml"))
        }
        (false, OPERATOR) => {
            Some(format!("this is the file of the operator, which may do everything: name {}.toml", fleet.device))
        }
        (false, user) if is_of_agent && user != account_name(&fleet.device) => {
            Some(format!("this is the file of another device ({user}): name {}.toml", fleet.device))
        }
        _ => None,
    }
}

impl Fleet {
    /// Starts the agent and the operator that the configuration asks for; they end with the token. `None` if the host
    /// is in no fleet.
    ///
    /// # Errors
    /// If the credentials cannot be read, or the URL is not valid. A broker that cannot be reached is no error.
    pub(crate) async fn start(
        config: &Config,
        (store, reconfigurer): (Arc<Store>, Arc<Reconfigurer>),
        (reported, log, clock): (Arc<Notify>, Arc<Log>, Clock),
        ending: &CancellationToken,
    ) -> anyhow::Result<Option<Self>> {
        let Some(fleet) = config.fleet.clone() else { return Ok(None) };
        let refused = |why: String| anyhow::anyhow!("[fleet]: {why}");
        let (mut definer, mut kubernetes) = (None, None);
        if fleet.role.is_operator() {
            let now = move || clock.wall();
            let name = (operator_name(&fleet), fleet.replicas);
            let connected = Operator::connect(link(&fleet, "operator")?, name, now).await;
            let (handle, noticed, work) = connected.map_err(refused)?;
            for (key, text) in store.reader().settings()? {
                let Some(Made::Deployment(name)) = made_by(&key) else { continue };
                match fleet::read_stored(&text) {
                    Ok(deployment) => handle.define(name, deployment),
                    Err(why) => tracing::error!("the deployment {name} is not valid and not active: {why}"),
                }
            }
            // After the deployments: a device has few records that no deployment explains.
            let places = store.reader().fleet_kept(|record| handle.restore(&record, clock.wall()))?;
            handle.resume(places);
            tokio::spawn(ending.clone().run_until_cancelled_owned(work));
            tokio::spawn(keep(store.clone(), reconfigurer.clone(), clock, noticed));
            let offering = offer(handle.clone(), reconfigurer.clone());
            tokio::spawn(ending.clone().run_until_cancelled_owned(offering));
            let made = Definer::new(handle, reconfigurer.clone(), clock);
            if let Some(cluster) = &fleet.kubernetes {
                let settings = settings(cluster).map_err(|why| refused(format!("kubernetes: {why}")))?;
                let (controller, state) = Controller::new(settings, Arc::new(made.clone()));
                tokio::spawn(ending.clone().run_until_cancelled_owned(controller.run()));
                kubernetes = Some(state);
            }
            definer = Some(made);
        }
        let (mut agent, mut asked) = (None, Weak::new());
        if fleet.role.is_agent() {
            let taken = Taken { reconfigurer: reconfigurer.clone(), directory: config.plugin_dir.clone() };
            let taken = fleet.takes_plugins.then_some(taken);
            let (store, reconfigurer) = (store.clone(), Some(reconfigurer.clone()));
            let reads = OnceLock::new();
            let host = Arc::new(AgentStore { store, reconfigurer, taken, reported, log: Some(log), reads, clock });
            asked = Arc::downgrade(&host);
            let connecting = Agent::connect(host, description(&fleet), link(&fleet, "agent")?);
            let connected = connecting.await.map_err(refused)?;
            agent = Some(connected.link());
            tokio::spawn(ending.clone().run_until_cancelled_owned(connected.run()));
        }
        Ok(Some(Self { config: fleet, definer, agent, asked, kubernetes, store }))
    }

    /// Lets the operator read what this answers.
    pub(crate) fn answer_with(&self, reads: web::Reads) {
        if let Some(host) = self.asked.upgrade() {
            let _ = host.reads.set(reads);
        }
    }

    /// The states of the connections that this host has to the broker.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkState> {
        self.counting().map(Operator::link).into_iter().chain(self.agent.as_ref().map(AgentLink::state))
    }

    /// Whether this host operates a fleet, and is connected to its broker.
    pub(crate) fn hears(&self) -> bool {
        self.counting().is_some_and(|operator| operator.link().is_connected)
    }

    fn counting(&self) -> Option<&Operator> {
        self.definer.as_ref().map(|definer| &definer.operator)
    }

    /// Makes deployments that this operator does not know, not even as deleted ones.
    pub(crate) fn introduce(&self, deployments: &[(&str, Deployment)]) {
        let Some(operator) = self.counting() else { return };
        for (name, deployment) in deployments {
            operator.define(name, deployment.clone());
        }
    }
}

/// Stores what the operator notices: deployments that other operators made, and events.
async fn keep(
    store: Arc<Store>,
    reconfigurer: Arc<Reconfigurer>,
    clock: Clock,
    mut noticed: UnboundedReceiver<Noticed>,
) {
    while let Some(noticed) = noticed.recv().await {
        match noticed {
            Noticed::Read(records, place) => drop(store.writer().fleet(FleetChange::Keep(records, place))),
            Noticed::Happened(kind) => store.writer().event(Event { at: clock.wall(), kind }),
            Noticed::Defined(name, deployment) => {
                if let Err(why) = reconfigurer.clone().deploy(name.clone(), kept(&deployment)).await {
                    let made = "which another operator made, could not be stored";
                    tracing::error!("the deployment {name}, {made}: {why}");
                }
            }
        }
    }
}

/// The name of this host among the operators: the id of the device if it is one, else the name of the machine.
fn operator_name(fleet: &FleetConfig) -> String {
    if !fleet.device.is_empty() {
        return fleet.device.clone();
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let name: String = machine.trim().to_lowercase().chars().map(|c| if fits(c) { c } else { '-' }).take(50).collect();
    let name = name.trim_matches('-').to_owned();
    if is_name(&name) { name } else { "operator".to_owned() }
}

impl web::Fleet for Fleet {
    fn agent(&self) -> Option<AgentView> {
        let link = self.agent.as_ref()?.state();
        let reader = self.store.reader();
        let queued = reader.fleet_place().ok().flatten().map_or(0, |place| place.queued);
        let reports = reader.fleet_reports().unwrap_or_default();
        Some(AgentView { device: self.config.device.clone(), link, queued, reports })
    }

    fn operator(&self) -> Option<FleetView> {
        let mut view = self.counting()?.view();
        let state = self.kubernetes.as_ref();
        view.kubernetes = state.map(|state| state.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Some(view)
    }

    fn deployments(&self) -> Vec<DeploymentView> {
        self.counting().map(Operator::deployments).unwrap_or_default()
    }

    fn failures(&self, limit: usize) -> Failures {
        self.counting().map(|operator| operator.failures(limit)).unwrap_or_default()
    }

    fn silent(&self, limit: usize) -> Vec<DeviceView> {
        self.counting().map(|operator| operator.silent(limit)).unwrap_or_default()
    }

    fn deployment(&self, name: &str) -> Option<DeploymentView> {
        self.counting()?.deployment(name)
    }

    fn devices(&self, first: u32, filter: &DeviceFilter, limit: usize) -> (Vec<DeviceView>, Option<u32>) {
        self.counting().map(|operator| operator.devices_from(first, filter, limit)).unwrap_or_default()
    }

    fn devices_of(&self, deployment: &str, limit: usize) -> Vec<DeviceView> {
        self.counting().map(|operator| operator.devices_of(deployment, limit)).unwrap_or_default()
    }

    fn heard_at(&self, device: &DeviceView) -> Timestamp {
        self.counting().map_or(Timestamp::from_millis(0), |operator| operator.wall(device.heard))
    }

    fn device(&self, id: String) -> BoxFuture<'_, Option<DeviceDetail>> {
        async move { self.counting()?.device(&id).await }.boxed()
    }

    fn log(
        &self,
        id: String,
        of: (Option<u64>, u32),
        wait: Duration,
    ) -> BoxFuture<'_, Option<Result<LogPage, String>>> {
        async move { self.counting()?.log(&id, of, wait).await }.boxed()
    }

    fn read(&self, id: String, path: String) -> BoxFuture<'_, Option<Result<(u16, String), String>>> {
        async move { self.counting()?.read(&id, path).await }.boxed()
    }

    fn define(&self, name: String, definition: Option<String>) -> BoxFuture<'_, Result<(), CommandError>> {
        async move {
            let Some(definer) = &self.definer else {
                let why = "this host is not the operator of its fleet: change deployments there";
                return Err(CommandError::Conflict(why.to_owned()));
            };
            definer.define(name, definition).await
        }
        .boxed()
    }
}

impl AgentHost for AgentStore {
    fn place(&self) -> Result<Option<FleetPlace>, String> {
        self.store.reader().fleet_place().map_err(|error| error.to_string())
    }

    fn queued(&self, limit: u32) -> Result<Vec<QueuedRecord>, String> {
        self.store.reader().fleet_queued(limit).map_err(|error| error.to_string())
    }

    fn change(&self, change: FleetChange) -> Result<(), String> {
        let kept = self.store.writer().fleet(change);
        kept.recv_timeout(DURABLE).map_err(|_| "the database does not take it".to_owned())
    }

    fn recorded(&self) -> &Notify {
        &self.reported
    }

    async fn assign(&self, deployments: Vec<Granted>, standby: Vec<String>) -> Result<(), String> {
        let Some(reconfigurer) = &self.reconfigurer else { return Ok(()) };
        let stored = |Granted { assigned, term }| (assigned.name, config::stored_assignment(term, &assigned.targets));
        let standby = standby.into_iter().map(|name| (name, config::STANDBY.to_owned()));
        let deployments: BTreeMap<String, String> = deployments.into_iter().map(stored).chain(standby).collect();
        reconfigurer.clone().assign(deployments).await.map_err(|error| error.to_string())
    }

    fn open_alerts(&self) -> Result<BTreeMap<String, Vec<OpenAlert>>, String> {
        let (reader, failed) = (self.store.reader(), |error: ReadError| error.to_string());
        let alerts = reader.alerts().map_err(failed)?;
        let (waiting, _) = reader.waiting_deliveries().map_err(failed)?;
        let mut waiting_for: BTreeMap<String, BTreeSet<Subject>> = BTreeMap::new();
        for delivery in waiting {
            let subjects = delivery.rest().into_subjects();
            waiting_for.entry(delivery.notification.channel).or_default().extend(subjects);
        }
        let mut open: BTreeMap<String, Vec<OpenAlert>> = BTreeMap::new();
        for alert in &alerts {
            let Some(deployment) = &alert.traits.shared_by else { continue };
            let waits = |channel: &str| waiting_for.get(channel).is_some_and(|about| about.contains(&alert.subject));
            let described = OpenAlert::from_record(alert, waits);
            open.entry(deployment.clone()).or_default().extend(described);
        }
        Ok(open)
    }

    async fn take_over(&self, left: LeftAlerts) -> Result<Vec<OpenAlert>, String> {
        let LeftAlerts { deployment, alerts, by } = left;
        let Some(reconfigurer) = &self.reconfigurer else { return Ok(Vec::new()) };
        let config = reconfigurer.config();
        let assigned = config.deployments.get(&deployment).map_or(&[][..], |assigned| &assigned.targets);
        let is_elsewhere = |alert: &OpenAlert| {
            let target = config.targets.iter().find(|target| target.id.as_str() == alert.target);
            match target {
                Some(target) => target.shared_by.as_ref() != Some(&deployment) || !target.enabled,
                None => assigned.iter().any(|target| target.id == alert.target),
            }
        };
        let (elsewhere, here): (Vec<_>, Vec<_>) = alerts.into_iter().partition(is_elsewhere);
        let alerts = here.into_iter().filter_map(OpenAlert::into_record).collect();
        let taken = reconfigurer.take_over(TakenOver { deployment, alerts, by }).await;
        taken.map(|()| elsewhere).map_err(|error| error.to_string())
    }

    fn log(&self, after: Option<u64>, limit: usize) -> LogPage {
        self.log.as_ref().map(|log| log.page(after, limit)).unwrap_or_default()
    }

    async fn read(&self, path: String) -> (u16, String) {
        match self.reads.get() {
            Some(reads) => reads.read(&path).await,
            None => (503, json!({ "error": { "code": "starting", "message": "the device is starting" } }).to_string()),
        }
    }

    fn plugin(&self, plugin: &OfferedPlugin) -> PluginState {
        self.taken.as_ref().map_or(PluginState::Settled, |taken| taken.state(plugin))
    }

    fn add_plugin(&self, plugin: &OfferedPlugin, content: &[u8]) -> Result<(), String> {
        let taken = self.taken.as_ref().ok_or_else(|| "this host takes no plugins of its operator".to_owned())?;
        taken.add(plugin, content)
    }

    fn now(&self) -> Timestamp {
        self.clock.wall()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::FleetRole;

    #[test]
    fn the_file_of_another_host_is_refused() {
        let cases = [
            (FleetRole::Agent, "agent-a", None),
            (FleetRole::Agent, "agent-b", Some("another device (agent-b): name a.toml")),
            (FleetRole::Agent, "operator", Some("the file of the operator")),
            (FleetRole::Agent, "own-user", None),
            (FleetRole::Operator, "operator", None),
            (FleetRole::Both, "operator", None),
            (FleetRole::Both, "agent-a", Some("an operator needs operator.toml")),
        ];
        for (role, user, expected) in cases {
            let fleet = FleetConfig { role, device: "a".to_owned(), ..crate::demo_fleet::operator(String::new()) };
            let found = other_user(&fleet, user);
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{role:?} {user}: {found:?}");
        }
    }
}
