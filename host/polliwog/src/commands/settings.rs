//! `settings`: shows and changes settings of the running host.

use super::remote::{answer, ask, every, part, rows, table, text};
use crate::cli::{Remote, SettingsCommand};
use crate::output::{complain, print};
use egress::Method;
use serde_json::json;

/// `settings`.
pub(crate) async fn settings(remote: &Remote, command: Option<SettingsCommand>) -> anyhow::Result<u8> {
    let one = |key: &str| format!("/api/v1/settings/{}", part(key));
    let found = match command.unwrap_or(SettingsCommand::Get { key: None }) {
        SettingsCommand::Get { key: None } => every(remote, "/api/v1/settings?", "settings").await?,
        SettingsCommand::Get { key: Some(key) } => ask(remote, Method::GET, &one(&key), None).await?,
        SettingsCommand::Set { key, value } => {
            ask(remote, Method::PUT, &one(&key), Some(json!({ "value": value }))).await?
        }
        SettingsCommand::Unset { key } => ask(remote, Method::DELETE, &one(&key), None).await?,
    };
    answer(remote, &found, |found| {
        for problem in found["problems"].as_array().into_iter().flatten() {
            complain(text(problem));
        }
        if found["forgotten"] == true {
            return print("the setting is removed");
        }
        let list = if found["settings"].is_array() { found["settings"].clone() } else { json!([found]) };
        table(&["SETTING", "VALUE", "FROM"], &rows(&list, &["key", "value", "from"]))
    })
}
