//! `plugin bench`: measures the cost of a plugin's calls over a recording: first polls of a target, and later polls
//! with the cache of the previous one; or notifications.

use super::list::bytes;
use super::project::Project;
use super::recording::{self, Memory, replay};
use crate::output::{complain, print, print_json};
use anyhow::anyhow;
use model::Failure;
use sandbox::{Role, Usage};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Polls before the measurement, which fill caches. The first instance costs most.
const WARM_UP: u32 = 20;

/// Measures and prints the cost. Returns exit code 1 if a first poll fails, else 0.
pub(crate) async fn bench(path: &Path, recording: Option<&Path>, polls: u32, as_json: bool) -> anyhow::Result<u8> {
    let project = Project::find(path)?;
    let (sandbox, plugin) = project.load().await?;
    let file = recording.map(Path::to_owned).or_else(|| chosen(&project.recordings));
    let file = file.ok_or_else(|| {
        let command = project.recorder(&plugin);
        anyhow!("no recording: record one with `polliwog {command} --url URL --record FILE.json`, and pass it as --recording")
    })?;
    project.warn_when_stale();
    let recording = recording::read(&file).map_err(|why| anyhow!(why))?;
    let measure = async |later: bool| -> anyhow::Result<(Value, Option<Failure>)> {
        let (mut all, mut failure, mut memory): (Vec<Usage>, _, _) = (Vec::new(), None, Memory::default());
        // The first later poll of the recording, or the same one again with the cache of the one before.
        let poll = usize::from(later);
        for number in 0..u64::from(WARM_UP) + u64::from(polls) {
            let replayed = replay(&sandbox, &plugin, &recording, poll, &mut memory).await;
            let replayed = replayed.map_err(|why| anyhow!("{}: {why}", file.display()))?;
            if number >= u64::from(WARM_UP) {
                all.push(replayed.usage);
            }
            failure = failure.or(replayed.failure);
        }
        Ok((facts(&all), failure))
    };
    let (first, failure) = measure(false).await?;
    let (later, later_failure) = measure(true).await?;
    let later = later_failure.is_none().then_some(later);
    if as_json {
        let mut facts = first;
        facts["later"] = later.unwrap_or_default();
        print_json(&facts)?;
    } else {
        let noun = if plugin.descriptor().role == Role::Poller { "polls" } else { "notifications" };
        print(&readable((&file, noun), &first, later.as_ref()))?;
    }
    let report = |polls: &str, failure: &Failure| {
        complain(format_args!(
            "polliwog: {polls} failed: {} ({}): {}",
            failure.code,
            failure.category.as_str(),
            failure.message
        ));
    };
    match (&failure, &later_failure) {
        (Some(failure), _) => report("polls", failure),
        (None, Some(failure)) => report("later polls, whose requests the recording may not contain,", failure),
        (None, None) => {}
    }
    Ok(u8::from(failure.is_some()))
}

/// Returns the first recording whose requests were all answered, or else the first one.
fn chosen(recordings: &[PathBuf]) -> Option<PathBuf> {
    let is_answered = |file: &&PathBuf| recording::read(file).is_ok_and(|recording| recording.is_answered());
    recordings.iter().find(is_answered).or(recordings.first()).cloned()
}

fn facts(all: &[Usage]) -> Value {
    let times = |read: fn(&Usage) -> Duration| {
        let mut times: Vec<f64> = all.iter().map(|usage| read(usage).as_secs_f64() * 1e6).collect();
        times.sort_by(f64::total_cmp);
        let at = |part: f64| (times[((times.len() - 1) as f64 * part) as usize] * 10.0).round() / 10.0;
        json!({ "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0) })
    };
    let most = |read: fn(&Usage) -> u64| all.iter().map(read).max().unwrap_or_default();
    json!({
        "polls": all.len(),
        "cpuMicros": times(|usage| usage.cpu),
        "wallMicros": times(|usage| usage.wall),
        "peakMemoryBytes": most(|usage| usage.memory as u64),
        "requests": most(|usage| usage.requests.into()),
        "bodyBytes": most(|usage| usage.bytes),
    })
}

fn readable((file, noun): (&Path, &str), first: &Value, later: Option<&Value>) -> String {
    let title = |what: &str| format!("{what:<12}{:>12}{:>12}{:>12}{:>12}", "p50", "p90", "p99", "max");
    let count = first["polls"].as_u64().unwrap_or_default();
    let mut lines =
        vec![format!("{count} {noun} over {}, each in a fresh instance, nothing sent", file.display()), title("FIRST")];
    lines.extend(table(first));
    if let Some(later) = later {
        lines.push(title("LATER"));
        lines.extend(table(later));
    }
    lines.join("\n")
}

fn table(facts: &Value) -> [String; 4] {
    let time = |what: &str, key: &str| {
        let part = |name: &str| format!("{:>12}", format!("{} µs", facts[key][name]));
        format!("  {what:<10}{}{}{}{}", part("p50"), part("p90"), part("p99"), part("max"))
    };
    let number = |key: &str| facts[key].as_u64().unwrap_or_default();
    [
        time("CPU", "cpuMicros"),
        time("wall clock", "wallMicros"),
        format!("  {:<10}{:>12}", "memory", bytes(number("peakMemoryBytes"))),
        format!("  {:<10}{:>12}   bodies of {}", "requests", number("requests"), bytes(number("bodyBytes"))),
    ]
}
