//! `channel` and `route`: lists and tests channels, lists and retries notifications, and explains routes.

use super::remote::{answer, ask, part, table, text};
use crate::cli::{ChannelCommand, Remote};
use crate::output::{counted, print};
use egress::Method;
use serde_json::Value;

/// `channel`.
pub(crate) async fn channel(remote: &Remote, command: Option<ChannelCommand>) -> anyhow::Result<u8> {
    match command {
        None | Some(ChannelCommand::List) => {
            let found = ask(remote, Method::GET, "/api/v1/channels", None).await?;
            answer(remote, &found, |found| {
                let rows: Vec<Vec<String>> = list(&found["channels"]).iter().map(row).collect();
                if rows.is_empty() {
                    return print("no channel is configured: [[channel]] in the file makes one");
                }
                table(&["CHANNEL", "KIND", "WAITING", "DELIVERED", "LAST", "PROBLEM"], &rows)
            })
        }
        Some(ChannelCommand::Test { name }) => {
            let path = format!("/api/v1/channels/{}/test", part(&name));
            let found = ask(remote, Method::POST, &path, None).await?;
            answer(remote, &found, |_| print(&format!("channel {name} took a test notification")))
        }
        Some(ChannelCommand::Deliveries { channel, state }) => {
            let mut path = "/api/v1/deliveries?limit=100".to_owned();
            for (key, value) in [("channel", channel), ("state", state)] {
                value.iter().for_each(|value| path.push_str(&format!("&{key}={}", part(value))));
            }
            let found = ask(remote, Method::GET, &path, None).await?;
            answer(remote, &found, |found| {
                let rows: Vec<Vec<String>> = list(&found["deliveries"]).iter().map(delivery).collect();
                table(&["NUMBER", "CREATED", "CHANNEL", "STATE", "ATTEMPTS", "ALERTS", "ERROR"], &rows)
            })
        }
        Some(ChannelCommand::Retry { number }) => {
            let found = ask(remote, Method::POST, &format!("/api/v1/deliveries/{number}/retry"), None).await?;
            answer(remote, &found, |_| print(&format!("notification {number} is tried again now")))
        }
    }
}

/// `route explain`.
pub(crate) async fn explain(remote: &Remote, alert: &str) -> anyhow::Result<u8> {
    let (target, dependency) = alert.split_once('/').map_or((alert, None), |(id, name)| (id, Some(name)));
    let mut path = format!("/api/v1/routes/explain?target={}", part(target));
    dependency.iter().for_each(|name| path.push_str(&format!("&dependency={}", part(name))));
    let found = ask(remote, Method::GET, &path, None).await?;
    answer(remote, &found, |found| {
        let rows: Vec<Vec<String>> = list(&found["routes"]).iter().map(route).collect();
        if rows.is_empty() {
            return print("no route is configured: alerts are shown and sent nowhere");
        }
        table(&["ROUTE", "APPLIES", "CHANNELS", "WHY"], &rows)?;
        let channels = words(&found["channels"]);
        match channels.is_empty() {
            true => print("no channel is notified of it"),
            false => print(&format!("notified: {channels}")),
        }?;
        let silences = words(&found["silencedBy"]);
        if silences.is_empty() { Ok(()) } else { print(&format!("held back now by silence {silences}")) }
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn words(value: &Value) -> String {
    list(value).iter().map(text).collect::<Vec<_>>().join(", ")
}

fn row(channel: &Value) -> Vec<String> {
    let column = |key: &str| text(&channel[key]);
    vec![
        column("name"),
        column("kind"),
        column("waiting"),
        column("delivered"),
        column("lastSuccess"),
        column("problem"),
    ]
}

fn delivery(delivery: &Value) -> Vec<String> {
    let column = |key: &str| text(&delivery[key]);
    let alerts = counted(list(&delivery["alerts"]).len(), "alert");
    let first = text(&delivery["alerts"][0]["title"]);
    let alerts = if list(&delivery["alerts"]).len() == 1 { first } else { alerts };
    vec![
        column("number"),
        column("created"),
        column("channel"),
        column("state"),
        column("attempts"),
        alerts,
        column("error"),
    ]
}

fn route(route: &Value) -> Vec<String> {
    let applies = if route["applies"] == true { "yes" } else { "no" };
    vec![text(&route["name"]), applies.to_owned(), words(&route["channels"]), text(&route["why"])]
}
