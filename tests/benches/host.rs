//! The cost of the running host and its restarts, measured from outside: `cargo bench -p polliwog --bench host`.
//!
//! A server in this process answers and keeps the time of every request; the host is a separate process, and the
//! kernel reports its CPU time and memory. An argument runs only the measurements whose names contain it: `-- readers`.
//! With `PROGRAMS=NAME=/path/to/polliwog,…`, the measurements `readers`, `peers`, `addresses` and `idle` also run those
//! programs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement reads the clock, and may panic")]

#[path = "host/notified.rs"]
mod notified;
#[path = "host/pages.rs"]
mod pages;
#[path = "host/past.rs"]
mod past;
#[path = "host/peers.rs"]
mod peers;
#[path = "host/support.rs"]
mod support;

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{Host, Requests, buckets, config, discard, get, interpolated, programs, quantile, send, serve};

fn main() {
    peers::run_bare_if_asked();
    let requests: Requests = Arc::default();
    let port = serve(requests.clone());
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    type Measurement = fn(u16, &Requests);
    let all: [(&str, Measurement); 11] = [
        ("warm", warm),
        ("replaced", replaced),
        ("steady", steady),
        ("many", many),
        ("readers", readers),
        ("pages", pages::pages),
        ("reconfigured", reconfigured),
        ("notified", notified::notified),
        ("peers", peers::peers),
        ("addresses", peers::addresses),
        ("idle", peers::idle),
    ];
    for (_, measure) in all.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        measure(port, &requests);
    }
}

/// From the start of the process to its first request, at the first start ever and at a later one.
fn warm(port: u16, requests: &Requests) {
    let folder = tempfile::tempdir().unwrap();
    let target = format!("[[target]]\nid = \"t\"\nkind = \"http\"\nurl = \"http://127.0.0.1:{port}/1\"\n");
    println!("\nsettings: 1 target, the built-in plugins");
    let first = |what: &str| {
        requests.take();
        let host = Host::start(folder.path(), &target);
        let listening = host.spawned.elapsed();
        requests.wait(1);
        let polled = requests.take()[0].duration_since(host.spawned);
        println!("{what} listening after {} ms, first poll after {} ms", listening.as_millis(), polled.as_millis());
        host.terminate();
        // The poll of this start is not the next one's.
        fs::remove_file(folder.path().join("data/polliwog.db")).unwrap();
    };
    first("first start ");
    first("second start");
}

/// Plugins replaced while 500 targets are polled a second: no poll may fail for it.
fn replaced(port: u16, requests: &Requests) {
    const TARGETS: usize = 500;
    const VERSIONS: u8 = 20;
    let folder = tempfile::tempdir().unwrap();
    let scheduler = "cadence = \"fixed\"\nmin_interval = \"100ms\"\nmax_per_host = 256\nmax_in_flight = 256";
    println!("\nsettings: {TARGETS} targets, interval 1s, {}", scheduler.replace('\n', ", "));
    let mut config = format!("[scheduler]\n{scheduler}\n");
    for number in 0..TARGETS {
        let url = format!("http://127.0.0.1:{port}/{number}x");
        writeln!(
            config,
            "[[target]]\nid = \"t{number}\"\nkind = \"proactive-deps\"\nurl = \"{url}\"\ninterval = \"1s\""
        )
        .unwrap();
    }
    let host = Host::start(folder.path(), &config);
    requests.wait(TARGETS * 3);
    let plugins = folder.path().join("data/plugins");
    fs::create_dir_all(&plugins).unwrap();
    let serving = |host: &Host| {
        let all = host.get("/api/v1/plugins")["plugins"].as_array().unwrap().clone();
        let plugin = all.into_iter().find(|plugin| plugin["kind"] == "proactive-deps").unwrap();
        (plugin["sha256"].clone(), plugin["polls"].as_u64().unwrap())
    };
    let component = builtin::ALL.iter().find(|plugin| plugin.kind == "proactive-deps").unwrap().component;
    requests.take();
    let (before, since) = (serving(&host), Instant::now());
    let mut last = before.0;
    for version in 0..VERSIONS {
        // Another file that does the same: a custom section of one byte, named "v".
        let mut other = component.to_vec();
        other.extend_from_slice(&[0, 3, 1, b'v', version]);
        fs::write(plugins.join("new"), other).unwrap();
        fs::rename(plugins.join("new"), plugins.join("p.wasm")).unwrap();
        let now = loop {
            let (now, _) = serving(&host);
            if now != last {
                break now;
            }
            thread::sleep(Duration::from_millis(50));
        };
        last = now;
    }
    let (seconds, (_, after)) = (since.elapsed().as_secs_f64(), serving(&host));
    let stats = host.get("/api/v1/scheduler/stats");
    let failed = &stats["scheduler"]["CommandsFailed"];
    println!(
        "versions taken            {VERSIONS} in {seconds:.0} s\n\
         polls meanwhile           {} ({:.0} a second), failed since the start: {failed}",
        after - before.1,
        (after - before.1) as f64 / seconds,
    );
}

/// A thousand targets every second, and a restart in between.
fn steady(port: u16, requests: &Requests) {
    let folder = tempfile::tempdir().unwrap();
    let scheduler = "cadence = \"fixed\"\nmin_interval = \"100ms\"\nmax_per_host = 256\nmax_in_flight = 256";
    let config = config(port, 1_000, "1s", scheduler);
    let host = Host::start(folder.path(), &config);
    requests.wait(10_000);
    let (cpu, waits, since) = (host.cpu(), host.waits(), Instant::now());
    requests.take();
    requests.wait(30_000);
    let polls = requests.take().len() as f64;
    let seconds = since.elapsed().as_secs_f64();
    let (after, cpu) = (host.waits(), host.cpu() - cpu);
    let (rss, pss) = host.memory();
    println!(
        "polls a second            {:.0}\n\
         CPU for 1,000 polls       {:.3} s\n\
         due to start, p50         at most {} ms\n\
         due to start, p99         at most {} ms\n\
         memory                    {rss:.1} MB resident, {pss:.1} MB proportional",
        polls / seconds,
        cpu / polls * 1000.0,
        quantile(&waits, &after, 0.5) * 1000.0,
        quantile(&waits, &after, 0.99) * 1000.0,
    );
    host.terminate();
    // The outage itself: everything falls due several times.
    thread::sleep(Duration::from_secs(5));
    requests.take();
    let host = Host::start(folder.path(), &config);
    requests.wait(12_000);
    drop(host);
    let times = requests.take();
    let first = times[0];
    let mut tenths = vec![0_usize; 100];
    for time in times {
        if let Some(tenth) = tenths.get_mut((time.duration_since(first).as_secs_f64() * 10.0) as usize) {
            *tenth += 1;
        }
    }
    let by_second: Vec<usize> = tenths.chunks(10).map(|second| second.iter().sum()).collect();
    let mean = tenths.iter().sum::<usize>() as f64 / tenths.len() as f64;
    println!(
        "after a restart, 5 s down starts in each of the first 10 s: {by_second:?}\n\
         most starts in a tenth    {} ({:.2} of the mean, {mean:.0})",
        tenths.iter().max().unwrap(),
        *tenths.iter().max().unwrap() as f64 / mean,
    );
}

/// Ten thousand targets, killed and started again.
fn many(port: u16, requests: &Requests) {
    let folder = tempfile::tempdir().unwrap();
    let config = config(port, 10_000, "20s", "cadence = \"fixed\"\nmax_per_host = 256\nmax_in_flight = 256");
    let host = Host::start(folder.path(), &config);
    println!("first start to listening  {:.2} s", host.spawned.elapsed().as_secs_f64());
    // Every target twice, and failing ones once.
    requests.wait(20_000);
    let dead = |host: &Host| host.get("/api/v1/dead-letters")["total"].clone();
    let before = dead(&host);
    let (rss, pss) = host.memory();
    drop(host);
    let host = Host::start(folder.path(), &config);
    let listening = host.spawned.elapsed();
    let scheduled = loop {
        let stats = host.get("/api/v1/scheduler/stats");
        let (waiting, flying) = (&stats["queue"]["Size"], &stats["scheduler"]["WorkerPoolUtilized"]);
        if waiting.as_u64().unwrap() + flying.as_u64().unwrap() == 10_000 {
            break host.spawned.elapsed();
        }
    };
    println!(
        "memory                    {rss:.1} MB resident, {pss:.1} MB proportional\n\
         after kill -9             listening after {:.2} s, 10,000 targets scheduled after {:.2} s\n\
         dead letters              {before} before, {} after",
        listening.as_secs_f64(),
        scheduled.as_secs_f64(),
        dead(&host)
    );
}

/// Ten thousand targets, a thousand polls a second: in turn without readers and with 20 clients that read all the time.
fn readers(port: u16, requests: &Requests) {
    const CLIENTS: usize = 20;
    const POLLS: usize = 15_000;
    const ROUNDS: usize = 5;
    let scheduler = "cadence = \"fixed\"\nmax_per_host = 256\nmax_in_flight = 256";
    let config = config(port, 10_000, "10s", scheduler);
    for (name, program) in &programs() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::start_program(program, folder.path(), &config);
        requests.wait(40_000);
        let measure = || {
            requests.take();
            let (waits, cpu, since) = (host.waits(), host.cpu(), Instant::now());
            requests.wait(POLLS);
            let (after, seconds) = (host.waits(), since.elapsed().as_secs_f64());
            let milliseconds = |share| interpolated(&waits, &after, share) * 1000.0;
            let polls = requests.take().len() as f64;
            [milliseconds(0.5), milliseconds(0.99), polls / seconds, (host.cpu() - cpu) / seconds * 100.0]
        };
        let shown = |who: &str, [p50, p99, polls, cpu]: [f64; 4], more: &str| {
            println!("{name:<9} {who:<18} p50 {p50:.2} ms, p99 {p99:.2} ms, {polls:.0} polls/s, {cpu:.0} % CPU{more}");
        };
        let (mut alone, mut read) = (Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            alone.push(measure());
            shown(&format!("{round} alone"), alone[round - 1], "");
            let (ending, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (ending, answers) = (ending.clone(), answers.clone());
                    let (api, metrics) = (host.api.clone(), host.metrics.clone());
                    thread::spawn(move || read_all(number, (&api, &metrics), &ending, &answers))
                })
                .collect();
            read.push(measure());
            shown(
                &format!("{round} 20 readers"),
                read[round - 1],
                &format!(", {} answers", answers.load(Ordering::Relaxed)),
            );
            ending.store(true, Ordering::Relaxed);
            clients.into_iter().for_each(|client| client.join().unwrap());
        }
        let medians = |all: &[[f64; 4]]| [0, 1, 2, 3].map(|column| median(all.iter().map(|row| row[column])));
        shown("median alone", medians(&alone), "");
        shown("median 20 readers", medians(&read), "");
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reads what pages, API and Prometheus read, until `ending` is set. It yields to everything else, because a client
/// runs on another machine.
fn read_all(number: usize, (api, metrics): (&str, &str), ending: &AtomicBool, answers: &AtomicUsize) {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
    let one = format!("/api/v1/targets/t{number}");
    let reads = [(api, "/api/v1/targets"), (api, &one), (api, "/"), (metrics, "/metrics")];
    for (address, path) in reads.into_iter().cycle().skip(number) {
        if ending.load(Ordering::Relaxed) {
            return;
        }
        discard(address, path);
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ten thousand running targets, of which one changes, and for comparison none.
fn reconfigured(port: u16, requests: &Requests) {
    const TARGETS: usize = 10_000;
    const ROUNDS: u8 = 5;
    let folder = tempfile::tempdir().unwrap();
    let scheduler = "cadence = \"fixed\"\nmax_per_host = 256\nmax_in_flight = 256";
    let mut text = config(port, TARGETS, "20s", scheduler);
    let secret = folder.path().join("secret");
    fs::write(&secret, "a-secret-of-a-target").unwrap();
    writeln!(
        text,
        "[[target]]\nid = \"other\"\nkind = \"http\"\nurl = \"http://127.0.0.1:{port}/other\"\nsecrets = {{ basic = {{ file = \
         {secret:?} }} }}"
    )
    .unwrap();
    let host = Host::start(folder.path(), &text);
    requests.wait(TARGETS * 2);
    let component = builtin::ALL.iter().find(|plugin| plugin.kind == "http").unwrap().component;
    let file = folder.path().join("polliwog.toml");
    let plugins = folder.path().join("data/plugins");
    fs::create_dir_all(&plugins).unwrap();
    let set = |round: u8| {
        let body = format!("{{\"interval\":\"2{round}s\"}}");
        send(&host.api, "PATCH", "/api/v1/targets/t77", &body);
    };
    let edit = |round: u8| {
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replacen("interval = \"20s\"", &format!("interval = \"3{round}s\""), 1)).unwrap();
    };
    let rotate = |round: u8| fs::write(&secret, format!("another-secret-{round}")).unwrap();
    let plug = |round: u8| {
        let mut other = component.to_vec();
        other.extend_from_slice(&[0, 3, 1, b'v', round]);
        fs::write(folder.path().join("data/accepted-plugins"), sha256(&other)).unwrap();
        fs::write(plugins.join("new"), other).unwrap();
        fs::rename(plugins.join("new"), plugins.join("http.wasm")).unwrap();
    };
    /// Makes the change of a round; `None` for the control.
    type Change<'a> = Option<&'a dyn Fn(u8)>;
    let changes: [(&str, Change<'_>); 5] = [
        ("nothing                   ", None),
        ("one interval by API       ", Some(&set)),
        ("one interval in the file  ", Some(&edit)),
        ("one rotated secret        ", Some(&rotate)),
        ("one plugin file           ", Some(&plug)),
    ];
    for (what, change) in changes {
        let (mut took, mut turns, mut late) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            let before = Reconfigurations::of(&host);
            let waits = host.waits();
            if let Some(change) = change {
                change(round);
            }
            let after = loop {
                let now = Reconfigurations::of(&host);
                if now.count > before.count || change.is_none() {
                    break now;
                }
                thread::sleep(Duration::from_millis(100));
            };
            // The turn that applies it, and what follows.
            thread::sleep(Duration::from_secs(3));
            took.push((after.seconds - before.seconds) * 1000.0);
            turns.push(quantile(&before.turns, &Reconfigurations::of(&host).turns, 1.0) * 1000.0);
            late.push(quantile(&waits, &host.waits(), 1.0) * 1000.0);
        }
        let most = took.iter().copied().fold(0.0, f64::max);
        println!(
            "{what} configurator {:.1} ms (median of {ROUNDS}; {most:.1} at most), longest turn of the loop at most {turns:?} ms, \
             polls late by at most {late:?} ms",
            median(took.into_iter()),
        );
    }
}

/// Numbers from `/metrics` about changes of the configuration and turns of the loop.
struct Reconfigurations {
    count: f64,
    seconds: f64,
    turns: Vec<(f64, f64)>,
}

impl Reconfigurations {
    fn of(host: &Host) -> Self {
        let metrics = get(&host.metrics, "/metrics");
        let number = |name: &str| -> f64 {
            let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        Self {
            count: number("polliwog_reconfiguration_seconds_count"),
            seconds: number("polliwog_reconfiguration_seconds_sum"),
            turns: buckets(&metrics, "polliwog_loop_turn_seconds_bucket{le=\""),
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
