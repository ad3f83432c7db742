//! `fleet simulate`: the agents' code of many devices, through a real broker and a real operator.
//!
//! The devices are in processes of their own, as many as the limit of file descriptors asks for. The operator is in
//! this one.

mod devices;

use crate::local_broker::LocalBroker;
use crate::means;
use crate::output::{print, print_json};
use anyhow::{Context, bail};
use broker::Operator;
pub(super) use devices::devices;
use devices::{JOINED, deployment_name, line, link};
use engine::Clock;
use fleet::Labels;
use fleet::wire::{Deployment, ModeWire};
use model::Phase;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
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
    /// Whether the broker is killed at the end, and started again.
    pub outage: bool,
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

/// Each deployment chooses the devices of one group.
fn definition(number: usize) -> Deployment {
    let labels = Labels::from([("group".to_owned(), number.to_string())]);
    Deployment { version: 1, labels, requirements: Vec::new(), targets: vec!["{}".to_owned()], mode: ModeWire::Each }
}

pub(super) async fn simulate(size: &Size, server: &Path, is_json: bool) -> anyhow::Result<u8> {
    means::raise_descriptors()?;
    let each = usize::try_from(means::descriptors() * 9 / 10 / DESCRIPTORS)?.max(1);
    let folder = tempfile::tempdir()?;
    let clock = Clock::start();
    let mut broker = LocalBroker::start(server)?;
    let operator = operate(&broker.url(), size, clock).await?;

    let begun = clock.now();
    let mut fleet = Fleet::start(&broker.url(), folder.path(), size, each).await?;
    let all = size.devices as u64;
    settle(&operator.handle, clock, |counts| counts.0 == all && counts.1 == all).await?;
    let joined = clock.now().since(begun);

    let used = |fleet: &Fleet| (usage(&format!("/proc/{}", broker.process())), usage("/proc/self"), fleet.usage());
    let before = used(&fleet);
    let samples: Arc<Mutex<Vec<u64>>> = Arc::default();
    let watching = tokio::spawn(watch(operator.handle.clone(), samples.clone(), clock));
    let began = clock.now();
    fleet.report_evenly(size, clock).await?;
    let sent = clock.now().since(began);
    let failed = fleet.failed();
    settle(&operator.handle, clock, |counts| counts.2 == failed && counts.1 + counts.2 == all).await?;
    let counted = clock.now().since(began);
    watching.abort();
    let mut lags = std::mem::take(&mut *samples.lock().unwrap_or_else(PoisonError::into_inner));
    lags.sort_unstable();
    let after = used(&fleet);
    let at = |share: f64| lags.get((lags.len() as f64 * share) as usize).copied().unwrap_or_default();
    let part = |after: Usage, before: Usage| json!({ "cpuSeconds": after.cpu - before.cpu, "memoryMb": after.memory });
    let total = u64::from(size.events) * size.seconds;
    let mut result = json!({
        "devices": size.devices, "deployments": size.deployments, "processes": fleet.processes.len(),
        "joinSeconds": joined.as_secs_f64(), "events": total, "eventsPerSecond": total as f64 / sent.as_secs_f64(),
        "countedAfterSeconds": counted.saturating_sub(sent).as_secs_f64(),
        "lagSamples": lags.len(), "lagP50Ms": at(0.5), "lagP99Ms": at(0.99),
        "broker": part(after.0, before.0), "operator": part(after.1, before.1), "agents": part(after.2, before.2),
    });
    if size.outage {
        broker.kill();
        fleet.turn_all().await?;
        let (failed, begun) = (fleet.failed(), clock.now());
        broker.run()?;
        settle(&operator.handle, clock, |counts| counts.2 == failed && counts.1 + counts.2 == all).await?;
        result["outageCountedAfterSeconds"] = clock.now().since(begun).as_secs_f64().into();
    }
    end(fleet, operator).await;
    if is_json { print_json(&result) } else { show(&result) }?;
    Ok(0)
}

/// The processes of the devices.
struct Fleet {
    processes: Vec<Process>,
    /// The devices of a process; the last one may have fewer.
    each: usize,
    /// The phase that each device reported last.
    phases: Vec<Phase>,
}

struct Process {
    /// Killed on drop.
    child: Child,
    input: ChildStdin,
}

impl Fleet {
    /// Starts the processes, and waits until all agents run.
    async fn start(url: &str, folder: &Path, size: &Size, each: usize) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("the path of this program is not known")?;
        let mut processes = Vec::new();
        let mut outputs = Vec::new();
        for from in (0..size.devices).step_by(each) {
            let to = size.devices.min(from + each);
            let numbers = [("--from", from), ("--to", to), ("--deployments", size.deployments)];
            let mut command = Command::new(&this);
            command.args(["fleet", "simulate-devices", "--url", url, "--folder"]).arg(folder);
            command.args(numbers.map(|(name, number)| format!("{name}={number}")));
            // Thousands of agents would warn of an outage that is wanted.
            command.env("RUST_LOG", "error");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn().context("cannot start a process of devices")?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                bail!("a process of devices has no pipes");
            };
            processes.push(Process { child, input });
            outputs.push(BufReader::new(output).lines());
        }
        for output in &mut outputs {
            if output.next_line().await?.as_deref() != Some(JOINED) {
                bail!("a process of devices ended before its devices joined; what it printed above is the reason");
            }
        }
        Ok(Self { processes, each, phases: vec![Phase::Succeeded; size.devices] })
    }

    /// Lets a device report that it failed, or that it no longer does.
    async fn turn(&mut self, device: usize) -> anyhow::Result<()> {
        let phase = if self.phases[device] == Phase::Failed { Phase::Succeeded } else { Phase::Failed };
        self.phases[device] = phase;
        let process = &mut self.processes[device / self.each];
        process.input.write_all(line(device, phase).as_bytes()).await.context("a process of devices ended")
    }

    async fn turn_all(&mut self) -> anyhow::Result<()> {
        for device in 0..self.phases.len() {
            self.turn(device).await?;
        }
        Ok(())
    }

    /// Lets the devices report one after the other, at an even rate.
    async fn report_evenly(&mut self, size: &Size, clock: Clock) -> anyhow::Result<()> {
        let began = clock.now();
        for event in 0..u64::from(size.events) * size.seconds {
            let due = Duration::from_secs_f64(event as f64 / f64::from(size.events));
            let early = due.saturating_sub(clock.now().since(began));
            if !early.is_zero() {
                tokio::time::sleep(early).await;
            }
            self.turn(usize::try_from(event)? % size.devices).await?;
        }
        Ok(())
    }

    fn failed(&self) -> u64 {
        self.phases.iter().filter(|phase| **phase == Phase::Failed).count() as u64
    }

    fn usage(&self) -> Usage {
        let all = self.processes.iter().filter_map(|process| process.child.id());
        all.map(|id| usage(&format!("/proc/{id}"))).fold(Usage { cpu: 0.0, memory: 0.0 }, |sum, one| Usage {
            cpu: sum.cpu + one.cpu,
            memory: sum.memory + one.memory,
        })
    }
}

/// An operator on a separate thread.
struct Running {
    handle: Operator,
    ending: CancellationToken,
}

/// Starts the operator with its deployments.
async fn operate(url: &str, size: &Size, clock: Clock) -> anyhow::Result<Running> {
    let link = link(url, "operator", None);
    let (give, given) = tokio::sync::oneshot::channel();
    let ending = CancellationToken::new();
    std::thread::Builder::new().name("operator".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            match Operator::connect(link, ("operator".to_owned(), 1), move || clock.wall()).await {
                Ok((handle, _, work)) => {
                    // The receiver may have left; then nothing else is to be done.
                    if give.send(Ok(Running { handle, ending: ending.clone() })).is_ok() {
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

/// Ends the operator and the devices, so that they do not report the end of the broker as a problem.
async fn end(fleet: Fleet, operator: Running) {
    operator.ending.cancel();
    for Process { mut child, input } in fleet.processes {
        drop(input);
        // It is killed on drop if it does not end.
        let _ = tokio::time::timeout(PATIENCE, child.wait()).await;
    }
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
        "{} devices in {} processes, {} deployments: all devices were counted {:.1} s after the first one started",
        result["devices"],
        result["processes"],
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
    for part in ["broker", "operator", "agents"] {
        let (cpu, memory) = (number(&result[part]["cpuSeconds"]), number(&result[part]["memoryMb"]));
        print(&format!("{part}: CPU {cpu:.1} s, memory {memory:.0} MB"))?;
    }
    if let Some(after) = result["outageCountedAfterSeconds"].as_f64() {
        print(&format!("{after:.1} s after the broker was started again, the reports of its absence were counted"))?;
    }
    Ok(())
}
