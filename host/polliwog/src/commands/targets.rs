//! `targets`: lists, shows and changes targets.

use super::remote::{BADNESS, answer, ask, every, part, rows, table, text};
use crate::cli::{AddArguments, DefinitionArguments, Remote, TargetsCommand, TestArguments};
use crate::output::print;
use anyhow::{Context, anyhow};
use egress::Method;
use serde_json::{Value, json};

/// The path of the API.
const API: &str = "/api/v1";

/// `targets`.
pub(crate) async fn targets(remote: &Remote, command: Option<TargetsCommand>) -> anyhow::Result<u8> {
    let change = |target: &str, key: &str, value: Value| {
        (Method::PATCH, format!("/api/v1/targets/{}", part(target)), Some(json!({ key: value })))
    };
    let (method, path, body) = match command {
        None | Some(TargetsCommand::List) => return list_targets(remote, API).await,
        Some(TargetsCommand::Show { target }) => return show_target(remote, API, &target).await,
        Some(TargetsCommand::Dismiss { target, dependency }) => {
            let body = json!({ "dependency": dependency });
            (Method::POST, format!("/api/v1/targets/{}/dismiss", part(&target)), Some(body))
        }
        Some(TargetsCommand::Poll { target }) => {
            (Method::POST, format!("/api/v1/targets/{}/poll", part(&target)), None)
        }
        Some(TargetsCommand::Enable { target }) => change(&target, "enabled", json!(true)),
        Some(TargetsCommand::Disable { target }) => change(&target, "enabled", json!(false)),
        Some(TargetsCommand::Set { target, key, value }) => change(&target, &key, json!(value)),
        Some(TargetsCommand::Unset { target, key }) => change(&target, &key, Value::Null),
        Some(TargetsCommand::Add(arguments)) => (Method::POST, "/api/v1/targets".to_owned(), {
            let AddArguments { target, kind, url, definition: rest } = arguments;
            Some(definition((target, kind, url), rest)?)
        }),
        Some(TargetsCommand::Test(arguments)) => return test(remote, arguments).await,
        Some(TargetsCommand::Remove { target }) => (Method::DELETE, format!("/api/v1/targets/{}", part(&target)), None),
    };
    let found = ask(remote, method, &path, body).await?;
    answer(remote, &found, |found| {
        if found["accepted"] == true {
            return print("it is polled as soon as its host has a slot");
        }
        if let Some(id) = found["deleted"].as_str() {
            return print(&format!("{id} is deleted"));
        }
        if found["state"].is_null() && found["url"].is_string() {
            return print(&format!("{0} is polled: `polliwog targets show {0}`", text(&found["id"])));
        }
        if let Some(count) = found["dismissed"].as_u64() {
            return print(&format!("forgotten: {count}"));
        }
        print_target(found)
    })
}

/// Tests a target. The exit code is 1 if the poll returned no report.
async fn test(remote: &Remote, arguments: TestArguments) -> anyhow::Result<u8> {
    let TestArguments { target, kind, url, definition: rest } = arguments;
    let (path, body) = match kind.zip(url) {
        Some((kind, url)) => ("/api/v1/target-tests".to_owned(), Some(definition((target, kind, url), rest)?)),
        None => (format!("/api/v1/targets/{}/test", part(&target)), None),
    };
    let found = ask(remote, Method::POST, &path, body).await?;
    let code = answer(remote, &found, |found| {
        let steps = found["steps"].as_array().into_iter().flatten();
        let row = |step: &Value| {
            let took = step["tookMs"].as_f64().map_or_else(String::new, |ms| format!("{ms:.1} ms"));
            let verdict = match step["code"].as_str() {
                None => "ok".to_owned(),
                Some(code) => code.to_owned(),
            };
            vec![text(&step["name"]), verdict, took, text(&step["subject"]), text(&step["text"])]
        };
        table(&["STEP", "RESULT", "TIME", "FOR", "WHAT"], &steps.clone().map(row).collect::<Vec<_>>())?;
        for certificate in steps.map(|step| &step["certificate"]).filter(|certificate| !certificate.is_null()) {
            let column = |key: &str| text(&certificate[key]);
            let (subject, issuer, until) = (column("subject"), column("issuer"), column("notAfter"));
            print(&format!("certificate: {subject}, issued by {issuer}, valid until {until}"))?;
            print(&format!("to pin it: tls = {{ fingerprint = \"{}\" }}", column("fingerprint")))?;
        }
        Ok(())
    })?;
    Ok(if code == 0 && found["passed"] == false { 1 } else { code })
}

/// The body of a request with the definition of a target.
fn definition((target, kind, url): (String, String, String), arguments: DefinitionArguments) -> anyhow::Result<Value> {
    let pairs = |given: &[String], what: &str| {
        let pair = |pair: &String| match pair.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), Value::from(value))),
            None => Err(anyhow!("--{what} {pair}: write it as NAME=VALUE")),
        };
        given.iter().map(pair).collect::<anyhow::Result<serde_json::Map<_, _>>>()
    };
    let settings: Option<Value> =
        arguments.settings.as_deref().map(serde_json::from_str).transpose().context("--settings is not JSON")?;
    let mut tls = serde_json::Map::new();
    if let Some(fingerprint) = arguments.fingerprint {
        tls.insert("fingerprint".to_owned(), fingerprint.into());
    }
    if arguments.insecure {
        tls.insert("insecure".to_owned(), true.into());
    }
    let (secrets, labels) = (pairs(&arguments.secret, "secret")?, pairs(&arguments.label, "label")?);
    let mut body = json!({
        "id": target, "kind": kind, "url": url, "name": arguments.name,
        "interval": arguments.interval, "secrets": secrets, "labels": labels,
    });
    if !tls.is_empty() {
        body["tls"] = tls.into();
    }
    if let Some(settings) = settings {
        body["settings"] = settings;
    }
    Ok(body)
}

/// Prints one target with its state, its settings and a line for each dependency.
/// Shows a target under a path of the API.
pub(super) async fn show_target(remote: &Remote, root: &str, target: &str) -> anyhow::Result<u8> {
    let mut found = ask(remote, Method::GET, &format!("{root}/targets/{}", part(target)), None).await?;
    let path = format!("{root}/dependencies?target={}&", part(target));
    found["reported"] = every(remote, &path, "dependencies").await?["dependencies"].take();
    answer(remote, &found, |found| {
        print_target(found)?;
        let lines: Vec<String> = found["reported"].as_array().into_iter().flatten().map(dependency_line).collect();
        print("")?;
        print(&if lines.is_empty() { "no known dependencies".to_owned() } else { lines.join("\n") })
    })
}

/// Prints the state and the settings of a target.
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

/// Formats a dependency, for example `critical db: 403 from storage; impact: no orders`.
fn dependency_line(dependency: &Value) -> String {
    let word = match dependency {
        dependency if dependency["missing"] == true => "missing".to_owned(),
        dependency if dependency["stale"] == true => format!("stale, was {}", text(&dependency["status"])),
        dependency => text(&dependency["status"]),
    };
    let text_of = |key: &str| dependency[key].as_str().map(str::to_owned);
    let latency = dependency["latencyMs"].as_f64().map(|ms| format!("{ms:.0} ms"));
    let impact = text_of("impact").filter(|_| dependency["status"] != "ok").map(|impact| format!("impact: {impact}"));
    let error = dependency["error"].as_object().map(|_| dependency["error"].to_string());
    let since = text_of("lastStatusChange").map(|at| format!("since {at}"));
    let more: Vec<String> = [text_of("errorMessage"), text_of("description"), impact, error, latency, since]
        .into_iter()
        .flatten()
        .collect();
    let more = if more.is_empty() { String::new() } else { format!(": {}", more.join("; ")) };
    format!("{word:<9} {}{more}", text(&dependency["name"]))
}

/// Lists the targets under a path of the API.
pub(super) async fn list_targets(remote: &Remote, root: &str) -> anyhow::Result<u8> {
    let mut found = every(remote, &format!("{root}/targets?"), "targets").await?;
    // Most urgent first.
    let badness = |target: &Value| BADNESS.iter().position(|status| target["status"] == **status);
    if let Some(all) = found["targets"].as_array_mut() {
        all.sort_by_key(badness);
    }
    answer(remote, &found, |found| {
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
