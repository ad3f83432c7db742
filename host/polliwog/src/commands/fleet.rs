//! `fleet`: shows the fleet of the running host, and makes and deletes its deployments.

mod credentials;
mod simulate;

use super::history::history;
use super::remote::{answer, ask, every, part, table, text};
use super::targets::{list_targets, show_target};
use crate::cli::{FleetCommand, Remote};
use crate::output::{complain, counted, print, print_json};
use anyhow::Context;
use egress::Method;
use fleet::wire::MOST_LINES;
use serde_json::{Value, json};
use simulate::{Size, simulate};
use std::path::Path;

/// The maximum size of a file of deployments in bytes.
const LARGEST: u64 = 16 << 20;

/// `fleet`.
pub(crate) async fn fleet(remote: &Remote, command: FleetCommand) -> anyhow::Result<u8> {
    match command {
        FleetCommand::Status => {
            let found = ask(remote, Method::GET, "/api/v1/fleet", None).await?;
            let code = status_code(&found);
            answer(remote, &found, status)?;
            Ok(code)
        }
        FleetCommand::Devices { text, stale, failed } => {
            devices(remote, text, [("stale", stale), ("failed", failed)]).await
        }
        FleetCommand::Device { id } => show_device(remote, &id).await,
        FleetCommand::Targets { id, target, history: range } => {
            let root = format!("/api/v1/fleet/devices/{}", part(&id));
            match (target, range) {
                (None, _) => list_targets(remote, &root).await,
                (Some(target), None) => show_target(remote, &root, &target).await,
                (Some(target), Some(range)) => history(remote, (&root, &target), &range).await,
            }
        }
        FleetCommand::Logs { id, last, follow } => logs(remote, &id, last, follow).await,
        FleetCommand::Deployments => {
            let found = every(remote, "/api/v1/fleet/deployments?", "deployments").await?;
            warn_of_broker(remote).await;
            answer(remote, &found, deployments)
        }
        FleetCommand::Apply { file } => apply(remote, &file).await,
        FleetCommand::Credentials { device, dir, revoke } => credentials::credentials(&device, &dir, revoke),
        FleetCommand::Simulate { devices, deployments, events, seconds, outage, server } => {
            let deployments = deployments.unwrap_or(10.min(devices));
            anyhow::ensure!(
                deployments <= devices,
                "--deployments {deployments}: with {devices} devices, use {devices} or fewer"
            );
            let size = Size {
                devices: devices as usize,
                deployments: deployments as usize,
                events,
                seconds: seconds.into(),
                outage,
            };
            simulate(&size, &server, remote.json).await
        }
        FleetCommand::Crd => {
            print(kube::CRD.trim_end())?;
            Ok(0)
        }
        FleetCommand::SimulateDevices(of) => simulate::devices(&of).await,
        FleetCommand::Delete { name } => {
            let path = format!("/api/v1/fleet/deployments/{}", part(&name));
            let deleted = ask(remote, Method::DELETE, &path, None).await?;
            let later = later(remote).await;
            answer(remote, &deleted, |_| print(&format!("the deployment {name} is deleted{later}")))
        }
    }
}

/// Lists the devices that a text and these states choose.
async fn devices(remote: &Remote, wanted: Option<String>, states: [(&str, bool); 2]) -> anyhow::Result<u8> {
    let mut path = "/api/v1/fleet/devices?".to_owned();
    if let Some(wanted) = wanted {
        path.push_str(&format!("text={}&", part(&wanted)));
    }
    for (name, _) in states.into_iter().filter(|(_, chosen)| *chosen) {
        path.push_str(name);
        path.push_str("=true&");
    }
    let found = every(remote, &path, "devices").await?;
    warn_of_broker(remote).await;
    answer(remote, &found, |found| {
        let rows: Vec<Vec<String>> = found["devices"].as_array().into_iter().flatten().map(device).collect();
        table(&["DEVICE", "LAST HEARTBEAT", "DEPLOYMENTS", "LABELS"], &rows)
    })
}

async fn show_device(remote: &Remote, id: &str) -> anyhow::Result<u8> {
    let found = ask(remote, Method::GET, &format!("/api/v1/fleet/devices/{}", part(id)), None).await?;
    answer(remote, &found, |found| {
        let row = device(found);
        print(&format!("{}; {}; labels: {}", row[0], last_heard(found), row[3]))?;
        if let Some(why) = found["problem"].as_str() {
            complain(format!("not all that it reports can be read from the broker: {why}"));
        }
        if found["stale"] == true {
            print("what follows is what it reported before")?;
        }
        if let Some(ahead) = found["clockAheadMs"].as_i64() {
            print(&format!("its clock differs by {} s", ahead / 1000))?;
        }
        let reported = found["reports"].as_array().into_iter().flatten().filter(|report| report["phase"] != "removed");
        let reported: Vec<Value> = reported.cloned().collect();
        let known = found["deployments"].as_object().into_iter().flatten();
        let others = known.filter(|(name, _)| !reported.iter().any(|report| report["deployment"] == **name));
        let others =
            others.map(|(name, phase)| json!({ "deployment": name, "phase": phase.as_str().unwrap_or("unreported") }));
        reports(&reported.iter().cloned().chain(others).collect())
    })
}

/// Prints lines of a device's log; with `follow`, also further ones until the command is ended.
async fn logs(remote: &Remote, id: &str, last: u32, follow: bool) -> anyhow::Result<u8> {
    let path = format!("/api/v1/fleet/devices/{}/logs", part(id));
    let mut found = ask(remote, Method::GET, &format!("{path}?limit={last}"), None).await?;
    loop {
        if let Some(dropped) = found["dropped"].as_u64().filter(|dropped| *dropped > 0) {
            complain(format!("{dropped} lines are missing here: the device no longer keeps them"));
        }
        for line in found["lines"].as_array().into_iter().flatten() {
            if remote.json { print_json(line) } else { print(&text(&line["text"])) }?;
        }
        if !follow {
            return Ok(0);
        }
        let next = format!("{path}?limit={MOST_LINES}&wait=10&after={}", found["next"]);
        found = ask(remote, Method::GET, &next, None).await?;
    }
}

/// 0 if everything works, 1 if deployments failed, devices are not heard, several hosts report as one, records are
/// still being read, plugins are not stored or Kubernetes cannot be followed, 2 if this host has a problem with the
/// broker.
fn status_code(found: &Value) -> u8 {
    let parts = [&found["operator"], &found["agent"]];
    let parts = parts.into_iter().filter(|part| !part.is_null());
    let is_wrong = |plugins: &Vec<Value>| plugins.iter().any(|plugin| plugin["problem"].is_string());
    let code = |part: &Value| match &part["broker"]["problem"] {
        Value::Null
            if part["kubernetes"]["problem"].is_string() || part["plugins"].as_array().is_some_and(is_wrong) =>
        {
            1
        }
        Value::Null => {
            let is_doubled = part["doubled"].as_array().is_some_and(|devices| !devices.is_empty());
            let count = |name: &str| part[name].as_u64().unwrap_or_default();
            u8::from(is_doubled || count("stale") > 0 || count("failed") > 0 || part["complete"] == false)
        }
        _ => 2,
    };
    parts.map(code).max().unwrap_or_default()
}

fn status(found: &Value) -> anyhow::Result<()> {
    let (operator, agent) = (&found["operator"], &found["agent"]);
    if operator.is_null() && agent.is_null() {
        return print("this host is in no fleet: add [fleet] to its configuration");
    }
    if !operator.is_null() {
        print(&format!("operator: {}; {}", of_broker(operator), parts_of(operator)))?;
        failures(operator)?;
        if let Some(other) = operator["waitsFor"].as_str() {
            print(&format!("the operator {other} assigns deployments to devices; this one counts, and waits"))?;
        }
        if let Some(why) = operator["kubernetes"]["problem"].as_str() {
            print(&format!("Kubernetes: {why}"))?;
        }
        for plugin in operator["plugins"].as_array().into_iter().flatten() {
            let kind = text(&plugin["kind"]);
            print(&match plugin["problem"].as_str() {
                Some(why) => format!("devices cannot fetch the plugin for kind {kind}: {why}"),
                None => format!("devices with plugins = true in [fleet] fetch the plugin for kind {kind}"),
            })?;
        }
        if operator["complete"] == false && operator["broker"]["problem"].is_null() {
            print("the records of the fleet are still being read; counters are too low until then")?;
        }
        for device in operator["doubled"].as_array().into_iter().flatten() {
            print(&format!("several hosts report as device {}: give each another [fleet] device", text(device)))?;
        }
        if let Some(why) = operator["refusedReason"].as_str() {
            print(&format!("{} records were refused; the last one: {why}", operator["refused"]))?;
        }
    }
    if !agent.is_null() {
        print(&format!(
            "agent: device {}; {}; {} for it",
            text(&agent["device"]),
            of_broker(agent),
            match agent["queued"].as_u64() {
                Some(1) => "1 record waits".to_owned(),
                _ => format!("{} records wait", agent["queued"]),
            }
        ))?;
        reports(&agent["reports"])?;
    }
    Ok(())
}

fn deployments(found: &Value) -> anyhow::Result<()> {
    let counters = ["matched", "succeeded", "failed", "pending", "unreported", "stale"];
    let row = |deployment: &Value| {
        let (failing, last) = (&deployment["failing"][0], &deployment["lastError"]);
        let earlier = if deployment["failed"] == 0 { "earlier: " } else { "" };
        let error = if failing.is_null() { last } else { failing };
        let why = match error["error"].as_str() {
            Some(why) => format!("{earlier}{} at {}: {why}", text(&error["device"]), text(&error["at"])),
            None => String::new(),
        };
        let phase = match deployment["phase"].as_str() {
            // The selector chooses none.
            Some("removed") => "no device".to_owned(),
            _ => text(&deployment["phase"]),
        };
        let phase = match out_of_reach(deployment) {
            Some(quorum) => format!("{phase}, too few for its quorum of {quorum}"),
            None => phase,
        };
        let counters = counters.iter().map(|counter| text(&deployment[*counter]));
        [text(&deployment["name"]), phase, text(&deployment["since"])]
            .into_iter()
            .chain(counters)
            .chain([why])
            .collect()
    };
    let rows: Vec<Vec<String>> = found["deployments"].as_array().into_iter().flatten().map(row).collect();
    let heading = ["DEPLOYMENT", "STATE", "SINCE", "DEVICES", "SUCCEEDED", "FAILED", "PENDING", "UNREPORTED", "STALE"];
    table(&[&heading[..], &["LAST ERROR"]].concat(), &rows)
}

/// The quorum of a deployment, if it chooses fewer devices: then it never fails as a whole.
fn out_of_reach(deployment: &Value) -> Option<u64> {
    let quorum = deployment["definition"]["quorum"].as_u64()?;
    (deployment["matched"].as_u64()? < quorum).then_some(quorum)
}

fn device(device: &Value) -> Vec<String> {
    let list = |map: &Value, between: &str| {
        let pairs = map.as_object().into_iter().flatten();
        let pairs = pairs.map(|(key, value)| format!("{key}{between}{}", value.as_str().unwrap_or("unreported")));
        pairs.collect::<Vec<_>>().join(", ")
    };
    let is_stale = device["stale"] == true;
    let heard = match (device["heardAt"].as_str(), is_stale) {
        (Some(at), false) => at.to_owned(),
        (Some(at), true) => format!("none since {at}"),
        (None, false) => "none yet to this operator".to_owned(),
        (None, true) => "none since this operator began".to_owned(),
    };
    let mut deployments = list(&device["deployments"], " ");
    if is_stale && !deployments.is_empty() {
        deployments.insert_str(0, "before: ");
    }
    vec![text(&device["device"]), heard, deployments, list(&device["labels"], "=")]
}

/// The time of a device's last heartbeat, as a part of a sentence.
fn last_heard(device: &Value) -> String {
    match (device["heardAt"].as_str(), device["stale"] == true) {
        (Some(at), false) => format!("last heartbeat at {at}"),
        (Some(at), true) => format!("no heartbeat since {at}"),
        (None, false) => "no heartbeat to this operator yet".to_owned(),
        (None, true) => "no heartbeat since this operator began".to_owned(),
    }
}

fn reports(reports: &Value) -> anyhow::Result<()> {
    let row = |report: &Value| {
        ["deployment", "phase", "at", "error"].iter().map(|column| text(&report[*column])).collect::<Vec<_>>()
    };
    let present = reports.as_array().into_iter().flatten().filter(|report| report["phase"] != "removed");
    let rows: Vec<Vec<String>> = present.map(row).collect();
    if rows.is_empty() { Ok(()) } else { table(&["DEPLOYMENT", "STATE", "SINCE", "WHY"], &rows) }
}

/// `fleet apply FILE`: makes or changes every deployment of a file.
async fn apply(remote: &Remote, file: &Path) -> anyhow::Result<u8> {
    let written = config::read_text(file, LARGEST).map_err(|why| anyhow::anyhow!(why))?;
    let deployments = read(&written).with_context(|| file.display().to_string())?;
    warn_of_kinds(remote, &deployments).await;
    let mut names = Vec::new();
    for (name, definition) in deployments {
        let path = format!("/api/v1/fleet/deployments/{}", part(&name));
        let sent = ask(remote, Method::PUT, &path, Some(definition)).await;
        let before = if names.is_empty() { String::new() } else { format!(" (applied: {})", names.join(", ")) };
        sent.with_context(|| format!("{}: deployment {name:?}{before}", file.display()))?;
        names.push(name);
    }
    let applied = json!({ "applied": names });
    let later = later(remote).await;
    answer(remote, &applied, |_| {
        print(&format!("{} applied: {}{later}", counted(names.len(), "deployment"), names.join(", ")))
    })
}

/// The numbers of devices and deployments, in words.
pub(super) fn parts_of(operator: &Value) -> String {
    let number = |name: &str| operator[name].as_u64().unwrap_or_default() as usize;
    format!(
        "{}, {} of them not heard for 5 minutes; {}, {} of them failed",
        counted(number("devices"), "device"),
        operator["stale"],
        counted(number("deployments"), "deployment"),
        operator["failed"]
    )
}

/// Prints each of a few failed deployments and of a few devices that are not heard.
fn failures(operator: &Value) -> anyhow::Result<()> {
    const NAMED: usize = 10;
    let some = |list: &str| operator[list].as_array().map(Vec::as_slice).unwrap_or_default().iter().take(NAMED);
    let more = |count: &str, command: &str| match operator[count].as_u64().unwrap_or_default() as usize {
        count if count > NAMED => print(&format!("and {} more: {command}", count - NAMED)),
        _ => Ok(()),
    };
    for failure in some("failures") {
        let (error, since) = (&failure["reason"], failure["since"].as_str());
        let since = since.map_or_else(String::new, |since| format!(" since {since}"));
        let why = match error["device"].as_str() {
            Some(device) => format!("{device}: {}", text(&error["error"])),
            None => "no reason is known".to_owned(),
        };
        let (name, devices, matched) = (text(&failure["deployment"]), &failure["devices"], &failure["matched"]);
        print(&format!("deployment {name} failed{since} on {devices} of {matched} devices: {why}"))?;
    }
    more("failed", "polliwog fleet deployments")?;
    for device in some("silent") {
        print(&format!(
            "device {}: {}",
            text(&device["device"]),
            last_heard(&json!({ "stale": true, "heardAt": device["heardAt"] }))
        ))?;
    }
    more("stale", "polliwog fleet devices --stale")
}

/// The problem with the broker of a part of the fleet, and its beginning.
pub(super) fn of_broker(part: &Value) -> String {
    let broker = &part["broker"];
    match broker["problem"].as_str() {
        Some(why) => {
            let whose = if why.starts_with("the broker ") { "" } else { "the broker: " };
            format!("{whose}{why} (since {})", text(&broker["since"]))
        }
        None => "the broker is connected".to_owned(),
    }
}

/// Warns that the answer is old, if the operator does not hear the fleet.
async fn warn_of_broker(remote: &Remote) {
    let fleet = ask(remote, Method::GET, "/api/v1/fleet", None).await.unwrap_or_default();
    let broker = &fleet["operator"]["broker"];
    if broker["problem"].is_string() {
        let what = if broker["connected"] == true { "may be old" } else { "is of the last connection" };
        complain(format!("what follows {what}, because {}", of_broker(&fleet["operator"])));
    }
}

/// Warns of kinds that no plugin of the operator serves. A device may have one.
async fn warn_of_kinds(remote: &Remote, deployments: &[(String, Value)]) {
    let found = ask(remote, Method::GET, "/api/v1/plugins", None).await.unwrap_or_default();
    let of_role = |role: &str| {
        let plugins = found["plugins"].as_array().into_iter().flatten().filter(|plugin| plugin["role"] == role);
        plugins.filter_map(|plugin| plugin["kind"].as_str()).collect::<Vec<_>>()
    };
    let (known, notifiers) = (of_role("poller"), of_role("notifier"));
    for (name, definition) in deployments.iter().filter(|_| !known.is_empty()) {
        for kind in definition["targets"].as_array().into_iter().flatten().filter_map(|target| target["kind"].as_str())
        {
            if notifiers.contains(&kind) {
                complain(format!("deployment {name:?}: the kind {kind:?} sends notifications, and polls nothing"));
            } else if !known.contains(&kind) && !kind.contains("${") {
                let near = config::suggestion(kind, &known);
                complain(format!(
                    "deployment {name:?}: devices need a plugin for the kind {kind:?}, which this host does not have{near}"
                ));
            }
        }
    }
}

/// Returns why devices do not learn a change yet, to be added to the answer; empty if nothing delays it.
async fn later(remote: &Remote) -> String {
    // The change is made, also if this cannot be read.
    let fleet = ask(remote, Method::GET, "/api/v1/fleet", None).await.unwrap_or_default();
    let problem = fleet["operator"]["broker"]["problem"].as_str();
    problem.map_or_else(String::new, |why| format!("; devices learn it when the broker works again: {why}"))
}

/// The keys of a deployment in a file.
const KEYS: [&str; 5] = ["name", "selector", "quorum", "once", "target"];

/// Reads the deployments of a file: their names and definitions.
fn read(written: &str) -> anyhow::Result<Vec<(String, Value)>> {
    let table: toml::Table = toml::from_str(written).map_err(|error| anyhow::anyhow!("this is not TOML: {error}"))?;
    let mut file = serde_json::to_value(table)?;
    let other = file.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| *key != "deployment");
    anyhow::ensure!(
        other.is_none(),
        "unknown key {:?}: a file of deployments has [[deployment]] only",
        other.cloned().unwrap_or_default()
    );
    let Value::Array(all) = file["deployment"].take() else {
        anyhow::bail!("there is no [[deployment]], with two brackets");
    };
    let deployment = |(place, mut deployment): (usize, Value)| {
        let name = deployment["name"].as_str().map(ToOwned::to_owned);
        let name = name.with_context(|| format!("deployment {} has no name", place + 1))?;
        let fields = deployment.as_object_mut().context("a deployment is written as [[deployment]]")?;
        fields.remove("name");
        if let Some(other) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
            anyhow::bail!("deployment {name:?}: unknown key {other:?}{}", config::suggestion(other, &KEYS));
        }
        let targets = fields.remove("target");
        let targets = targets.with_context(|| format!("deployment {name:?} has no [[deployment.target]]"))?;
        fields.insert("targets".to_owned(), targets);
        Ok((name, deployment))
    };
    all.into_iter().enumerate().map(deployment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_deployments_with_targets() {
        let file = "[[deployment]]\nname = \"web\"\nselector = { matchLabels = { site = \"a\" } }\n\
                    [[deployment.target]]\nid = \"web\"\nkind = \"http\"\nurl = \"http://a/\"\n";
        let expected = json!({
            "selector": { "matchLabels": { "site": "a" } },
            "targets": [{ "id": "web", "kind": "http", "url": "http://a/" }],
        });
        assert_eq!(read(file).unwrap(), [("web".to_owned(), expected)]);
        for (wrong, why) in [
            ("", "no [[deployment]]"),
            ("[deployment]\nname = \"a\"", "two brackets"),
            ("[[deployment]]\n[[deployment.target]]\nid = \"a\"", "deployment 1 has no name"),
            ("[[deployment]]\nname = \"a\"", "no [[deployment.target]]"),
            ("[[deployment]]\nname = \"a\"\nselectr = 1", "unknown key \"selectr\": did you mean \"selector\"?"),
            ("[[target]]\nid = \"a\"", "unknown key \"target\""),
            ("[", "not TOML"),
        ] {
            assert!(read(wrong).unwrap_err().to_string().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_quorum_of_more_devices_than_there_are_is_named() {
        let of = |matched: u32, definition: Value| {
            out_of_reach(&json!({ "name": "dns", "matched": matched, "definition": definition }))
        };
        assert_eq!(of(2, json!({ "quorum": 3 })), Some(3));
        assert_eq!(of(3, json!({ "quorum": 3 })), None);
        assert_eq!(of(0, json!({})), None);
    }

    #[test]
    fn the_exit_code_follows_the_worst_part() {
        let part = |problem: Value, (stale, failed): (u64, u64)| json!({ "broker": { "problem": problem }, "stale": stale, "failed": failed, "complete": true });
        let cases = [
            (json!({ "operator": null, "agent": null }), 0),
            (json!({ "operator": part(Value::Null, (0, 0)), "agent": null }), 0),
            (json!({ "operator": part(Value::Null, (1, 0)), "agent": null }), 1),
            (json!({ "operator": part(Value::Null, (0, 1)), "agent": null }), 1),
            (json!({ "operator": part(Value::Null, (1, 0)), "agent": part(json!("away"), (0, 0)) }), 2),
        ];
        for (found, code) in cases {
            assert_eq!(status_code(&found), code, "{found}");
        }
    }
}
