//! `simulate`: runs the scheduler on a simulated estate, or replays what the running host recorded.

use super::remote::{answer, ask, part, table, text};
use crate::cli::{Remote, SimulateArguments};
use crate::output::{print, print_json};
use anyhow::anyhow;
use config::{read_estate, read_text};
use egress::Method;
use scheduler::Settings;
use scheduler::simulator::{Comparison, Estate, Row, compare};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The size limit of the estate file, in bytes.
const FILE: u64 = 1 << 20;
/// The fewest changes for a meaningful comparison of the cadences.
const ENOUGH_CHANGES: u64 = 200;

/// `simulate`.
pub(crate) async fn simulate(arguments: &SimulateArguments) -> anyhow::Result<u8> {
    match &arguments.estate {
        Some(file) => simulated(file, arguments.seed, arguments.common.json).await,
        None => replayed(&arguments.common, &arguments.range).await,
    }
}

/// Prints what each cadence would have cost and detected of the changes that the running host recorded.
async fn replayed(remote: &Remote, range: &str) -> anyhow::Result<u8> {
    let path = format!("/api/v1/scheduler/replay?range={}", part(range));
    let found = ask(remote, Method::GET, &path, None).await?;
    answer(remote, &found, |found| {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let (targets, of) = (number(&found["targets"]), number(&found["ofTargets"]));
        print(&format!(
            "{} recorded changes in {:.1} h, of {targets} targets{}\n",
            text(&found["changes"]),
            number(&found["replayedSeconds"]) / 3600.0,
            if targets < of { format!(" that stand for {of}: a shorter range covers more") } else { String::new() }
        ))?;
        let row = |row: &Value| {
            let seconds = |key: &str| format!("{:.1} s", number(&row[key]));
            let range = format!("{} to {}", seconds("meanLowSeconds"), seconds("meanHighSeconds"));
            let current = if row["current"] == true { " (in use)" } else { "" };
            let name = format!("{}{current}", text(&row["cadence"]));
            let missed = format!("{:.1} %", number(&row["missedShare"]) * 100.0);
            vec![name, text(&row["polls"]), seconds("meanSeconds"), range, seconds("p95Seconds"), missed]
        };
        let rows: Vec<_> = found["cadences"].as_array().into_iter().flatten().map(row).collect();
        table(&["CADENCE", "POLLS", "MEAN DELAY", "LIKELY (90 %)", "P95", "MISSED"], &rows)?;
        print("\nmissed: changes that ended before a poll detected them; those that this host missed are not recorded")
    })
}

/// Simulates the estate of a file and prints how late each cadence detects changes, at an equal number of polls.
async fn simulated(file: &Path, seed: u64, as_json: bool) -> anyhow::Result<u8> {
    let text = read_text(file, FILE).map_err(|why| anyhow!("the estate: {why}"))?;
    let estate = read_estate(&text).map_err(|why| anyhow!("{}: {why}", file.display()))?;
    let simulated = estate.clone();
    let comparison = tokio::task::spawn_blocking(move || compare(&simulated, seed)).await?;
    if as_json {
        print_json(&to_json(&estate, seed, &comparison))?;
    } else {
        show(&estate, seed, &comparison)?;
    }
    Ok(0)
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100.0).round() / 100.0
}

fn to_json(estate: &Estate, seed: u64, comparison: &Comparison) -> Value {
    let row = |name: &str, row: &Row| {
        json!({
            "cadence": name, "polls": row.polls, "intervalSeconds": seconds(row.interval),
            "changes": row.changes, "medianSeconds": seconds(row.median), "p95Seconds": seconds(row.p95),
            "meanSeconds": seconds(row.mean), "missedShare": row.missed,
        })
    };
    json!({
        "estate": estate.name, "targets": estate.targets, "durationSeconds": estate.duration.as_secs(), "seed": seed,
        "cadences": comparison.rows().map(|(name, found)| row(name, found)),
        "adaptiveToFixedMedian": comparison.adaptive_to_fixed_median(),
        "adaptiveToOptimumMean": comparison.adaptive_to_optimum_mean(),
        "fixedAsConfigured": row("fixed", &comparison.configured), "tooFewChanges": has_too_few_changes(comparison),
    })
}

/// Whether a run has too few changes to compare the cadences.
fn has_too_few_changes(comparison: &Comparison) -> bool {
    comparison.rows().iter().any(|(_, row)| row.changes < ENOUGH_CHANGES)
}

fn show(estate: &Estate, seed: u64, comparison: &Comparison) -> anyhow::Result<()> {
    let Settings { base, min, max, .. } = estate.settings;
    let base = base.unwrap_or(Duration::from_secs(10));
    print(&format!(
        "{}\n{} targets for {:.1} hours, seed {seed}; adaptive with base {:?}, min {:?}, {}\n\
         delay: from a change to the next poll with a report; all rows but the last have the same number of polls\n",
        estate.name,
        estate.targets,
        estate.duration.as_secs_f64() / 3600.0,
        base,
        min,
        max.map_or("no max: at least as often as base".to_owned(), |max| format!("max {max:?}"))
    ))?;
    print(&format!(
        "{:<10} {:>10} {:>12} {:>9} {:>12} {:>10} {:>10} {:>8}",
        "cadence", "polls", "interval", "changes", "median", "p95", "mean", "missed"
    ))?;
    for (name, row) in comparison.rows().into_iter().chain([("configured", &comparison.configured)]) {
        print(&format!(
            "{name:<10} {:>10} {:>10.1} s {:>9} {:>10.1} s {:>8.1} s {:>8.1} s {:>6.1} %",
            row.polls,
            row.interval.as_secs_f64(),
            row.changes,
            row.median.as_secs_f64(),
            row.p95.as_secs_f64(),
            row.mean.as_secs_f64(),
            row.missed * 100.0
        ))?;
    }
    print("optimum: the best intervals for the mean delay, if the true rates of changes were known")?;
    print("configured: each target at its own fixed interval")?;
    print("missed: changes that ended before a poll detected them")?;
    if comparison.rows().iter().any(|(_, row)| row.changes == 0) {
        return print("\nnothing changed in this time: use a longer duration, or more incidentsPerDay");
    }
    if has_too_few_changes(comparison) {
        print(&format!(
            "\nfewer than {ENOUGH_CHANGES} changes are too few to compare: use a longer duration, or more targets"
        ))?;
    }
    print(&format!(
        "\nadaptive detects half of the changes in {:.2} of the time that fixed needs; its mean delay is {:.2} times the optimum's",
        comparison.adaptive_to_fixed_median(),
        comparison.adaptive_to_optimum_mean()
    ))
}
