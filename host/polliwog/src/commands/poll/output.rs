//! The result of a poll as JSON, as text and as an exit code.

use crate::output::counted;
use engine::RuntimeTarget;
use model::{Dependency, Json, Outcome, Report, Status};
use sandbox::{Done, Plugin};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The exit code of a poll that failed or whose status is unknown.
pub(super) const FAILED: u8 = 3;

/// Returns the exit code: 0 ok, 1 warning, 2 critical, 3 unknown or failed. Critical takes precedence over unknown,
/// unknown over warning. A report without a dependency that is checked is unknown.
pub(super) fn exit_code(outcome: &Outcome) -> u8 {
    let Outcome::Success(report) = outcome else { return FAILED };
    let checked = report.dependencies.iter().filter(|dependency| !dependency.skipped);
    match checked.map(|dependency| dependency.status).max() {
        Some(Status::Critical) => 2,
        Some(Status::Unknown) | None => FAILED,
        Some(Status::Warning) => 1,
        Some(Status::Ok) => 0,
    }
}

fn outcome(outcome: &Outcome) -> (&'static str, Value) {
    match outcome {
        Outcome::Success(_) => ("success", Value::Null),
        Outcome::Failure(failure) => {
            let retry_after = failure.retry_after.map(milliseconds);
            let error = json!({ "code": failure.code, "message": failure.message, "retryAfterMs": retry_after });
            (failure.category.as_str(), error)
        }
        Outcome::Skipped => {
            let error =
                json!({ "code": "no_slot", "message": "no instance slot became free in time", "retryAfterMs": null });
            ("transient", error)
        }
    }
}

/// Returns the result in the documented format; absent values are null.
pub(super) fn json(target: &RuntimeTarget, plugin: &Plugin, done: &Done) -> Value {
    let mut shown = result_json(&done.outcome);
    shown["target"] = target.id().as_str().into();
    shown["kind"] = target.config.kind.as_str().into();
    shown["plugin"] = json!({ "kind": plugin.descriptor().kind.as_str(), "version": plugin.descriptor().version });
    shown["latencyMs"] = (done.usage.wall.as_secs_f64() * 1000.0).into();
    shown["requests"] = done.usage.requests.into();
    shown
}

/// Returns the parts of a result that do not depend on the time of the poll.
pub(crate) fn result_json(result: &Outcome) -> Value {
    let empty = Report::default();
    let report = if let Outcome::Success(report) = result { report } else { &empty };
    let (word, error) = outcome(result);
    json!({
        "outcome": word,
        "error": error,
        "dependencies": report.dependencies.iter().map(dependency).collect::<Vec<_>>(),
        "kept": report.kept,
        "gone": report.gone,
        "samples": report.samples.iter().map(|sample| {
            let labels: serde_json::Map<String, Value> =
                sample.labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
            json!({
                "name": sample.name, "kind": sample.kind.as_str(), "labels": labels, "value": sample.value,
                "help": sample.help, "unit": sample.unit, "dependency": sample.dependency,
            })
        }).collect::<Vec<_>>(),
        "warnings": report.warnings,
    })
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn dependency(dependency: &Dependency) -> Value {
    let raw = |json: &Option<Json>| json.as_ref().and_then(|json| serde_json::from_str::<Value>(json.as_str()).ok());
    let checked_at = dependency.checked_at.and_then(|at| jiff::Timestamp::from_millisecond(at.as_millis()).ok());
    json!({
        "name": dependency.name,
        "title": dependency.title,
        "kind": dependency.kind,
        "status": dependency.status.as_str(),
        "healthy": dependency.status.healthy(),
        "skipped": dependency.skipped,
        "code": dependency.code,
        "latencyMs": dependency.latency_ms,
        "description": dependency.description,
        "impact": dependency.impact,
        "error": raw(&dependency.error),
        "errorMessage": dependency.error_message,
        "contact": raw(&dependency.contact),
        "checkDetails": raw(&dependency.check_details),
        "checkedAt": checked_at.map(|at| format!("{at:.3}")),
        "parent": dependency.runs_on.first(),
        "runsOn": dependency.runs_on,
        "independent": dependency.independent,
        "link": dependency.link,
        "validForMs": dependency.valid_for.map(milliseconds),
    })
}

/// Formats the result as text: one line for each dependency, the worst last, where it stays visible.
pub(super) fn text(target: &RuntimeTarget, done: &Done) -> String {
    let mut text = String::new();
    let cost = format!(
        "{:.0} ms, {}",
        done.usage.wall.as_secs_f64() * 1000.0,
        counted(done.usage.requests as usize, "request")
    );
    let report = match &done.outcome {
        Outcome::Success(report) => report,
        Outcome::Failure(failure) => {
            let category = failure.category.as_str();
            return format!("{}: {} ({category}): {} ({cost})\n", target.id(), failure.code, failure.message);
        }
        Outcome::Skipped => return format!("{}: no instance slot became free in time\n", target.id()),
    };
    let mut sorted: Vec<&Dependency> = report.dependencies.iter().collect();
    sorted.sort_by_key(|dependency| dependency.status);
    for dependency in sorted {
        let word = if dependency.skipped { "skipped" } else { dependency.status.as_str() };
        let name = &dependency.name;
        let title = dependency.title.as_deref().map_or_else(String::new, |title| format!(" ({title})"));
        // The error first, then the description.
        let notes = [dependency.error_message.as_deref(), dependency.description.as_deref()];
        let notes: Vec<&str> = notes.into_iter().flatten().collect();
        let message = if notes.is_empty() { String::new() } else { format!(": {}", notes.join(" | ")) };
        // Writing to a string never fails.
        let _ = writeln!(text, "{word:<8} {name}{title}{message}");
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "note     {warning}");
    }
    let _ = writeln!(text, "{}: {} in the report ({cost})", target.id(), counted(report.dependencies.len(), "thing"));
    text
}
