//! The cost of the pool of instances, by its settings: `cargo bench -p tests --bench pool`.
//!
//! For each row, in a separate process: a fresh poll of the same recorded answer (2.4 KB, 10 dependencies), the
//! memory of the process before, with 3,000 polls that wait for an answer, and 10 s after they were given up, and how
//! late a healthy target's polls begin next to eight endless loops. The last row has the host's own 512 slots: there
//! most of the 3,000 wait for a slot.

use egress::{
    Egress, Exchange, Grant, Origin, OriginGrant, Player, RecordedRequest, RecordedResponse, Secrets, Tape, Tls,
};
use model::{Outcome, TargetId, Timestamp};
use sandbox::{Compiler, Config, Job, Limits, Plugin, Pool, Sandbox, Target};
use std::convert::identity;
use std::num::NonZeroUsize;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tests::guests;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Polls at a time.
const MANY: u32 = 3000;
const FRESH: usize = 3000;
const LOOPS: usize = 8;
const ROW: &str = "POLLIWOG_POOL_ROW";

/// A setting to measure: a name, the slots, and the pool.
fn rows() -> Vec<(&'static str, u32, Pool)> {
    let usual = Pool::default();
    let none = Pool { pagemap_scan: false, kept_memory: 0, kept_table: 0, ..usual };
    vec![
        ("nothing kept", MANY, none),
        ("kept 16 KiB", MANY, Pool { kept_memory: 16 << 10, ..usual }),
        ("kept 64 KiB (the host's)", MANY, usual),
        ("kept 1 MiB", MANY, Pool { kept_memory: 1 << 20, kept_table: 64 << 10, ..usual }),
        ("kept 64 KiB, no warm slots", MANY, Pool { warm_slots: 0, ..usual }),
        ("kept 64 KiB, all warm", MANY, Pool { warm_slots: MANY, ..usual }),
        ("kept 64 KiB, given back by 16", MANY, Pool { decommit_batch: 16, ..usual }),
        ("the host's, 512 slots", 512, usual),
    ]
}

fn main() {
    if let Some(row) = std::env::var(ROW).ok().and_then(|text| text.parse::<usize>().ok()) {
        let (name, slots, pool) = rows()[row];
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime").block_on(measure(name, slots, pool));
    }
    let scan = if Pool::default().pagemap_scan { "has" } else { "has not" };
    println!("{MANY} polls in flight, {FRESH} fresh polls, {LOOPS} endless loops; the kernel {scan} PAGEMAP_SCAN");
    println!(
        "{:<30} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9}",
        "POOL", "FRESH p50", "p99", "RSS", "IN FLIGHT", "10 s AFTER", "LATE p50", "LATE p99"
    );
    let program = std::env::current_exe().expect("this program");
    for row in 0..rows().len() {
        let status = Command::new(&program).env(ROW, row.to_string()).status().expect("this program starts");
        assert!(status.success(), "row {row} failed");
    }
}

async fn measure(name: &str, slots: u32, pool: Pool) {
    let egress = Egress::new(egress::Config { max_requests_per_host: MANY as usize * 2, ..egress::Config::default() });
    let compiler = Compiler::temporary((env!("CARGO_BIN_EXE_compile"), &[]), [7; 32], 1).expect("a temporary folder");
    let config = Config { instance_slots: slots, lanes: NonZeroUsize::MIN, pool, ..Config::default() };
    let sandbox = Arc::new(Sandbox::new(config, compiler, &egress).expect("a sandbox"));
    let component = |kind: &str| builtin::ALL.iter().find(|plugin| plugin.kind == kind).expect("built in").component;
    let reader = sandbox.load(component("proactive-deps")).await.expect("a good plugin");
    let (mut fresh, before) = (fresh(&sandbox, &reader).await, resident());
    let waiter = sandbox.load(component("http")).await.expect("a good plugin");
    let (in_flight, after) = in_flight(&sandbox, &waiter, MANY.min(slots) as usize).await;
    let endless = sandbox.load(guests::ENDLESS_LOOP).await.expect("a good plugin");
    let mut late = beside_loops(&sandbox, &reader, &endless).await;
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    let millis = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    println!(
        "{name:<30} {:>9} {:>9} {:>6.0} MB {in_flight:>7.0} MB {after:>7.0} MB {:>9} {:>9}",
        micros(part(&mut fresh, 0.5)),
        micros(part(&mut fresh, 0.99)),
        before,
        millis(part(&mut late, 0.5)),
        millis(part(&mut late, 0.99)),
    );
}

fn job(plugin: &Plugin, id: &str, url: &str, tape: Tape) -> Job {
    let (base, origin) = Origin::parse(url).expect("our URL is one");
    let target = Target {
        id: TargetId::new(id).expect("our id is one"),
        name: id.to_owned(),
        url: url.to_owned(),
        also: Vec::new(),
        labels: Vec::new(),
        settings: "{}".to_owned(),
        secrets: Vec::new(),
    };
    let grant =
        Grant::new(base, vec![OriginGrant { origin, tls: Tls::system().expect("certificates") }], Secrets::default());
    Job {
        plugin: plugin.clone(),
        target: Arc::new(target),
        grant: Arc::new(grant),
        limits: Limits::default(),
        timeout: Duration::from_secs(300),
        now: Timestamp::from_millis(1_784_578_620_000),
        tape,
        zone: None,
        stored: model::PluginValues::default(),
    }
}

/// A poll that a recording answers, so that nothing but the sandbox is measured.
fn recorded(plugin: &Plugin) -> Job {
    const URL: &str = "http://127.0.0.1:9/";
    let item = |n: usize| {
        serde_json::json!({
            "name": format!("dependency-{n}"), "type": "database", "description": "Primary database of the order service",
            "healthy": true, "health": { "state": 0, "code": 200, "latency": 12 + n },
            "lastChecked": "2026-02-21T10:30:00.000Z", "contact": { "email": "db-team@example.com" },
        })
    };
    let body = serde_json::Value::from((0..10).map(item).collect::<Vec<_>>()).to_string();
    let request = RecordedRequest {
        method: "GET".to_owned(),
        url: URL.to_owned(),
        headers: Vec::new(),
        body: None,
        signatures: Vec::new(),
        authentication: None,
    };
    let response = RecordedResponse {
        status: 200,
        reason: String::new(),
        headers: Vec::new(),
        body: Some(body),
        body_base64: None,
        total_ms: 1.0,
        body_complete: true,
    };
    let exchange = Exchange { request, response: Some(response), error: None, tls: None };
    job(plugin, "recorded", URL, Tape::Replay(Arc::new(Player::new(vec![exchange]))))
}

async fn fresh(sandbox: &Sandbox, plugin: &Plugin) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..FRESH + 100 {
        let job = recorded(plugin);
        let began = Instant::now();
        let done = sandbox.poll(job).await;
        assert!(matches!(&done.outcome, Outcome::Success(report) if report.dependencies.len() == 10), "{done:?}");
        if number >= 100 {
            times.push(began.elapsed());
        }
    }
    times
}

/// Memory with many polls under way, and ten seconds after they were given up.
async fn in_flight(sandbox: &Arc<Sandbox>, waiter: &Plugin, expected: usize) -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let waiting = Arc::new(AtomicUsize::new(0));
    let counted = waiting.clone();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let counted = counted.clone();
            tokio::spawn(async move {
                let mut request = [0; 256];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                // Until the other side gives up.
                let _ = stream.read(&mut request).await;
            });
        }
    });
    let polls: Vec<_> = (0..MANY)
        .map(|number| {
            // Each its own URL: one request for all would be one.
            let job = job(waiter, &format!("t{number}"), &format!("{url}{number}/"), Tape::Off);
            let sandbox = sandbox.clone();
            tokio::spawn(async move { sandbox.poll(job).await })
        })
        .collect();
    while waiting.load(Ordering::Relaxed) < expected {
        sleep(Duration::from_millis(10)).await;
    }
    let most = resident();
    for poll in &polls {
        poll.abort();
    }
    for poll in polls {
        let _ = poll.await;
    }
    server.abort();
    sleep(Duration::from_secs(10)).await;
    (most, resident())
}

/// How late a healthy target's polls begin next to endless loops.
async fn beside_loops(sandbox: &Arc<Sandbox>, healthy: &Plugin, endless: &Plugin) -> Vec<Duration> {
    let target = TargetId::new("loop").expect("our id is one");
    for _ in 0..LOOPS {
        let (sandbox, job) = (sandbox.clone(), job(endless, "loop", "http://127.0.0.1:9/", Tape::Off));
        let lanes = sandbox.clone();
        lanes.lanes().spawn_all([(target.clone(), async move { drop(sandbox.poll(job).await) })], identity);
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (running, healthy) = (sandbox.clone(), healthy.clone());
    let polls = async move {
        let mut due = interval(Duration::from_millis(5));
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut late = Vec::new();
        for _ in 0..800 {
            late.push(due.tick().await.elapsed());
            running.poll(recorded(&healthy)).await;
        }
        let _ = sender.send(late);
    };
    sandbox.lanes().spawn_all([(target, polls)], identity);
    receiver.await.expect("the healthy target is polled")
}

fn part(times: &mut [Duration], part: f64) -> Duration {
    times.sort();
    times[((times.len() - 1) as f64 * part) as usize]
}

/// Megabytes of this process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or_default() / 1000.0
}
