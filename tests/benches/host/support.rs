//! The server that is polled, the host that polls it, and what the kernel and `/metrics` report of the host.

use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const TOKEN: &str = "a-token-for-the-benchmark";
/// Ten dependencies, about as long as such answers are.
const DEPENDENCIES: usize = 10;

/// The programs to compare, each with its name: those of the variable `PROGRAMS`, such as `old=/path/to/polliwog`,
/// separated by commas, and this one.
pub(crate) fn programs() -> Vec<(String, PathBuf)> {
    let named = std::env::var("PROGRAMS").unwrap_or_default();
    let pair = |entry: &str| {
        let (name, path) = entry.split_once('=').unwrap_or_else(|| panic!("PROGRAMS: {entry:?} is not NAME=PATH"));
        (name.to_owned(), PathBuf::from(path))
    };
    let this = ("polliwog".to_owned(), PathBuf::from(env!("CARGO_BIN_EXE_polliwog")));
    named.split(',').filter(|entry| !entry.is_empty()).map(pair).chain([this]).collect()
}

/// Whether the dependencies of the targets under `/toggled/` are down.
pub(crate) static DOWN: AtomicBool = AtomicBool::new(false);

/// When each request came.
#[derive(Default)]
pub(crate) struct Log {
    times: Mutex<Vec<Instant>>,
    more: Condvar,
}

pub(crate) type Requests = Arc<Log>;

impl Log {
    pub(crate) fn note(&self) {
        self.times.lock().unwrap().push(Instant::now());
        self.more.notify_one();
    }

    /// Waits for so many requests since the last time they were taken.
    pub(crate) fn wait(&self, count: usize) {
        drop(self.more.wait_while(self.times.lock().unwrap(), |times| times.len() < count).unwrap());
    }

    pub(crate) fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.times.lock().unwrap())
    }
}

/// Returns the address of a target that shares it with no other.
pub(crate) fn separate_address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (number / 250) as u8, (number % 250 + 1) as u8)
}

/// Answers every request with a report, but for those of every hundredth target, which has none. Returns the port.
pub(crate) fn serve(requests: Requests) -> u16 {
    serve_at(&[Ipv4Addr::LOCALHOST], &requests)
}

/// The same at several addresses with one port.
pub(crate) fn serve_at(addresses: &[Ipv4Addr], requests: &Requests) -> u16 {
    let item = |n: usize| {
        format!(
            "{{\"name\":\"dependency-{n}\",\"description\":\"a service that this one needs to answer\",\"impact\":\"orders \
             wait\",\"healthy\":true,\"health\":{{\"state\":0,\"code\":200,\"latency\":{n}.5,\"skipped\":false}},\
             \"contact\":{{\"team\":\"platform\",\"page\":\"https://example.invalid/{n}\"}}}}"
        )
    };
    let body = format!("[{}]", (0..DEPENDENCIES).map(item).collect::<Vec<_>>().join(","));
    let json = |body: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let down =
        json(&body.replace("\"healthy\":true,\"health\":{\"state\":0,", "\"healthy\":false,\"health\":{\"state\":2,"));
    let good = json(&body);
    let sample = |n: usize| {
        let labels = format!("{{name=\"dependency-{n}\",team=\"platform\"}}");
        let names = ["healthy", "state", "code", "latency_seconds", "skipped"];
        names.map(|name| format!("dependency_{name}{labels} {n}.5\n")).concat()
    };
    let samples = (0..DEPENDENCIES).map(sample).collect::<String>();
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n{samples}",
        samples.len()
    );
    let bad = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned();
    let answers = Arc::new(Answers { good, down, text, bad });
    let mut port = 0;
    for address in addresses {
        let listener = TcpListener::bind((*address, port)).unwrap();
        port = listener.local_addr().unwrap().port();
        let (requests, answers) = (requests.clone(), answers.clone());
        small_thread(move || {
            for stream in listener.incoming().flatten() {
                let (requests, answers) = (requests.clone(), answers.clone());
                small_thread(move || answer(&stream, &requests, &answers));
            }
        });
    }
    port
}

fn small_thread(run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(64 << 10).spawn(run).unwrap();
}

/// A report, one in which all is down, the same facts as the first for Prometheus, and no report.
struct Answers {
    good: String,
    down: String,
    text: String,
    bad: String,
}

/// Answers the requests of a connection, with one descriptor: an overloaded peer opens thousands of connections.
fn answer(stream: &TcpStream, requests: &Requests, answers: &Answers) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let (mut line, mut path) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if path.is_empty() {
                line.split(' ').nth(1).unwrap_or_default().clone_into(&mut path);
            }
        }
        requests.note();
        let answer = match path.as_str() {
            path if path.starts_with("/toggled/") && DOWN.load(Ordering::Relaxed) => &answers.down,
            path if path.ends_with("/metrics") => &answers.text,
            path if path.ends_with("00") => &answers.bad,
            _ => &answers.good,
        };
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

pub(crate) struct Host {
    child: Child,
    pub(crate) api: String,
    pub(crate) metrics: String,
    pub(crate) spawned: Instant,
}

impl Host {
    pub(crate) fn start(folder: &Path, config: &str) -> Self {
        Self::start_program(Path::new(env!("CARGO_BIN_EXE_polliwog")), folder, config)
    }

    pub(crate) fn start_program(program: &Path, folder: &Path, config: &str) -> Self {
        let listen = "[server]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n";
        fs::write(folder.join("polliwog.toml"), format!("{listen}{config}")).unwrap();
        let spawned = Instant::now();
        let mut child = Command::new(program)
            .args(["run", "--data-dir", "data"])
            .current_dir(folder)
            .env("POLLIWOG_ADMIN_TOKEN", TOKEN)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("pages and API at")).expect("the host listens");
        let address = |after: &str| line.split(after).nth(1).unwrap().split('/').next().unwrap().to_owned();
        let (api, metrics) = (address("pages and API at http://"), address("metrics at http://"));
        // Its log is read to the end. A full pipe would block it.
        thread::spawn(move || lines.for_each(drop));
        Self { child, api, metrics, spawned }
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        serde_json::from_str(&get(&self.api, path)).unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Seconds of CPU so far.
    pub(crate) fn cpu(&self) -> f64 {
        cpu(self.id())
    }

    /// Resident and proportional memory in MB.
    pub(crate) fn memory(&self) -> (f64, f64) {
        memory(self.id())
    }

    /// The cumulated buckets of the time from due to start: upper bound in seconds, count.
    pub(crate) fn waits(&self) -> Vec<(f64, f64)> {
        let metrics = get(&self.metrics, "/metrics");
        let own: Vec<&str> = metrics.lines().filter(|line| line.contains("proactive-deps")).collect();
        buckets(&own.join("\n"), "polliwog_scheduler_queue_wait_seconds_bucket{le=\"")
    }

    pub(crate) fn terminate(mut self) {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        self.child.wait().unwrap();
    }
}

/// Seconds of CPU of a process so far.
pub(crate) fn cpu(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    // Ticks of a hundredth of a second, as on every Linux.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Resident and proportional memory of a process in MB.
pub(crate) fn memory(process: u32) -> (f64, f64) {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let of = |name: &str| {
        let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1000.0
    };
    (of("Rss:"), of("Pss:"))
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn get(address: &str, path: &str) -> String {
    send(address, "GET", path, "")
}

/// Reads an answer in pieces while `go_on` is true. Returns the time to its first byte, and its length with the head.
pub(crate) fn opened(address: &str, path: &str, go_on: impl Fn(usize) -> bool) -> (Duration, usize) {
    let since = Instant::now();
    let mut stream = request(address, "GET", path, "");
    let (mut piece, mut first, mut bytes) = (vec![0; 64 << 10], None, 0);
    loop {
        let read = stream.read(&mut piece).unwrap();
        first = first.or(Some(since.elapsed()));
        bytes += read;
        if read == 0 || !go_on(bytes) {
            return (first.unwrap_or_default(), bytes);
        }
    }
}

/// Reads an answer in pieces and discards it.
pub(crate) fn discard(address: &str, path: &str) {
    let mut stream = request(address, "GET", path, "");
    let mut piece = vec![0; 64 << 10];
    while stream.read(&mut piece).unwrap() > 0 {
        thread::yield_now();
    }
}

pub(crate) fn send(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut answer = String::new();
    request(address, method, path, body).read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn request(address: &str, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

pub(crate) fn config(port: u16, targets: usize, interval: &str, scheduler: &str) -> String {
    config_at(|_| Ipv4Addr::LOCALHOST, port, targets, interval, scheduler)
}

/// The same with an address for each target.
pub(crate) fn config_at(
    address: impl Fn(usize) -> Ipv4Addr,
    port: u16,
    targets: usize,
    interval: &str,
    scheduler: &str,
) -> String {
    println!("\nsettings: {targets} targets, interval {interval}, {}", scheduler.replace('\n', ", "));
    let mut config = format!("[scheduler]\n{scheduler}\n");
    for number in 0..targets {
        let address = address(number);
        writeln!(
            config,
            "[[target]]\nid = \"t{number}\"\nkind = \"proactive-deps\"\nurl = \"http://{address}:{port}/{number:05}\"\n\
             interval = \"{interval}\""
        )
        .unwrap();
    }
    config
}

/// The bound below which this share of the values counted between two readings lies, interpolated within its bucket.
pub(crate) fn interpolated(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let counts: Vec<(f64, f64)> = before.iter().zip(after).map(|((bound, a), (_, b))| (*bound, b - a)).collect();
    let wanted = share * counts.last().map_or(0.0, |(_, count)| *count);
    let mut below = (0.0, 0.0);
    for (bound, count) in counts {
        if count >= wanted {
            return below.0 + (bound - below.0) * (wanted - below.1) / (count - below.1).max(1.0);
        }
        below = (bound, count);
    }
    f64::NAN
}

/// The least bound below which this share of the values counted between two readings lies.
pub(crate) fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let counts: Vec<(f64, f64)> = before.iter().zip(after).map(|((bound, a), (_, b))| (*bound, b - a)).collect();
    let all = counts.last().map_or(0.0, |(_, count)| *count);
    counts.iter().find(|(_, count)| *count >= share * all).map_or(f64::NAN, |(bound, _)| *bound)
}

/// The cumulated buckets of a histogram: upper bound, count.
pub(crate) fn buckets(metrics: &str, prefix: &str) -> Vec<(f64, f64)> {
    let buckets = metrics.lines().filter_map(|line| {
        let (bound, rest) = line.strip_prefix(prefix)?.split_once('"')?;
        Some((bound.parse().unwrap_or(f64::INFINITY), rest.rsplit(' ').next()?.parse().ok()?))
    });
    buckets.collect()
}
