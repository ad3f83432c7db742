//! `plugin test`: replays recordings and compares the reports with golden reports.

use super::project::{Project, golden};
use super::recording::{self, Memory, Replayed};
use crate::output::{counted, print, print_json};
use anyhow::Context;
use egress::ErrorClass;
use model::{Failure, FailureCategory, clean};
use sandbox::{Plugin, Sandbox};
use serde_json::{Value, json};
use similar::TextDiff;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The length of a shown value in bytes.
const SHOWN: usize = 200;

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
        Ok(recording) => Memory::replay_all(sandbox, plugin, &recording).await,
        Err(why) => Err(why),
    };
    let polls = match replayed {
        Ok(polls) => polls,
        Err(why) => return Ok(Verdict::Broken(why)),
    };
    let (count, mut results, mut differences) = (polls.len(), Vec::new(), Vec::new());
    for (number, Replayed { result, failure, seen, differences: found, .. }) in (1..).zip(polls) {
        let of = if count > 1 { format!("poll {number}: ") } else { String::new() };
        // Neither a fault of the plugin nor a missing answer may become a golden report.
        if let Some(Failure { category: FailureCategory::Plugin, code, message, .. }) = failure {
            return Ok(Verdict::Broken(format!("{of}{code}: {message}")));
        }
        if seen.has(ErrorClass::NotRecorded) {
            return Ok(Verdict::Broken(format!("{of}{}; record it again", found.join("; "))));
        }
        differences.extend(found.into_iter().map(|difference| format!("{of}{difference}")));
        results.push(result);
    }
    let result = if count > 1 { Value::Array(results) } else { results.remove(0) };
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
    let Some(first) = first_difference(&expected, &result) else {
        // The report is the same, but requests may differ from the recorded ones.
        return Ok(if differences.is_empty() { Verdict::Same } else { Verdict::Different(differences.join("\n")) });
    };
    let names = (golden.display().to_string(), "report of the recording".to_owned());
    let diff = TextDiff::from_lines(&expected, &found).unified_diff().header(&names.0, &names.1).to_string();
    Ok(Verdict::Different(format!("{first}\n{diff}")))
}

/// Says where a report differs first from the golden report, whose formatting does not matter; `None` if it does not.
fn first_difference(golden: &str, found: &Value) -> Option<String> {
    match serde_json::from_str(golden) {
        Ok(expected) => differing("", &expected, found, Keys::OfReports),
        Err(error) => Some(format!("the golden report is not JSON: {error}")),
    }
}

/// The object that a key belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// A part of a report. Later programs have more keys, with values that say nothing unless a plugin uses them.
    OfReports,
    /// A value from a plugin.
    OfPlugins,
}

impl Keys {
    /// The keys of the value of a key.
    fn of(self, key: &str) -> Self {
        if matches!(key, "checkDetails" | "contact" | "error" | "labels") { Self::OfPlugins } else { self }
    }

    /// Whether a value is the same as no key.
    fn is_nothing(self, value: Option<&Value>) -> bool {
        let is_empty = match value {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::Array(values)) => values.is_empty(),
            _ => false,
        };
        self == Self::OfReports && is_empty
    }
}

/// Compares values at a path such as `dependencies[2].status`.
fn differing(path: &str, expected: &Value, found: &Value, of: Keys) -> Option<String> {
    let shown =
        |value: Option<&Value>| value.map_or_else(|| "missing".to_owned(), |value| clean(&value.to_string(), SHOWN));
    let says = |path: &str, expected: Option<&Value>, found: Option<&Value>| {
        let path = if path.is_empty() { "the report" } else { path };
        Some(format!("{path} is {}, expected {}", shown(found), shown(expected)))
    };
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            keys.into_iter().find_map(|key| match (expected.get(key), found.get(key)) {
                (Some(expected), Some(found)) => differing(&inner(key), expected, found, of.of(key)),
                (expected, found) if of.is_nothing(expected) && of.is_nothing(found) => None,
                (expected, found) => says(&inner(key), expected, found),
            })
        }
        (Value::Array(expected), Value::Array(found)) => {
            // A name says more than a number.
            let name =
                |value: Option<&Value>| value.and_then(|value| Some(format!(" ({:?})", value["name"].as_str()?)));
            let places = 0..expected.len().max(found.len());
            places.into_iter().find_map(|at| {
                let (expected, found) = (expected.get(at), found.get(at));
                let inner = format!("{path}[{at}]{}", name(found.or(expected)).unwrap_or_default());
                match (expected, found) {
                    (Some(expected), Some(found)) => differing(&inner, expected, found, of),
                    (expected, found) => says(&inner, expected, found),
                }
            })
        }
        (expected, found) if expected == found => None,
        (expected, found) => says(path, Some(expected), Some(found)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_has_its_path() {
        let golden =
            r#"{"outcome": "success", "dependencies": [{"name": "a", "status": "ok"}, {"name": "b", "status": "ok"}]}"#;
        let check = |found: Value, expected: Option<&str>| {
            assert_eq!(first_difference(golden, &found).as_deref(), expected, "{found}");
        };
        let dependencies = |all: Value| json!({ "outcome": "success", "dependencies": all });
        let ok = |name: &str| json!({ "name": name, "status": "ok" });
        check(dependencies(json!([ok("a"), ok("b")])), None);
        check(
            dependencies(json!([ok("a"), { "name": "b", "status": "critical" }])),
            Some(r#"dependencies[1] ("b").status is "critical", expected "ok""#),
        );
        check(
            dependencies(json!([ok("a")])),
            Some(r#"dependencies[1] ("b") is missing, expected {"name":"b","status":"ok"}"#),
        );
        check(
            dependencies(json!([ok("a"), { "name": "b" }])),
            Some(r#"dependencies[1] ("b").status is missing, expected "ok""#),
        );
        let shown = clean(&golden.replace(": ", ":").replace(", ", ","), SHOWN);
        check(json!([1]), Some(&format!("the report is [1], expected {shown}")));
    }

    #[test]
    fn keys_of_later_programs_differ_only_if_they_say_something() {
        let golden = json!({ "dependencies": [{ "name": "a", "checkDetails": {} }], "link": null });
        let check = |more: Value, details: Value, expected: Option<&str>| {
            let mut dependency = json!({ "name": "a", "checkDetails": details });
            dependency.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = json!({ "dependencies": [dependency], "gone": [] });
            assert_eq!(first_difference(&golden.to_string(), &found).as_deref(), expected, "{found}");
        };
        check(json!({ "independent": false, "runsOn": [], "link": null }), json!({}), None);
        let differs = r#"dependencies[0] ("a").independent is true, expected missing"#;
        check(json!({ "independent": true }), json!({}), Some(differs));
        let differs = r#"dependencies[0] ("a").runsOn is ["b"], expected missing"#;
        check(json!({ "runsOn": ["b"] }), json!({}), Some(differs));
        // A plugin's own values are compared as they are.
        let differs = r#"dependencies[0] ("a").checkDetails.count is null, expected missing"#;
        check(json!({}), json!({ "count": null }), Some(differs));
    }
}
