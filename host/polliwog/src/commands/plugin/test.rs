//! `plugin test`: replays recordings and compares the reports with golden reports.

use super::project::{Project, golden};
use super::recording::{self, Replayed, replay};
use crate::output::{counted, print, print_json};
use anyhow::Context;
use egress::ErrorClass;
use model::{Failure, FailureCategory};
use sandbox::{Plugin, Sandbox};
use serde_json::{Value, json};
use similar::TextDiff;
use std::path::{Path, PathBuf};

/// The result of one recording.
enum Verdict {
    Same,
    Written,
    /// The difference, line by line.
    Different(String),
    /// Why the report cannot be compared.
    Broken(String),
}

/// Replays every recording. Returns exit code 0 if every report matches its golden report, else 1.
pub(crate) async fn test(path: &Path, update: bool, as_json: bool) -> anyhow::Result<u8> {
    let project = Project::find(path)?;
    project.warn_when_stale();
    let (sandbox, plugin) = project.load().await?;
    if project.recordings.is_empty() {
        let command = project.recorder(&plugin);
        anyhow::bail!(
            "no recordings: record one with `polliwog {command} --url URL --record recordings/NAME.json`, and check its \
             report before `polliwog plugin test --update` makes it the golden report"
        );
    }
    let mut results = Vec::new();
    for recording in &project.recordings {
        let verdict = one(&sandbox, &plugin, recording, update).await?;
        results.push((recording, verdict));
    }
    let failed = results.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Different(_) | Verdict::Broken(_)));
    let failed = failed.count();
    if as_json {
        let results: Vec<Value> = results.iter().map(|(recording, verdict)| shown(recording, verdict)).collect();
        print_json(&json!({ "plugin": project.component, "ok": failed == 0, "recordings": results }))?;
    } else {
        for (recording, verdict) in &results {
            print(&line(recording, verdict))?;
        }
        let all = format!("{} of {}", counted(results.len(), "recording"), project.component.display());
        print(&if failed == 0 { format!("{all}: all reports match") } else { format!("{all}: {failed} failed") })?;
    }
    Ok(u8::from(failed > 0))
}

async fn one(sandbox: &Sandbox, plugin: &Plugin, file: &Path, update: bool) -> anyhow::Result<Verdict> {
    let replayed = match recording::read(file) {
        Ok(recording) => replay(sandbox, plugin, &recording, true).await,
        Err(why) => Err(why),
    };
    let Replayed { result, failure, seen, differences, .. } = match replayed {
        Ok(replayed) => replayed,
        Err(why) => return Ok(Verdict::Broken(why)),
    };
    // Neither a fault of the plugin nor a missing answer may become a golden report.
    if let Some(Failure { category: FailureCategory::Plugin, code, message, .. }) = failure {
        return Ok(Verdict::Broken(format!("{code}: {message}")));
    }
    if seen.has(ErrorClass::NotRecorded) {
        return Ok(Verdict::Broken(format!("{}; record it again", differences.join("; "))));
    }
    let found = format!("{result:#}\n");
    let golden = golden(file);
    if update && !differences.is_empty() {
        return Ok(Verdict::Broken(format!("{}; record it again", differences.join("; "))));
    }
    if update {
        std::fs::write(&golden, found).with_context(|| format!("writing {}", golden.display()))?;
        return Ok(Verdict::Written);
    }
    let expected = match std::fs::read_to_string(&golden) {
        Ok(expected) => expected,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let name = golden.display();
            return Ok(Verdict::Broken(format!(
                "the golden report {name} does not exist: --update writes it\n{found}"
            )));
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", golden.display())),
    };
    if same(&expected, &found) {
        // The report is the same, but requests may differ from the recorded ones.
        return Ok(if differences.is_empty() { Verdict::Same } else { Verdict::Different(differences.join("\n")) });
    }
    let names = (golden.display().to_string(), "report of the recording".to_owned());
    let diff = TextDiff::from_lines(&expected, &found).unified_diff().header(&names.0, &names.1).to_string();
    Ok(Verdict::Different(diff))
}

/// Whether both texts are the same JSON value, whatever the formatting.
fn same(expected: &str, found: &str) -> bool {
    match (serde_json::from_str::<Value>(expected), serde_json::from_str::<Value>(found)) {
        (Ok(expected), Ok(found)) => expected == found,
        _ => expected == found,
    }
}

fn name(recording: &Path) -> String {
    recording.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn line(recording: &Path, verdict: &Verdict) -> String {
    let name = name(recording);
    match verdict {
        Verdict::Same => format!("ok       {name}"),
        Verdict::Written => format!("written  {}", golden(recording).display()),
        Verdict::Different(diff) => format!("FAILED   {name}\n{diff}"),
        Verdict::Broken(why) => format!("FAILED   {name}: {why}"),
    }
}

fn shown(recording: &PathBuf, verdict: &Verdict) -> Value {
    let (word, more) = match verdict {
        Verdict::Same => ("same", Value::Null),
        Verdict::Written => ("written", Value::Null),
        Verdict::Different(diff) => ("different", diff.as_str().into()),
        Verdict::Broken(why) => ("broken", why.as_str().into()),
    };
    json!({ "recording": recording, "verdict": word, "details": more })
}
