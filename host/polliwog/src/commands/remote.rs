//! Functions that the commands share which call the running host's API.

use crate::cli::Remote;
use crate::client::{self, Unanswered};
use crate::output::{print, print_json};
use anyhow::anyhow;
use egress::Method;
use serde_json::Value;

/// Calls the running host and returns its answer.
pub(crate) async fn ask(remote: &Remote, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
    client::call(&remote.common, method, path, body).await.map_err(|unanswered| match unanswered {
        Unanswered::Refused(why) => anyhow!(why),
        Unanswered::Unreachable(why) => anyhow!("no running host answers ({why}): start one, or set POLLIWOG_URL"),
    })
}

/// Percent-encodes one segment of a path.
pub(crate) fn part(text: &str) -> String {
    if text.is_empty() {
        return "%20".to_owned();
    }
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// Formats a value as a table cell.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Prints an answer as JSON, or with `show` if text was requested.
pub(crate) fn answer(
    remote: &Remote,
    answer: &Value,
    show: impl FnOnce(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    if remote.json {
        print_json(answer)?;
    } else {
        show(answer)?;
    }
    Ok(0)
}

/// Prints rows under a heading. Each column is as wide as its widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
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

/// Returns one row for each item of a list.
pub(crate) fn rows(list: &Value, columns: &[&str]) -> Vec<Vec<String>> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| columns.iter().map(|column| text(&item[*column])).collect()).collect()
}

/// Reads every page of a list from the API. Returns the last page with the entries of all in `list`. `path` ends in
/// `?` or `&`.
pub(crate) async fn every(remote: &Remote, path: &str, list: &str) -> anyhow::Result<Value> {
    let mut all = Vec::new();
    let mut place = format!("{path}limit=1000");
    loop {
        let mut page = ask(remote, Method::GET, &place, None).await?;
        if let Value::Array(entries) = page[list].take() {
            all.extend(entries);
        }
        match page["next"].as_str() {
            Some(next) => place = format!("{path}limit=1000&cursor={}", part(next)),
            None => {
                page[list] = all.into();
                return Ok(page);
            }
        }
    }
}

/// The statuses of targets, most urgent first.
pub(crate) const BADNESS: [&str; 8] =
    ["unreachable", "critical", "no_plugin", "warning", "unknown", "pending", "ok", "disabled"];
