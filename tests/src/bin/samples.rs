//! `cargo run -p tests --bin samples DIR`: for each recorded body in a directory, polls the simulated estate with that
//! body and prints the changes: plugin faults, warnings, statuses. The exit code is 1 if a plugin fails.

use demo::Replayed;
use model::{FailureCategory, Outcome};
use std::path::Path;
use std::process::ExitCode;
use tests::proxmox::{Bench, NOW, difference};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("samples: missing directory: cargo run -p tests --bin samples DIR");
        return ExitCode::from(64);
    };
    let (mut faults, mut warned, mut polled) = (0, 0, 0);
    for product in ["pve", "pbs", "pmg"] {
        let files = match Replayed::read(Path::new(&dir)) {
            Ok(files) => files,
            Err(why) => {
                eprintln!("samples: {why}");
                return ExitCode::FAILURE;
            }
        };
        let ours = |name: &str| name.split('/').any(|part| part == product);
        let names: Vec<(String, Option<String>)> =
            files.names().filter(|(name, _)| ours(name)).map(|(name, path)| (name.to_owned(), path)).collect();
        let estate = Bench::new(product).await;
        let healthy = estate.report("healthy").await;
        let bench = Bench::with(product, files.router(Instant::now(), || NOW)).await;
        for (name, path) in names {
            polled += 1;
            let path = path.unwrap_or_else(|| "a recording".to_owned());
            match bench.poll_at(&name, None, NOW).await.outcome {
                Outcome::Success(report) => {
                    warned += usize::from(!report.warnings.is_empty());
                    let changed = difference(&healthy, &report);
                    println!("{name} ({path}): {}", if changed.is_empty() { "no change" } else { "" });
                    changed.iter().for_each(|line| println!("    {line}"));
                }
                Outcome::Failure(failure) => {
                    let fault = failure.category == FailureCategory::Plugin;
                    faults += usize::from(fault);
                    println!("{name} ({path}): {} {}: {}", failure.category.as_str(), failure.code, failure.message);
                }
                Outcome::Skipped => println!("{name} ({path}): skipped"),
            }
        }
    }
    println!("{polled} files polled, {warned} with warnings, {faults} plugin faults");
    ExitCode::from(u8::from(faults > 0))
}
