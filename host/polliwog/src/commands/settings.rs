//! `settings`: shows and changes settings of the running host.

use super::remote::{answer, ask, part, rows, table, text};
use crate::cli::{Remote, SettingsCommand};
use crate::output::{complain, print};
use egress::Method;
use serde_json::json;

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
            return print("the setting is removed");
        }
        let list = if found["settings"].is_array() { found["settings"].clone() } else { json!([found]) };
        table(&["SETTING", "VALUE", "FROM"], &rows(&list, &["key", "value", "from"]))
    })
}
