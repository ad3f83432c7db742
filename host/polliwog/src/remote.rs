//! Commands that ask the running host: `explain`, `status`, `targets`, `dead-letter`, `breaker`, `settings`.

use crate::api::{self, Unanswered};
use crate::cli::{BreakerCommand, DeadLetterCommand, Remote, SettingsCommand, TargetsCommand};
use crate::common::{complain, print, print_json};
use anyhow::anyhow;
use egress::Method;
use serde_json::{Value, json};

/// Asks, and gives the answer.
async fn ask(remote: &Remote, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
    api::call(&remote.common, method, path, body).await.map_err(|unanswered| match unanswered {
        Unanswered::Refused(why) => anyhow!(why),
        Unanswered::Nobody(why) => anyhow!("no running host answers ({why}): start one, or set POLLIWOG_URL"),
    })
}

/// One part of a path; nothing stands for itself.
fn part(text: &str) -> String {
    if text.is_empty() {
        return "%20".to_owned();
    }
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// A column's text.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Prints an answer as it came, or as a person reads it.
fn answer(remote: &Remote, answer: &Value, show: impl FnOnce(&Value) -> anyhow::Result<()>) -> anyhow::Result<u8> {
    if remote.json {
        print_json(answer)?;
    } else {
        show(answer)?;
    }
    Ok(0)
}

/// Rows under a heading, each column as wide as it needs to be.
fn table(heading: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    print(&line(&mut heading.iter().copied()))?;
    rows.iter().try_for_each(|row| print(&line(&mut row.iter().map(String::as_str))))
}

/// One row for each of a list's items.
fn rows(list: &Value, columns: &[&str]) -> Vec<Vec<String>> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| columns.iter().map(|column| text(&item[*column])).collect()).collect()
}

/// `explain TARGET`.
pub(crate) async fn explain(remote: &Remote, target: &str) -> anyhow::Result<u8> {
    let path = format!("/api/v1/targets/{}/explain", part(target));
    let explained = ask(remote, Method::Get, &path, None).await?;
    answer(remote, &explained, |explained| {
        print(&text(&explained["summary"]))?;
        if let Some(at) = explained["nextRun"].as_str() {
            print(&format!("next run: {at}"))?;
        }
        print("")?;
        table(&["TERM", "VALUE", "MEANING"], &rows(&explained["terms"], &["name", "value", "meaning"]))
    })
}

/// What a target can be, the worst first.
const BADNESS: [&str; 8] = ["unreachable", "critical", "no_plugin", "warning", "unknown", "pending", "ok", "disabled"];

/// `status`.
pub(crate) async fn status(remote: &Remote) -> anyhow::Result<u8> {
    let health = ask(remote, Method::Get, "/api/monitoring/scheduler/health", None).await?;
    let stats = ask(remote, Method::Get, "/api/v1/scheduler/stats", None).await?;
    let settings = ask(remote, Method::Get, "/api/v1/settings", None).await?;
    if !health["queue"].is_object() || !stats["scheduler"].is_object() {
        return Err(anyhow!("what answers there is no running host: check POLLIWOG_URL"));
    }
    let problems = settings["problems"].clone();
    let both = json!({ "health": health, "stats": stats, "problems": problems });
    answer(remote, &both, |_| {
        for problem in problems.as_array().into_iter().flatten() {
            complain(text(problem));
        }
        if let Some(why) = stats["notReady"].as_str() {
            complain(format!("the host does not work as it should: {why}"));
        }
        let targets = &stats["targets"];
        let count = |status: &str| targets[status].as_u64().filter(|count| *count > 0);
        let counts = BADNESS.iter().filter_map(|status| Some(format!("{} {status}", count(status)?)));
        let counts: Vec<String> = counts.collect();
        let (scheduler, queue) = (&stats["scheduler"], &health["queue"]);
        let held = stats["held"].as_object().into_iter().flatten();
        let held: Vec<String> = held.map(|(reason, count)| format!("{reason} {count}")).collect();
        let dead = match health["deadLetter"]["count"].as_u64().unwrap_or(0) {
            0 => String::new(),
            count => format!("\nrarely      {count} of them: they have failed for long (dead letters)"),
        };
        print(&format!(
            "host        polliwog {}, started {}\n\
             targets     {}: {}{dead}\n\
             queue       {} waiting, {} of them due within 12 s\n\
             polls       {} started, {} in flight, {} with a report, {} failed, {} ms on average\n\
             held back   {}\n\
             adaptive    {}",
            text(&stats["version"]),
            text(&stats["startedAt"]),
            health["instances"].as_array().map_or(0, Vec::len),
            counts.join(", "),
            queue["depth"],
            queue["dueWithinSeconds"],
            scheduler["JobsProcessed"],
            scheduler["WorkerPoolUtilized"],
            scheduler["CommandsCreated"],
            scheduler["CommandsFailed"],
            scheduler["AverageProcessingMS"],
            held.join(", "),
            if health["enabled"] == true { "yes" } else { "no" }
        ))
    })
}

/// `targets`.
pub(crate) async fn targets(remote: &Remote, command: Option<TargetsCommand>) -> anyhow::Result<u8> {
    let change = |target: &str, key: &str, value: Value| {
        (Method::Patch, format!("/api/v1/targets/{}", part(target)), Some(json!({ key: value })))
    };
    let (method, path, body) = match command {
        None | Some(TargetsCommand::List) => return list_targets(remote).await,
        Some(TargetsCommand::Show { target }) => return show_target(remote, &target).await,
        Some(TargetsCommand::Dismiss { target, dependency }) => {
            let body = json!({ "dependency": dependency });
            (Method::Post, format!("/api/v1/targets/{}/dismiss", part(&target)), Some(body))
        }
        Some(TargetsCommand::Poll { target }) => {
            (Method::Post, format!("/api/v1/targets/{}/poll", part(&target)), None)
        }
        Some(TargetsCommand::Enable { target }) => change(&target, "enabled", json!(true)),
        Some(TargetsCommand::Disable { target }) => change(&target, "enabled", json!(false)),
        Some(TargetsCommand::Set { target, key, value }) => change(&target, &key, json!(value)),
        Some(TargetsCommand::Unset { target, key }) => change(&target, &key, Value::Null),
    };
    let found = ask(remote, method, &path, body).await?;
    answer(remote, &found, |found| {
        if found["accepted"] == true {
            return print("it is polled as soon as its host has a slot");
        }
        if let Some(count) = found["dismissed"].as_u64() {
            return print(&format!("forgotten: {count}"));
        }
        print_target(found)
    })
}

/// One target with all that is known of it: each dependency with its reasons and numbers, as `poll` prints them.
async fn show_target(remote: &Remote, target: &str) -> anyhow::Result<u8> {
    let mut found = ask(remote, Method::Get, &format!("/api/v1/targets/{}", part(target)), None).await?;
    let path = format!("/api/v1/dependencies?target={}&", part(target));
    found["reported"] = every(remote, &path, "dependencies").await?.into();
    answer(remote, &found, |found| {
        print_target(found)?;
        let lines: Vec<String> = found["reported"].as_array().into_iter().flatten().map(dependency_line).collect();
        print("")?;
        print(&if lines.is_empty() { "no dependency is known of it".to_owned() } else { lines.join("\n") })
    })
}

/// Facts and settings of a target.
fn print_target(found: &Value) -> anyhow::Result<()> {
    let mut facts = Vec::new();
    for (key, value) in found.as_object().into_iter().flatten() {
        match value {
            _ if ["settings", "reported"].contains(&key.as_str()) => {}
            Value::Object(inner) => facts.extend(
                inner
                    .iter()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(name, value)| vec![format!("{key} {name}"), text(value)]),
            ),
            Value::Array(items) => facts.extend(items.iter().map(|item| vec![key.clone(), text(item)])),
            Value::Null => {}
            value => facts.push(vec![key.clone(), text(value)]),
        }
    }
    table(&["TARGET", &text(&found["id"])], &facts)?;
    print("")?;
    table(&["SETTING", "VALUE", "FROM"], &rows(&found["settings"], &["key", "value", "from"]))
}

/// `critical db: 403 from storage; impact: no orders`.
fn dependency_line(dependency: &Value) -> String {
    let word = match dependency {
        dependency if dependency["missing"] == true => "missing".to_owned(),
        dependency if dependency["stale"] == true => format!("stale, was {}", text(&dependency["status"])),
        dependency => text(&dependency["status"]),
    };
    let said = |key: &str| dependency[key].as_str().map(str::to_owned);
    let latency = dependency["latencyMs"].as_f64().map(|ms| format!("{ms:.0} ms"));
    let impact = said("impact").filter(|_| dependency["status"] != "ok").map(|impact| format!("impact: {impact}"));
    let error = dependency["error"].as_object().map(|_| dependency["error"].to_string());
    let since = said("lastStatusChange").map(|at| format!("since {at}"));
    let more: Vec<String> =
        [said("errorMessage"), said("description"), impact, error, latency, since].into_iter().flatten().collect();
    let more = if more.is_empty() { String::new() } else { format!(": {}", more.join("; ")) };
    format!("{word:<9} {}{more}", text(&dependency["name"]))
}

/// Every entry of a list of the API, which gives at most a thousand at a time; `path` ends where its query goes on.
async fn every(remote: &Remote, path: &str, list: &str) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    loop {
        let page = ask(remote, Method::Get, &format!("{path}limit=1000&offset={}", all.len()), None).await?;
        let entries = page[list].as_array().cloned().unwrap_or_default();
        let is_last = entries.is_empty();
        all.extend(entries);
        if is_last || all.len() as u64 >= page["total"].as_u64().unwrap_or(0) {
            return Ok(all);
        }
    }
}

async fn list_targets(remote: &Remote) -> anyhow::Result<u8> {
    let mut all = every(remote, "/api/v1/targets?", "targets").await?;
    // The worst first.
    let badness = |target: &Value| BADNESS.iter().position(|status| target["status"] == **status);
    all.sort_by_key(badness);
    answer(remote, &json!({ "total": all.len(), "targets": all }), |found| {
        let columns = ["id", "kind", "status", "state", "cadence", "intervalMs", "nextRun", "consecutiveFailures"];
        let heading = ["TARGET", "KIND", "STATUS", "STATE", "CADENCE", "INTERVAL MS", "NEXT RUN", "FAILURES", "ERROR"];
        let mut rows = rows(&found["targets"], &columns);
        for (row, target) in rows.iter_mut().zip(found["targets"].as_array().into_iter().flatten()) {
            let dead = if target["deadLetter"].is_null() { "" } else { " (dead letter)" };
            row.push(text(&target["lastError"]["code"]) + dead);
        }
        table(&heading, &rows)
    })
}

/// `dead-letter`.
pub(crate) async fn dead_letter(remote: &Remote, command: Option<DeadLetterCommand>) -> anyhow::Result<u8> {
    match command {
        None | Some(DeadLetterCommand::List) => {
            let found = ask(remote, Method::Get, "/api/v1/dead-letters", None).await?;
            answer(remote, &found, |found| {
                let dead = found["deadLetters"].as_array().into_iter().flatten();
                let row = |dead: &Value| {
                    let column = |key: &str| text(&dead[key]);
                    let error = text(&dead["lastError"]["message"]);
                    vec![column("target"), column("reason"), column("since"), column("nextRun"), error]
                };
                table(&["TARGET", "REASON", "SINCE", "NEXT LOOK", "LAST ERROR"], &dead.map(row).collect::<Vec<_>>())
            })
        }
        Some(DeadLetterCommand::Retry { target: Some(target), .. }) => {
            let path = format!("/api/v1/dead-letters/{}/retry", part(&target));
            let found = ask(remote, Method::Post, &path, None).await?;
            answer(remote, &found, |_| print(&format!("{target} is no dead letter any more and is polled now")))
        }
        Some(DeadLetterCommand::Retry { target: None, .. }) => {
            let found = ask(remote, Method::Post, "/api/v1/dead-letters/retry", None).await?;
            answer(remote, &found, |found| {
                let retried = found["retried"].as_array().map_or(0, Vec::len);
                print(&format!("{} retried", crate::common::counted(retried, "dead letter")))
            })
        }
        Some(DeadLetterCommand::Drop { target }) => {
            let path = format!("/api/v1/dead-letters/{}", part(&target));
            let found = ask(remote, Method::Delete, &path, None).await?;
            answer(remote, &found, |_| {
                print(&format!("{target} is disabled; `polliwog targets enable {target}` takes that back"))
            })
        }
    }
}

/// `breaker`.
pub(crate) async fn breaker(remote: &Remote, command: Option<BreakerCommand>) -> anyhow::Result<u8> {
    match command {
        None | Some(BreakerCommand::List) => {
            let found = ask(remote, Method::Get, "/api/v1/breakers", None).await?;
            answer(remote, &found, |found| {
                let columns = ["target", "state", "failures", "since", "retryAt"];
                table(&["TARGET", "STATE", "FAILURES", "SINCE", "PROBE"], &rows(&found["breakers"], &columns))
            })
        }
        Some(BreakerCommand::Reset { target }) => {
            let path = format!("/api/v1/breakers/{}/reset", part(&target));
            let found = ask(remote, Method::Post, &path, None).await?;
            answer(remote, &found, |_| print(&format!("the breaker of {target} is closed, and it is polled now")))
        }
    }
}

/// `plugin retry KIND`: what an operator asks for is polled in quarantine too.
pub(crate) async fn retry_plugin(remote: &Remote, kind: &str) -> anyhow::Result<u8> {
    let targets = every(remote, "/api/v1/targets?", "targets").await?;
    let Some(target) = targets.iter().find(|target| target["kind"] == kind && target["enabled"] != false) else {
        anyhow::bail!("no target of kind {kind} is polled: see `polliwog plugin list`");
    };
    let target = text(&target["id"]);
    let accepted = ask(remote, Method::Post, &format!("/api/v1/targets/{}/poll", part(&target)), None).await?;
    answer(remote, &accepted, |_| {
        print(&format!("{target} is polled now: a poll that does not fail by the plugin's fault ends its quarantine"))
    })
}

/// `token rotate`.
pub(crate) async fn rotate_token(remote: &Remote) -> anyhow::Result<u8> {
    let made = ask(remote, Method::Post, "/api/v1/tokens/rotate", None).await?;
    answer(remote, &made, |made| print(&text(&made["token"])))
}

/// `settings`.
pub(crate) async fn settings(remote: &Remote, command: Option<SettingsCommand>) -> anyhow::Result<u8> {
    let one = |key: &str| format!("/api/v1/settings/{}", part(key));
    let (method, path, body) = match command.unwrap_or(SettingsCommand::Get { key: None }) {
        SettingsCommand::Get { key: None } => (Method::Get, "/api/v1/settings".to_owned(), None),
        SettingsCommand::Get { key: Some(key) } => (Method::Get, one(&key), None),
        SettingsCommand::Set { key, value } => (Method::Put, one(&key), Some(json!({ "value": value }))),
        SettingsCommand::Unset { key } => (Method::Delete, one(&key), None),
    };
    let found = ask(remote, method, &path, body).await?;
    answer(remote, &found, |found| {
        for problem in found["problems"].as_array().into_iter().flatten() {
            complain(text(problem));
        }
        if found["forgotten"] == true {
            return print("it is forgotten");
        }
        let list = if found["settings"].is_array() { found["settings"].clone() } else { json!([found]) };
        table(&["SETTING", "VALUE", "FROM"], &rows(&list, &["key", "value", "from"]))
    })
}
