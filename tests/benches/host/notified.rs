//! The cost of a thousand transitions, with and without channels that are notified of them.

use crate::support::{DOWN, Host, Requests, get};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Each has ten dependencies, which break and recover together: a thousand transitions.
const TARGETS: usize = 50;
/// The time for which all dependencies are down, and then up again.
const PHASE: Duration = Duration::from_secs(25);

/// Fifty targets of ten dependencies, polled every second for 50 s: without transitions, and while all break and
/// recover; without channels, with two of one route, which summarises the storm, and with two of a route for each
/// target, which notify of each.
pub(crate) fn notified(port: u16, _: &Requests) {
    let received = Arc::new(AtomicUsize::new(0));
    let receiver = receive(received.clone());
    let channels = format!(
        "[[channel]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{receiver}/hook\"\n\
         [[channel]]\nname = \"phone\"\nkind = \"ntfy\"\nurl = \"http://127.0.0.1:{receiver}\"\n\
         settings = {{ topic = \"alerts\" }}\n"
    );
    let route = "channels = [\"hook\", \"phone\"]\ngroup_wait = \"1s\"\ngroup_interval = \"10s\"\n";
    let one = format!("{channels}[[route]]\n{route}");
    let each = (0..TARGETS).map(|number| format!("[[route]]\nmatch = {{ target = \"t{number}\" }}\n{route}"));
    let each = channels + &each.collect::<String>();
    let mut targets = "[scheduler]\ncadence = \"fixed\"\nmin_interval = \"1s\"\n".to_owned();
    for number in 0..TARGETS {
        writeln!(
            targets,
            "[[target]]\nid = \"t{number}\"\nkind = \"proactive-deps\"\ninterval = \"1s\"\n\
             url = \"http://127.0.0.1:{port}/toggled/{number}\""
        )
        .unwrap();
    }
    println!("\nsettings: {TARGETS} targets of 10 dependencies, every second, for {} s", 2 * PHASE.as_secs());
    println!(
        "| routes with two channels | began to fire | resolved | requests received | CPU s | MB written | memory MB, while down and after |"
    );
    println!("|---|---|---|---|---|---|---|");
    for _ in 0..3 {
        for (routes, routed, breaks) in [(0, "", false), (0, "", true), (1, one.as_str(), true), (TARGETS, &each, true)]
        {
            let folder = tempfile::tempdir().unwrap();
            DOWN.store(false, Ordering::Relaxed);
            let host = Host::start(folder.path(), &format!("{targets}{routed}"));
            thread::sleep(Duration::from_secs(15));
            received.store(0, Ordering::Relaxed);
            let (cpu, before) = (host.cpu(), written(host.id()));
            DOWN.store(breaks, Ordering::Relaxed);
            thread::sleep(PHASE);
            let (firing, memory) = (alerts(&host, "firing"), host.memory().1);
            DOWN.store(false, Ordering::Relaxed);
            thread::sleep(PHASE);
            println!(
                "| {routes} | {firing} | {} | {} | {:.2} | {:.2} | {memory:.1}, {:.1} |",
                alerts(&host, "resolved"),
                received.load(Ordering::Relaxed),
                host.cpu() - cpu,
                (written(host.id()) - before) / 1e6,
                host.memory().1,
            );
            host.terminate();
        }
    }
}

/// Bytes that a process has caused to be written.
fn written(process: u32) -> f64 {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap();
    line.parse().unwrap()
}

/// The alerts in a state.
fn alerts(host: &Host, state: &str) -> u64 {
    let metrics = get(&host.metrics, "/metrics");
    let prefix = format!("polliwog_alerts{{state=\"{state}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(prefix.as_str())?.parse::<f64>().ok()).unwrap() as u64
}

/// Takes every notification and counts it.
fn receive(received: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let received = received.clone();
            thread::spawn(move || {
                while take(&stream).is_some() {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    port
}

/// Reads a request and answers it. Returns `None` at the end of the connection.
fn take(mut stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).ok()
}
