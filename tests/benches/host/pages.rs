//! The pages of a large estate: the time to the first byte, the size, and what open pages cost the polls.

use super::support::{Host, Requests, config, interpolated, opened};
use crate::past;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TARGETS: usize = 5_000;
/// Targets with latencies of 400 days.
const MEASURED: usize = 60;
const OPEN: usize = 20;
const PATHS: [&str; 10] = [
    "/",
    "/?status=unreachable",
    "/targets/t7",
    "/targets/t7?range=400d",
    "/dependencies/dependency-3",
    "/graph?around=t7",
    "/events",
    "/scheduler",
    "/wall",
    "/settings",
];

/// The pages of 5,000 targets with 10 dependencies each and a past of 400 days, first alone and then while 20 pages are
/// open: an open page has a stream of events and reads the first page's content every second, as the script does.
pub(crate) fn pages(port: u16, requests: &Requests) {
    const POLLS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let bytes = past::make(&folder.path().join("data"), TARGETS, MEASURED);
    println!("400 days of changes of {TARGETS} targets and of latencies of {MEASURED}: {:.0} MB", bytes as f64 / 1e6);
    let scheduler = "cadence = \"fixed\"\nmax_per_host = 256\nmax_in_flight = 256";
    let host = Host::start(folder.path(), &config(port, TARGETS, "10s", scheduler));
    requests.wait(TARGETS * 3);
    let waits = || {
        requests.take();
        let before = host.waits();
        requests.wait(POLLS);
        let after = host.waits();
        [0.5, 0.99].map(|share| interpolated(&before, &after, share) * 1000.0)
    };
    let told = |who: &str, [p50, p99]: [f64; 2]| {
        println!("{who:<14} due to start p50 {p50:.2} ms, p99 {p99:.2} ms; {:.1} MB PSS", host.memory().1);
    };
    told("alone", waits());
    let alone = PATHS.map(|path| measured(&host.api, path));
    let (ending, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let open: Vec<_> = (0..OPEN)
        .map(|_| {
            let (api, ending, read) = (host.api.clone(), ending.clone(), read.clone());
            thread::spawn(move || keep_open(&api, &ending, &read))
        })
        .collect();
    told("20 open pages", waits());
    let read = read.load(Ordering::Relaxed);
    println!("the open pages were refreshed {read} times");
    println!("\n{:<28} first byte, ms: alone, with 20 open pages; KB", "page");
    for (path, (first, bytes)) in PATHS.iter().zip(alone) {
        let (busy, _) = measured(&host.api, path);
        println!("{path:<28} {first:>6.1} {busy:>6.1} {:>7.1}", bytes as f64 / 1000.0);
    }
    ending.store(true, Ordering::Relaxed);
    open.into_iter().for_each(|page| page.join().unwrap());
    host.terminate();
}

/// The median time to the first byte of a path in milliseconds, and the bytes of the answer.
fn measured(api: &str, path: &str) -> (f64, usize) {
    const ROUNDS: usize = 21;
    let mut rounds: Vec<(f64, usize)> = (0..ROUNDS)
        .map(|_| {
            let (first, bytes) = opened(api, path, |_| true);
            (first.as_secs_f64() * 1000.0, bytes)
        })
        .collect();
    rounds.sort_by(|left, right| left.0.total_cmp(&right.0));
    rounds[ROUNDS / 2]
}

fn keep_open(api: &str, ending: &Arc<AtomicBool>, read: &AtomicUsize) {
    let (stream, ended) = (api.to_owned(), ending.clone());
    let events = thread::spawn(move || opened(&stream, "/api/v1/events", |_| !ended.load(Ordering::Relaxed)));
    while !ending.load(Ordering::Relaxed) {
        let since = Instant::now();
        opened(api, "/fragments/targets", |_| true);
        read.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(1).saturating_sub(since.elapsed()));
    }
    events.join().unwrap();
}
