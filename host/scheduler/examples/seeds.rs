//! Runs random scenarios of the simulator: `cargo run --release -p scheduler --example seeds -- --seeds 10000`.

#[path = "../tests/chaos/simulation/mod.rs"]
mod simulation;

use simulation::{Summary, Violation, run};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns the value of `--first N` or `--seeds N`, or `otherwise` if the argument is missing.
fn argument(name: &str, otherwise: u64) -> Result<u64, String> {
    let mut arguments = std::env::args().skip(1);
    while let Some(found) = arguments.next() {
        if found == name {
            let value = arguments.next().unwrap_or_default();
            return value.parse().map_err(|_| format!("{name} must be a number, not {value:?}"));
        }
    }
    Ok(otherwise)
}

fn all(first: u64, seeds: u64) -> (Summary, Option<Violation>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (AtomicU64::new(first), AtomicBool::new(false));
    let work = || {
        let mut total = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.saturating_add(seeds) || failed.load(Ordering::Relaxed) {
                return (total, None);
            }
            match run(seed) {
                Ok(summary) => total = total.and(summary),
                Err(violation) => {
                    failed.store(true, Ordering::Relaxed);
                    return (total, Some(violation));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut total = (Summary::default(), None);
        for worker in workers {
            let (summary, violation) = worker.join().expect("a run does not panic");
            total = (total.0.and(summary), violation.or(total.1));
        }
        total
    })
}

fn main() -> ExitCode {
    let (first, seeds) = match (argument("--first", 0), argument("--seeds", 200)) {
        (Ok(first), Ok(seeds)) => (first, seeds),
        (Err(why), _) | (_, Err(why)) => {
            eprintln!("{why}");
            return ExitCode::from(64);
        }
    };
    let (summary, violation) = all(first, seeds);
    let Summary { steps, polls, failures, interventions, probes, dead_letters, virtual_time } = summary;
    println!(
        "{seeds} seeds from {first}: {:.0} virtual hours, {steps} steps, {polls} polls ({failures} failed), \
         {probes} probes, {dead_letters} dead letters, {interventions} interventions",
        virtual_time.as_secs_f64() / 3600.0
    );
    match violation {
        None => {
            println!("every invariant held after every step");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("VIOLATED: {violation}");
            let seed = violation.seed;
            println!("replay: cargo run --release -p scheduler --example seeds -- --first {seed} --seeds 1");
            ExitCode::FAILURE
        }
    }
}
