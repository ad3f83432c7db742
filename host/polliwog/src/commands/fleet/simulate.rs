//! `fleet simulate`: the agents' code of many devices in one process, through a real broker and a real operator.

use crate::fleet_host::AgentStore;
use crate::local_broker::LocalBroker;
use crate::means;
use crate::output::{print, print_json};
use anyhow::{Context, bail};
use broker::{Agent, AgentHost, Description, Link, Operator};
use engine::{Clock, random_bytes};
use fleet::Labels;
use fleet::wire::{Deployment, ModeWire};
use model::{DeploymentReport, FleetChange, FleetRecord, Phase};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The operator must have counted all reports within this time.
const PATIENCE: Duration = Duration::from_secs(300);
/// The file descriptors of one device: those of its database, and its connection.
const DESCRIPTORS: u64 = 11;
/// Lags are sampled this often.
const SAMPLE: Duration = Duration::from_millis(2);

/// The size of a simulation.
pub(super) struct Size {
    pub devices: usize,
    pub deployments: usize,
    pub events: u32,
    pub seconds: u64,
}

/// The resources that a part has used so far.
#[derive(Clone, Copy)]
struct Usage {
    cpu: f64,
    memory: f64,
}

/// CPU time in seconds and resident memory in MB of a process or thread, from its folder in `/proc`.
fn usage(folder: &str) -> Usage {
    /// Ticks of the kernel's clock in a second, and the size of a page.
    const TICKS: f64 = 100.0;
    const PAGE: f64 = 4096.0;
    let field = |file: &str, number: usize| -> f64 {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap_or_default();
        // The name of a program may contain spaces.
        let rest = text.rsplit_once(')').map_or(text.as_str(), |(_, rest)| rest);
        rest.split_whitespace().nth(number).and_then(|word| word.parse().ok()).unwrap_or_default()
    };
    Usage { cpu: (field("stat", 11) + field("stat", 12)) / TICKS, memory: field("statm", 1) * PAGE / 1e6 }
}

fn deployment_name(number: usize) -> String {
    format!("deployment-{number}")
}

/// Each deployment chooses the devices of one group.
fn definition(number: usize) -> Deployment {
    let labels = Labels::from([("group".to_owned(), number.to_string())]);
    Deployment { version: 1, labels, requirements: Vec::new(), targets: vec!["{}".to_owned()], mode: ModeWire::Each }
}

pub(super) async fn simulate(size: &Size, server: &Path, is_json: bool) -> anyhow::Result<u8> {
    means::raise_descriptors()?;
    let (needed, limit) = (size.devices as u64 * DESCRIPTORS, means::descriptors());
    if needed > limit {
        bail!(
            "{} devices need about {needed} file descriptors, and the limit is {limit}: raise it (ulimit -n), or use fewer devices",
            size.devices
        );
    }
    let folder = tempfile::tempdir()?;
    let clock = Clock::start();
    let broker = LocalBroker::start(server)?;
    let url = broker.url();
    let operator = operate(&url, size, clock).await?;
    let own = format!("/proc/{}", std::process::id());
    let of_broker = format!("/proc/{}", broker.process());

    let begun = clock.now();
    let mut agents = Vec::with_capacity(size.devices);
    for number in 0..size.devices {
        agents.push(join(&url, folder.path(), (number, size.deployments), clock).await?);
    }
    let matched = u64::try_from(size.devices)?;
    settle(&operator.handle, clock, |counts| counts.0 == matched && counts.1 == matched).await?;
    let joined = clock.now().since(begun);

    let before = (usage(&of_broker), usage(&operator.folder), usage(&own));
    let began = clock.now();
    let samples: Arc<Mutex<Vec<u64>>> = Arc::default();
    let watching = tokio::spawn(watch(operator.handle.clone(), samples.clone(), clock));
    let total = u64::from(size.events) * size.seconds;
    for event in 0..total {
        let due = Duration::from_secs_f64(event as f64 / f64::from(size.events));
        let early = due.saturating_sub(clock.now().since(began));
        if !early.is_zero() {
            tokio::time::sleep(early).await;
        }
        let device = usize::try_from(event)? % size.devices;
        let round = usize::try_from(event)? / size.devices;
        let phase = if round.is_multiple_of(2) { Phase::Failed } else { Phase::Succeeded };
        agents[device].report(device % size.deployments, phase, clock);
    }
    let sent = clock.now().since(began);
    let failed = u64::try_from((0..size.devices).filter(|device| agents[*device].is_failed()).count())?;
    settle(&operator.handle, clock, |counts| counts.2 == failed && counts.1 + counts.2 == matched).await?;
    let counted = clock.now().since(began);
    watching.abort();
    let mut lags = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
    lags.sort_unstable();
    let after = (usage(&of_broker), usage(&operator.folder), usage(&own));
    let at = |share: f64| lags.get((lags.len() as f64 * share) as usize).copied().unwrap_or_default();
    let result = json!({
        "devices": size.devices, "deployments": size.deployments, "joinSeconds": joined.as_secs_f64(),
        "events": total, "eventsPerSecond": total as f64 / sent.as_secs_f64(),
        "countedAfterSeconds": counted.saturating_sub(sent).as_secs_f64(),
        "lagSamples": lags.len(), "lagP50Ms": at(0.5), "lagP99Ms": at(0.99),
        "broker": { "cpuSeconds": after.0.cpu - before.0.cpu, "memoryMb": after.0.memory },
        "operator": { "cpuSeconds": after.1.cpu - before.1.cpu },
        "agents": { "cpuSeconds": after.2.cpu - before.2.cpu - (after.1.cpu - before.1.cpu) },
        "agentsAndOperatorMemoryMb": after.2.memory,
    });
    end(agents, operator).await;
    if is_json { print_json(&result) } else { show(&result) }?;
    Ok(0)
}

/// An operator on a separate thread, whose CPU time can be read.
struct Running {
    handle: Operator,
    /// The thread's folder in `/proc`.
    folder: String,
    ending: CancellationToken,
}

/// Starts the operator with its deployments.
async fn operate(url: &str, size: &Size, clock: Clock) -> anyhow::Result<Running> {
    let link = link(url, "operator");
    let (give, given) = tokio::sync::oneshot::channel();
    let ending = CancellationToken::new();
    std::thread::Builder::new().name("operator".to_owned()).spawn(move || {
        let folder = format!("/proc/self/task/{}", rustix::thread::gettid().as_raw_nonzero());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            match Operator::connect(link, ("operator".to_owned(), 1), move || clock.wall()).await {
                Ok((handle, _, work)) => {
                    // The receiver may have left; then nothing else is to be done.
                    if give.send(Ok(Running { handle, folder, ending: ending.clone() })).is_ok() {
                        ending.run_until_cancelled(work).await;
                    }
                }
                Err(why) => drop(give.send(Err(why))),
            }
        });
    })?;
    let running = given.await.context("the operator did not start")?.map_err(anyhow::Error::msg)?;
    for number in 0..size.deployments {
        running.handle.define(&deployment_name(number), definition(number));
    }
    Ok(running)
}

fn link(url: &str, name: &str) -> Link {
    Link {
        url: url.to_owned(),
        credentials: None,
        tls: None,
        name: name.to_owned(),
        seed: u64::from_le_bytes(random_bytes()),
    }
}

/// A device: an agent and its database.
struct Device {
    task: JoinHandle<()>,
    host: Arc<AgentStore>,
    phase: Mutex<Phase>,
}

/// Starts a device, whose first report is that its deployment succeeded.
async fn join(url: &str, folder: &Path, (number, deployments): (usize, usize), clock: Clock) -> anyhow::Result<Device> {
    let device = format!("device-{number}");
    let path = folder.join(format!("{device}.db"));
    let config = store::Config { path, history_days: 400, history_rows: 1000, history_bytes: 1 << 20 };
    let opened = Store::lock(&config)?.open(clock.wall(), Box::new(drop))?;
    let host = Arc::new(AgentStore::new(Arc::new(opened.store), clock));
    let labels = Labels::from([("group".to_owned(), (number % deployments).to_string())]);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let description = Description { device: device.clone(), labels, inventory: BTreeMap::new(), version };
    let begun = u32::try_from(engine::seconds())?;
    host.change(FleetChange::Begin(begun)).map_err(anyhow::Error::msg)?;
    let described = FleetRecord::Description(description.text());
    host.change(FleetChange::Record(described)).map_err(anyhow::Error::msg)?;
    let agent = Agent::connect(host.clone(), description, link(url, &device)).await.map_err(anyhow::Error::msg)?;
    let task = tokio::spawn(agent.run());
    let device = Device { task, host, phase: Mutex::new(Phase::Pending) };
    device.report(number % deployments, Phase::Succeeded, clock);
    Ok(device)
}

impl Device {
    /// Stores a report, as the transaction of a poll would.
    fn report(&self, deployment: usize, phase: Phase, clock: Clock) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        let error = (phase == Phase::Failed).then(|| "connect: refused".to_owned());
        let deployment = deployment_name(deployment);
        let report = DeploymentReport { deployment, phase, counts: [1, 0, 0, 0], at: clock.wall(), error, term: 0 };
        self.host.record(FleetRecord::Report(report));
    }

    fn is_failed(&self) -> bool {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) == Phase::Failed
    }
}

/// Ends the agents and the operator, so that they do not report the end of the broker as a problem.
async fn end(agents: Vec<Device>, operator: Running) {
    /// The clients close their connections within this time.
    const CLOSING: Duration = Duration::from_millis(300);
    operator.ending.cancel();
    for device in &agents {
        device.task.abort();
    }
    for device in agents {
        let _ = device.task.await;
    }
    tokio::time::sleep(CLOSING).await;
}

/// Waits until the sums of the matched, succeeded and failed devices are as wanted.
async fn settle(operator: &Operator, clock: Clock, wanted: impl Fn((u64, u64, u64)) -> bool) -> anyhow::Result<()> {
    let begun = clock.now();
    loop {
        let all = operator.deployments();
        let sum = |count: fn(&fleet::Aggregate) -> u32| all.iter().map(|view| u64::from(count(&view.aggregate))).sum();
        let counts = (sum(|counts| counts.matched), sum(|counts| counts.succeeded), sum(|counts| counts.failed));
        if wanted(counts) {
            return Ok(());
        }
        if clock.now().since(begun) > PATIENCE {
            let (matched, succeeded, failed) = counts;
            bail!(
                "after {PATIENCE:?} {matched} devices match, {succeeded} succeeded and {failed} failed: that is not all"
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Samples, in milliseconds, how long after its storing a report is counted: the latest of each deployment.
async fn watch(operator: Operator, samples: Arc<Mutex<Vec<u64>>>, clock: Clock) {
    let mut seen = BTreeMap::new();
    loop {
        tokio::time::sleep(SAMPLE).await;
        let now = clock.wall();
        for view in operator.deployments() {
            let Some(latest) = view.aggregate.recent.first().map(|happened| happened.at) else { continue };
            if seen.insert(view.name, latest).is_some_and(|before| before < latest) {
                let lag = u64::try_from(now.since(latest).as_millis()).unwrap_or(u64::MAX);
                samples.lock().unwrap_or_else(PoisonError::into_inner).push(lag);
            }
        }
    }
}

fn show(result: &Value) -> anyhow::Result<()> {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    print(&format!(
        "{} devices, {} deployments: all devices were counted {:.1} s after the first one started",
        result["devices"],
        result["deployments"],
        number(&result["joinSeconds"])
    ))?;
    print(&format!(
        "{} reports, {:.0} a second; the last one was counted {:.2} s after it was stored",
        result["events"],
        number(&result["eventsPerSecond"]),
        number(&result["countedAfterSeconds"])
    ))?;
    print(&format!(
        "lag from the agent's database to the counter: p50 {:.0} ms, p99 {:.0} ms ({} samples)",
        number(&result["lagP50Ms"]),
        number(&result["lagP99Ms"]),
        result["lagSamples"]
    ))?;
    print(&format!(
        "CPU: broker {:.1} s, operator {:.1} s, agents {:.1} s; memory: broker {:.0} MB, agents and operator {:.0} MB",
        number(&result["broker"]["cpuSeconds"]),
        number(&result["operator"]["cpuSeconds"]),
        number(&result["agents"]["cpuSeconds"]),
        number(&result["broker"]["memoryMb"]),
        number(&result["agentsAndOperatorMemoryMb"])
    ))
}
