//! The hostile suite in its long form: `cargo run --release -p tests --bin hostile -- [RUNS] [GUEST]`.
//!
//! Runs each guest 100 times next to an honest target. Prints the result, its duration, the delays of the honest
//! target's polls, and the memory of the process before and after.

use std::time::Duration;
use tests::hostile::{CPU, Case, HONEST, TIMEOUT, World, cases};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let runs: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100);
    let wanted = arguments.next();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let failed = runtime.block_on(suite(runs, wanted.as_deref()));
    if failed > 0 {
        eprintln!("{failed} guests were not contained");
        std::process::exit(1);
    }
}

async fn suite(runs: usize, wanted: Option<&str>) -> usize {
    let compile = std::env::current_exe().expect("a program").with_file_name("compile");
    let world = World::new(&compile.to_string_lossy()).await;
    println!(
        "{runs} runs of each guest; limits: CPU {} ms, time-out {} ms, memory 64 MiB; describe and check-settings: CPU 100 ms",
        CPU.as_millis(),
        TIMEOUT.as_millis()
    );
    println!("the honest target: an HTTP poll every {} ms on the same lane", HONEST.as_millis());
    println!(
        "{:<28} {:<34} {:>10} {:>10} {:>9} {:>9} {:>8} {:>8}",
        "GUEST", "VERDICT", "CONTAINED", "MAX", "LATE p50", "LATE p99", "RSS", "AFTER"
    );
    let (mut failed, mut all_late, mut count) = (0, Vec::new(), 0);
    let (mut first, mut last) = (None, 0.0);
    for case in cases().into_iter().filter(|case| wanted.is_none_or(|wanted| case.name == wanted)) {
        count += 1;
        let before = resident();
        first.get_or_insert(before);
        match row(&world, &case, runs).await {
            Ok(Row { verdict, mut took, mut late }) => {
                last = resident();
                println!(
                    "{:<28} {verdict:<34} {:>10} {:>10} {:>9} {:>9} {before:>5.0} MB {last:>5.0} MB",
                    case.name,
                    ms(part(&mut took, 0.5)),
                    ms(part(&mut took, 1.0)),
                    ms(part(&mut late, 0.5)),
                    ms(part(&mut late, 0.99)),
                );
                all_late.extend(late);
            }
            Err(why) => {
                failed += 1;
                println!("NOT CONTAINED: {why}");
            }
        }
    }
    println!(
        "{count} guests, {failed} not contained; the honest target late: p50 {}, p99 {}, max {}; memory {:.0} MB before, {last:.0} MB after",
        ms(part(&mut all_late, 0.5)),
        ms(part(&mut all_late, 0.99)),
        ms(part(&mut all_late, 1.0)),
        first.unwrap_or_default(),
    );
    failed
}

struct Row {
    verdict: String,
    took: Vec<Duration>,
    late: Vec<Duration>,
}

async fn row(world: &World, case: &Case, runs: usize) -> Result<Row, String> {
    let mut row = Row { verdict: String::new(), took: Vec::new(), late: Vec::new() };
    for _ in 0..runs {
        let ended = world.run(case).await?;
        row.verdict = ended.verdict;
        row.took.push(ended.took);
        row.late.extend(ended.lateness);
    }
    Ok(row)
}

fn part(times: &mut [Duration], part: f64) -> Duration {
    times.sort();
    times.get(((times.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or_default()
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

/// The resident memory of this process, in megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or_default() / 1000.0
}
