//! Agents and an operator over a real broker that is killed, wiped, restored from a copy and paused, while agents are
//! restarted and lose their databases. At the end, the operator's counters must equal a naive count over the agents'
//! databases.
//!
//! `cargo test --workspace --test fleet_chaos -- SEED...` runs these seeds; `CHAOS_SECONDS` is the length of each.
//! `tests/fleet.sh` runs a few.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "the agents run in real time")]

#[path = "../../../tests/fleet/broker.rs"]
#[allow(dead_code, reason = "it has more than these tests need")]
mod server;

use broker::{Agent, AgentHost, AgentLink, Description, Granted, Link, Noticed, Operator};
use fleet::wire::{Deployment, ModeWire, RequirementWire};
use fleet::{Labels, Phase};
use model::{
    DeploymentReport, FleetChange, FleetPlace, FleetRecord, KeptPlace, KeptRecord, LogPage, QueuedRecord, Timestamp,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use server::Broker;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::Store;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const DEVICES: usize = 12;
const DEPLOYMENTS: usize = 6;
/// The counters must agree within this time after the last fault.
const PATIENCE: Duration = Duration::from_secs(90);

/// The matched devices, and those by phase: pending, succeeded, failed, unreported.
type Counts = [u32; 5];

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// An agent's database.
struct Database {
    store: Store,
    recorded: Notify,
}

impl Database {
    fn open(path: PathBuf) -> Arc<Self> {
        let config = store::Config { path, history_days: 400, history_rows: 1000, history_bytes: 1 << 20 };
        let opened = Store::lock(&config).and_then(|locked| locked.open(now(), Box::new(drop))).unwrap();
        Arc::new(Self { store: opened.store, recorded: Notify::new() })
    }

    fn record(&self, record: FleetRecord) {
        self.change(FleetChange::Record(record)).unwrap();
        self.recorded.notify_one();
    }
}

impl AgentHost for Database {
    fn place(&self) -> Result<Option<FleetPlace>, String> {
        self.store.reader().fleet_place().map_err(|error| error.to_string())
    }

    fn queued(&self, limit: u32) -> Result<Vec<QueuedRecord>, String> {
        self.store.reader().fleet_queued(limit).map_err(|error| error.to_string())
    }

    fn change(&self, change: FleetChange) -> Result<(), String> {
        let kept = self.store.writer().fleet(change);
        kept.recv_timeout(Duration::from_secs(30)).map_err(|error| error.to_string())
    }

    fn recorded(&self) -> &Notify {
        &self.recorded
    }

    async fn assign(&self, _: Vec<Granted>, _: Vec<String>) -> Result<(), String> {
        Ok(())
    }

    fn log(&self, _: Option<u64>, _: usize) -> LogPage {
        LogPage::default()
    }

    fn now(&self) -> Timestamp {
        now()
    }
}

/// A running agent.
struct Device {
    name: String,
    labels: Labels,
    database: Arc<Database>,
    link: AgentLink,
    task: JoinHandle<()>,
}

/// The records that the host of an operator keeps for it, by stream and key, and the places.
#[derive(Default)]
struct Memory {
    records: BTreeMap<(String, String), KeptRecord>,
    places: BTreeMap<String, KeptPlace>,
}

impl Memory {
    fn keep(&mut self, records: Vec<KeptRecord>, place: Option<KeptPlace>) {
        for record in records {
            self.records.insert((record.stream.clone(), record.key.clone()), record);
        }
        self.places.extend(place.map(|place| (place.stream.clone(), place)));
    }
}

struct Scene {
    folder: PathBuf,
    broker: Broker,
    devices: Vec<Device>,
    operator: Option<(Operator, JoinHandle<()>)>,
    /// The memory of all operators, one after the other.
    memory: Arc<Mutex<Memory>>,
    random: Pcg64Mcg,
    done: BTreeMap<&'static str, u32>,
}

impl Scene {
    async fn start(folder: &Path, seed: u64) -> Self {
        let broker = Broker::start(folder);
        let mut scene = Self {
            folder: folder.to_owned(),
            broker,
            devices: Vec::new(),
            operator: None,
            memory: Arc::default(),
            random: Pcg64Mcg::seed_from_u64(seed),
            done: BTreeMap::new(),
        };
        scene.operate().await;
        for number in 0..DEVICES {
            scene.add(format!("device-{number}")).await;
        }
        scene
    }

    fn link(&mut self, name: &str) -> Link {
        Link {
            url: self.broker.url(),
            credentials: None,
            keys: broker::Keys::None,
            tls: None,
            local: None,
            name: name.to_owned(),
            seed: self.random.random(),
        }
    }

    async fn operate(&mut self) {
        let link = self.link("operator");
        // It has the name of the one that was killed, so that it need not wait.
        let (operator, mut noticed, work) = Operator::connect(link, ("operator".to_owned(), 1), now).await.unwrap();
        for (name, deployment) in definitions() {
            operator.define(&name, deployment);
        }
        let memory = self.memory.clone();
        {
            let memory = memory.lock().unwrap();
            memory.records.values().for_each(|record| operator.restore(record, now()));
            operator.resume(memory.places.values().cloned().collect());
        }
        // It ends with the operator.
        tokio::spawn(async move {
            while let Some(noticed) = noticed.recv().await {
                if let Noticed::Read(records, place) = noticed {
                    memory.lock().unwrap().keep(records, place);
                }
            }
        });
        self.operator = Some((operator, tokio::spawn(work)));
    }

    /// Starts an agent with random labels and the database that it left, if any.
    async fn add(&mut self, name: String) {
        let mut labels = Labels::from([("region".to_owned(), format!("r{}", self.random.random_range(0..3)))]);
        if self.random.random_bool(0.5) {
            labels.insert("env".to_owned(), "prod".to_owned());
        }
        let database = Database::open(self.folder.join(format!("{name}.db")));
        let seconds = u32::try_from(now().as_millis() / 1000).unwrap();
        database.change(FleetChange::Begin(seconds)).unwrap();
        let description = Description {
            device: name.clone(),
            labels: labels.clone(),
            inventory: BTreeMap::new(),
            version: "1".to_owned(),
        };
        database.record(FleetRecord::Description(description.text()));
        let link = self.link(&name);
        let agent = Agent::connect(database.clone(), description, link).await.unwrap();
        let link = agent.link();
        self.devices.push(Device { name, labels, database, link, task: tokio::spawn(agent.run()) });
    }

    /// Ends a random agent in the middle of whatever it does, and starts it again.
    async fn restart(&mut self, loses_database: bool) {
        let place = self.random.random_range(0..self.devices.len());
        let Device { name, database, task, .. } = self.devices.swap_remove(place);
        task.abort();
        let _ = task.await;
        // A step on another thread may still use the database.
        let mut waiting = Some(database);
        while let Some(database) = waiting.take() {
            match Arc::try_unwrap(database) {
                Ok(database) => drop(database),
                Err(database) => {
                    waiting = Some(database);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        if loses_database {
            for ending in ["", "-wal", "-shm", "-lock"] {
                let _ = std::fs::remove_file(self.folder.join(format!("{name}.db{ending}")));
            }
        }
        self.add(name).await;
    }

    /// Changes the state of a random deployment on a random device.
    fn report(&mut self) {
        let place = self.random.random_range(0..self.devices.len());
        let phase = Phase::ALL[self.random.random_range(0..Phase::ALL.len())];
        let deployment = format!("d{}", self.random.random_range(0..DEPLOYMENTS));
        let error = (phase == Phase::Failed).then(|| "connect: refused".to_owned());
        let report = DeploymentReport { deployment, phase, counts: [1, 0, 0, 0], at: now(), error, term: 0 };
        self.devices[place].database.record(FleetRecord::Report(report));
    }

    async fn fault(&mut self) {
        let pause = Duration::from_millis(self.random.random_range(0..600));
        let name = match self.random.random_range(0..9) {
            0 => {
                self.broker.down();
                tokio::time::sleep(pause).await;
                self.broker.up();
                "the broker was killed"
            }
            1 => {
                self.broker.down();
                self.broker.wipe();
                tokio::time::sleep(pause).await;
                self.broker.up();
                "the broker was wiped"
            }
            2 => {
                self.broker.down();
                self.broker.copy("jetstream", "old");
                self.broker.up();
                "the broker was copied"
            }
            3 if self.folder.join("old").exists() => {
                self.broker.down();
                self.broker.copy("old", "jetstream");
                self.broker.up();
                "the broker was restored"
            }
            4 => {
                self.broker.pause(true);
                tokio::time::sleep(pause * 4).await;
                self.broker.pause(false);
                "the broker was paused"
            }
            5 => {
                let (_, task) = self.operator.take().unwrap();
                task.abort();
                let _ = task.await;
                let loses_memory = self.random.random_bool(0.3);
                if loses_memory {
                    *self.memory.lock().unwrap() = Memory::default();
                }
                self.operate().await;
                if loses_memory { "an operator without memory was started" } else { "the operator was started again" }
            }
            6 | 7 => {
                self.restart(false).await;
                "an agent was started again"
            }
            _ => {
                self.restart(true).await;
                "an agent lost its database"
            }
        };
        *self.done.entry(name).or_default() += 1;
    }

    /// The counters by a naive count over the agents' databases.
    fn expected(&self) -> BTreeMap<String, Counts> {
        let mut counts = BTreeMap::new();
        for (name, deployment) in definitions() {
            let selector = deployment.selector();
            let mut of: Counts = [0; 5];
            for device in self.devices.iter().filter(|device| selector.matches(&device.labels)) {
                let reports = device.database.store.reader().fleet_reports().unwrap();
                let phase = reports.iter().find(|report| report.deployment == name).map(|report| report.phase);
                of[0] += 1;
                of[match phase {
                    Some(Phase::Pending) => 1,
                    Some(Phase::Succeeded) => 2,
                    Some(Phase::Failed) => 3,
                    Some(Phase::Removed) | None => 4,
                }] += 1;
            }
            counts.insert(name, of);
        }
        counts
    }

    fn found(&self) -> BTreeMap<String, Counts> {
        let (operator, _) = self.operator.as_ref().unwrap();
        let views = operator.deployments().into_iter().map(|view| {
            let counted = &view.aggregate;
            assert_eq!(counted.stale, 0, "no device is silent for 5 minutes");
            (view.name, [counted.matched, counted.pending, counted.succeeded, counted.failed, counted.unreported])
        });
        views.collect()
    }
}

fn definitions() -> BTreeMap<String, Deployment> {
    let label = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
    let definition = |number: usize| {
        let prod = vec!["prod".to_owned()];
        let (labels, requirements) = match number {
            0 => (label("env", "prod"), Vec::new()),
            1 => (Labels::new(), vec![RequirementWire::NotIn("env".to_owned(), prod)]),
            2 => (Labels::new(), vec![RequirementWire::Exists("env".to_owned())]),
            3 => (label("region", "r1"), Vec::new()),
            _ => (Labels::new(), Vec::new()),
        };
        Deployment { version: 1, labels, requirements, targets: vec!["{}".to_owned()], mode: ModeWire::Each }
    };
    (0..DEPLOYMENTS).map(|number| (format!("d{number}"), definition(number))).collect()
}

async fn run(seed: u64, length: Duration) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::start(folder.path(), seed).await;
    let began = Instant::now();
    let mut reports = 0;
    while began.elapsed() < length {
        // Half of the faults happen while nothing else does: a busy agent finds a fault by its next write.
        if scene.random.random_bool(0.5) {
            for _ in 0..scene.random.random_range(1..40) {
                scene.report();
                reports += 1;
                let pause = Duration::from_millis(scene.random.random_range(0..20));
                tokio::time::sleep(pause).await;
            }
        } else {
            tokio::time::sleep(Duration::from_millis(800)).await;
        }
        scene.fault().await;
    }
    let ended = Instant::now();
    let expected = scene.expected();
    let is_equal = loop {
        if scene.found() == expected {
            break true;
        }
        if ended.elapsed() > PATIENCE {
            break false;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let word = if is_equal { "EQUAL" } else { "DIFFERENT" };
    println!("seed {seed}: {word} after {:.1} s; {reports} reports; {:?}", ended.elapsed().as_secs_f64(), scene.done);
    if !is_equal {
        println!("  expected {expected:?}\n  found    {:?}", scene.found());
        println!("  operator {:?}", scene.operator.as_ref().unwrap().0.view());
        for device in &scene.devices {
            let place = device.database.place().unwrap().unwrap();
            println!("  {} {:?} {:?} {place:?}", device.name, device.labels, device.link.state());
        }
    }
    for device in scene.devices {
        device.task.abort();
    }
    is_equal
}

#[tokio::main]
async fn main() {
    let seeds: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let seconds = std::env::var("CHAOS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let mut different = 0;
    for seed in &seeds {
        different += u32::from(!run(*seed, Duration::from_secs(seconds)).await);
    }
    println!("{} seeds, {different} different", seeds.len());
    assert_eq!(different, 0);
}
