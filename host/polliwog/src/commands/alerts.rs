//! `alerts`: lists and acknowledges alerts.

use super::remote::{answer, ask, every, part, table, text};
use crate::cli::{AlertsCommand, Remote};
use crate::output::print;
use egress::Method;
use serde_json::{Value, json};

/// `alerts`.
pub(crate) async fn alerts(remote: &Remote, command: Option<AlertsCommand>) -> anyhow::Result<u8> {
    match command.unwrap_or(AlertsCommand::List { state: "open".to_owned() }) {
        AlertsCommand::List { state } => {
            let found = every(remote, &format!("/api/v1/alerts?state={}&", part(&state)), "alerts").await?;
            answer(remote, &found, |found| {
                let alerts = found["alerts"].as_array().map(Vec::as_slice).unwrap_or_default();
                if alerts.is_empty() && state == "open" {
                    return print("no alert is open");
                }
                let rows: Vec<Vec<String>> = alerts.iter().map(|alert| row(alert, alerts)).collect();
                table(&["ID", "STATE", "STATUS", "ALERT", "SINCE", "WHY", "NOTE"], &rows)
            })
        }
        AlertsCommand::Ack { id, by } => {
            let (path, body) = (path(&id), json!({ "by": by.unwrap_or_else(operator) }));
            let found = ask(remote, Method::PUT, &path, Some(body)).await?;
            answer(remote, &found, |_| print(&format!("{id} is not repeated until it is over or gets worse")))
        }
        AlertsCommand::Unack { id } => {
            let found = ask(remote, Method::DELETE, &path(&id), None).await?;
            answer(remote, &found, |_| print(&format!("{id} is not acknowledged any more")))
        }
    }
}

/// The name of the operator's login.
pub(super) fn operator() -> String {
    std::env::var("USER").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "an operator".to_owned())
}

/// The name of an alert: its target and dependency, or its class and name.
pub(super) fn name(alert: &Value) -> String {
    let (class, name) = (text(&alert["class"]), text(&alert["name"]));
    match alert["dependency"].as_str() {
        Some(dependency) => format!("{name}/{dependency}"),
        None => format!("{class} {name}"),
    }
}

fn path(id: &str) -> String {
    format!("/api/v1/alerts/{}/acknowledgement", part(id))
}

fn row(alert: &Value, all: &[Value]) -> Vec<String> {
    let column = |key: &str| text(&alert[key]);
    let name_of = |id: &Value| all.iter().find(|other| other["id"] == *id).map(|other| text(&other["title"]));
    let explained = alert["suppressedBy"].as_str();
    let explained =
        explained.map(|id| format!("explained by {}", name_of(&alert["suppressedBy"]).unwrap_or(id.to_owned())));
    let silenced = alert["silencedBy"].as_str().map(|id| format!("silenced by {id}"));
    let acknowledged = alert["acknowledged"]["by"].as_str().map(|by| format!("acknowledged by {by}"));
    let flapping = (alert["flapping"] == true).then(|| "flapping".to_owned());
    let notes: Vec<String> = [explained, silenced, acknowledged, flapping].into_iter().flatten().collect();
    vec![
        column("id"),
        column("state"),
        column("status"),
        name(alert),
        column("since"),
        column("message"),
        notes.join(", "),
    ]
}
