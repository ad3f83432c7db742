//! The cost of polls, compared with a bare loop that forgets what it read, and with Prometheus, which scrapes the same
//! facts as text.
//!
//! Work that fills the cores is done in turn. Rare polls are done by all at the same time, each with a separate server:
//! a shared machine is faster at some times than at others.

use super::support::{Host, Requests, config_at, cpu, memory, programs, separate_address, serve, serve_at};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The variables by which the benchmark starts itself as the bare loop.
const BARE_PORT: &str = "POLLIWOG_BENCH_BARE_PORT";
const BARE_TARGETS: &str = "POLLIWOG_BENCH_BARE_TARGETS";
const BARE_INTERVAL: &str = "POLLIWOG_BENCH_BARE_INTERVAL";
const BARE_SEPARATE: &str = "POLLIWOG_BENCH_BARE_SEPARATE";
const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_secs(15);
const WINDOW: Duration = Duration::from_secs(15);
/// Rare polls cost so little that a short window measures the kernel's clock ticks.
const IDLE_WINDOW: Duration = Duration::from_secs(300);

/// The settings of the hosts, which also apply to their requests.
const SCHEDULER: &str = "cadence = \"fixed\"\nmin_interval = \"100ms\"\nmax_per_host = 256\nmax_in_flight = 256\n[egress]\n\
                         max_requests_per_host = 256";
/// The largest number of peers.
const PEERS: usize = 4;

/// A running peer. It ends on drop.
struct Peer {
    process: Process,
    _folder: Option<tempfile::TempDir>,
}

enum Process {
    Child(Child),
    Host(Host),
}

impl Peer {
    fn id(&self) -> u32 {
        match &self.process {
            Process::Child(child) => child.id(),
            Process::Host(host) => host.id(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Process::Child(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The result of one round: polls a second, CPU seconds for 1,000 polls, and memory in MB.
type Row = [f64; 3];

/// Runs the bare loop if this process was started for it. It does not return then.
pub(crate) fn run_bare_if_asked() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let (Some(port), Some(targets), Some(seconds)) = (number(BARE_PORT), number(BARE_TARGETS), number(BARE_INTERVAL))
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let is_separate = number(BARE_SEPARATE) == Some(1);
        runtime.block_on(bare(port as u16, Load { targets, seconds, is_separate }));
    }
}

/// A number of targets, each polled once in a number of seconds.
#[derive(Clone, Copy)]
struct Load {
    targets: usize,
    seconds: usize,
    /// Whether each target has a separate address, and so a separate connection.
    is_separate: bool,
}

impl Load {
    fn address(self, number: usize) -> Ipv4Addr {
        if self.is_separate { separate_address(number) } else { Ipv4Addr::LOCALHOST }
    }
}

/// The same work for each: 1,000 polls a second, and then more than two cores can do.
pub(crate) fn peers(port: u16, requests: &Requests) {
    raise_limit_of_files();
    for targets in [1_000, 8_000] {
        in_turn(Load { targets, seconds: 1, is_separate: false }, port, requests);
    }
}

/// 1,000 targets at 1,000 addresses.
pub(crate) fn addresses(_: u16, _: &Requests) {
    const TARGETS: usize = 1_000;
    raise_limit_of_files();
    let requests = Requests::default();
    let addresses: Vec<Ipv4Addr> = (0..TARGETS).map(separate_address).collect();
    let port = serve_at(&addresses, &requests);
    in_turn(Load { targets: TARGETS, seconds: 1, is_separate: true }, port, &requests);
}

/// An overloaded peer opens thousands of connections, and each has two ends here.
fn raise_limit_of_files() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
}

/// The work of a quiet homelab: 200 targets every 10 s.
pub(crate) fn idle(_: u16, _: &Requests) {
    together(Load { targets: 200, seconds: 10, is_separate: false });
}

/// Measures one peer after the other, each alone with the server, in several rounds.
fn in_turn(load: Load, port: u16, requests: &Requests) {
    let at = if load.is_separate { ", each at a separate address" } else { "" };
    println!("\n{} targets every {} s{at}", load.targets, load.seconds);
    println!("warm-up {WARM_UP:?}, window {WINDOW:?}, medians of {ROUNDS} rounds in turn");
    let mut rows = Rows::new();
    for _ in 0..ROUNDS {
        for (name, start) in starts(load) {
            let Some(peer) = start(port) else { continue };
            thread::sleep(WARM_UP);
            let before = begin(&peer, requests);
            thread::sleep(WINDOW);
            note(&mut rows, &name, end(&peer, requests, before));
        }
    }
    print(&rows);
}

/// Measures all peers at the same time, each with a separate server.
fn together(load: Load) {
    println!("\n{} targets every {} s", load.targets, load.seconds);
    println!("warm-up {WARM_UP:?}, window {IDLE_WINDOW:?}, medians of {ROUNDS} rounds, all at the same time");
    let servers: Vec<(u16, Requests)> = std::iter::repeat_with(|| {
        let requests = Requests::default();
        (serve(requests.clone()), requests)
    })
    .take(PEERS)
    .collect();
    let mut rows = Rows::new();
    for _ in 0..ROUNDS {
        let running: Vec<_> = (servers.iter().zip(starts(load)))
            .filter_map(|((port, requests), (name, start))| Some((name, start(*port)?, requests)))
            .collect();
        thread::sleep(WARM_UP);
        let before: Vec<_> = running.iter().map(|(_, peer, requests)| begin(peer, requests)).collect();
        thread::sleep(IDLE_WINDOW);
        for ((name, peer, requests), before) in running.iter().zip(before) {
            note(&mut rows, name, end(peer, requests, before));
        }
    }
    print(&rows);
}

/// Starts a peer that polls a port; `None` if it is not installed.
type Start = Box<dyn Fn(u16) -> Option<Peer>>;

/// Returns the peers for a load.
fn starts(load: Load) -> Vec<(String, Start)> {
    let host = move |(name, program): (String, PathBuf)| {
        let start = move |port| {
            let folder = tempfile::tempdir().unwrap();
            let interval = format!("{}s", load.seconds);
            let text = config_at(|number| load.address(number), port, load.targets, &interval, SCHEDULER);
            let host = Host::start_program(&program, folder.path(), &text);
            Some(Peer { process: Process::Host(host), _folder: Some(folder) })
        };
        (name, Box::new(start) as Start)
    };
    let bare: Start = Box::new(move |port| Some(start_bare(port, load)));
    let prometheus: Start = Box::new(move |port| start_prometheus(port, load));
    [("bare loop".to_owned(), bare), ("Prometheus".to_owned(), prometheus)]
        .into_iter()
        .chain(programs().into_iter().map(host))
        .collect()
}

/// The results of each peer in every round.
type Rows = Vec<(String, Vec<Row>)>;

fn note(rows: &mut Rows, name: &str, row: Row) {
    match rows.iter_mut().find(|(known, _)| known == name) {
        Some((_, rows)) => rows.push(row),
        None => rows.push((name.to_owned(), vec![row])),
    }
}

fn print(rows: &Rows) {
    let medians: Vec<(&str, Row)> = (rows.iter())
        .map(|(name, rows)| (name.as_str(), [0, 1, 2].map(|column| super::median(rows.iter().map(|row| row[column])))))
        .collect();
    let cost_of = |wanted: &str| medians.iter().find(|(name, _)| *name == wanted).map(|(_, [_, cpu, _])| *cpu);
    for ((name, [polls, cpu, memory]), (_, all)) in medians.iter().zip(rows) {
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for [_, cpu, _] in all {
            (least, most) = (least.min(*cpu), most.max(*cpu));
        }
        let times =
            |other: &str| cost_of(other).map_or(String::new(), |cost| format!(", {:.2} of {other}", cpu / cost));
        println!(
            "{name:<10} {polls:>6.0} polls/s, {cpu:.3} CPU s for 1,000 polls ({least:.3} to {most:.3}){}{}, {memory:.0} MB",
            times("bare loop"),
            times("Prometheus")
        );
    }
}

/// Begins the measurement of a peer: its CPU time so far, and the time.
fn begin(peer: &Peer, requests: &Requests) -> (f64, Instant) {
    requests.take();
    (cpu(peer.id()), Instant::now())
}

/// Ends the measurement of a peer.
fn end(peer: &Peer, requests: &Requests, (before, since): (f64, Instant)) -> Row {
    let (polls, seconds) = (requests.take().len() as f64, since.elapsed().as_secs_f64());
    [polls / seconds, (cpu(peer.id()) - before) / polls * 1000.0, memory(peer.id()).1]
}

fn start_bare(port: u16, Load { targets, seconds, is_separate }: Load) -> Peer {
    let mut this = Command::new(std::env::current_exe().unwrap());
    let settings = [
        (BARE_PORT, usize::from(port)),
        (BARE_TARGETS, targets),
        (BARE_INTERVAL, seconds),
        (BARE_SEPARATE, is_separate.into()),
    ];
    this.envs(settings.map(|(name, value)| (name, value.to_string())));
    Peer { process: Process::Child(this.spawn().unwrap()), _folder: None }
}

/// Starts Prometheus. `None` if it is not installed.
fn start_prometheus(port: u16, load: Load) -> Option<Peer> {
    let Load { targets, seconds, .. } = load;
    let folder = tempfile::tempdir().unwrap();
    let mut text = format!(
        "global: {{scrape_interval: {seconds}s, scrape_timeout: 1s}}\n\
         scrape_configs:\n- job_name: bench\n  static_configs:\n"
    );
    for number in 0..targets {
        let labels = format!("{{__metrics_path__: /{number:05}/metrics, instance: t{number}}}");
        let address = load.address(number);
        writeln!(text, "  - {{targets: ['{address}:{port}'], labels: {labels}}}").unwrap();
    }
    let file = folder.path().join("prometheus.yml");
    fs::write(&file, text).unwrap();
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .args(["--web.listen-address=127.0.0.1:0", "--log.level=error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => Some(Peer { process: Process::Child(child), _folder: Some(folder) }),
        Err(error) => {
            println!("Prometheus is left out, because it cannot be started ({error}): apt-get install prometheus");
            None
        }
    }
}

/// One item of the server's answer.
#[derive(Deserialize)]
struct Item {
    name: String,
    description: String,
    health: Health,
}

#[derive(Deserialize)]
struct Health {
    state: u8,
    latency: f64,
}

/// A task and a timer for each target, and the connections that are free.
async fn bare(port: u16, load: Load) {
    let Load { targets, seconds, .. } = load;
    let shared: Arc<Mutex<Vec<SendRequest<String>>>> = Arc::default();
    let (begin, interval) = (Instant::now() + Duration::from_millis(200), Duration::from_secs(seconds as u64));
    for number in 0..targets {
        let free = if load.is_separate { Arc::default() } else { shared.clone() };
        let address = load.address(number);
        let first = begin + interval.mul_f64(number as f64 / targets as f64);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval_at(first.into(), interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                let kept = free.lock().unwrap().pop();
                let Some(mut connection) = connected(kept, address, port).await else { continue };
                if let Some(worst) = poll(&mut connection, &format!("/{number:05}")).await {
                    black_box(worst);
                    free.lock().unwrap().push(connection);
                }
            }
        });
    }
    std::future::pending::<()>().await;
}

async fn connected(kept: Option<SendRequest<String>>, address: Ipv4Addr, port: u16) -> Option<SendRequest<String>> {
    if let Some(kept) = kept.filter(|kept| !kept.is_closed()) {
        return Some(kept);
    }
    let stream = TcpStream::connect((address, port)).await.ok()?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    Some(sender)
}

/// Reads one answer and returns the worst state in it.
async fn poll(connection: &mut SendRequest<String>, path: &str) -> Option<u8> {
    use http_body_util::BodyExt;
    connection.ready().await.ok()?;
    let request = Request::get(path).header("host", "127.0.0.1").body(String::new()).ok()?;
    let body = connection.send_request(request).await.ok()?.into_body().collect().await.ok()?.to_bytes();
    let items: Vec<Item> = serde_json::from_slice(&body).ok()?;
    let worst = items.iter().map(|item| item.health.state).max();
    for item in &items {
        black_box((&item.name, &item.description, item.health.latency));
    }
    worst
}
