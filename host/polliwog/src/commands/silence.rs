//! `silence`: lists, adds and ends silences.

use super::alerts::{name, operator};
use super::remote::{answer, ask, part, table, text};
use crate::cli::{Remote, SilenceCommand};
use crate::output::{counted, print};
use anyhow::{anyhow, bail};
use config::parse_duration;
use egress::Method;
use serde_json::{Map, Value, json};

/// The signs of a condition, the longest first.
const SIGNS: [&str; 4] = ["=~", "!~", "!=", "="];

/// `silence`.
pub(crate) async fn silence(remote: &Remote, command: Option<SilenceCommand>) -> anyhow::Result<u8> {
    match command {
        None | Some(SilenceCommand::List) => {
            let found = ask(remote, Method::GET, "/api/v1/silences", None).await?;
            answer(remote, &found, |found| {
                let silences = found["silences"].as_array().map(Vec::as_slice).unwrap_or_default();
                table(
                    &["ID", "ACTIVE", "ALERTS", "WHEN", "BY", "COMMENT"],
                    &silences.iter().map(row).collect::<Vec<_>>(),
                )
            })
        }
        Some(SilenceCommand::Add { conditions, length, comment, by, preview }) => {
            let conditions: Map<String, Value> =
                conditions.iter().map(|text| condition(text)).collect::<Result<_, _>>()?;
            let seconds = parse_duration(&length).map_err(|why| anyhow!("--for: {why}"))?.as_secs();
            let body = json!({ "match": conditions });
            let found = ask(remote, Method::POST, "/api/v1/silences/preview", Some(body)).await?;
            if preview {
                return answer(remote, &found, show_preview);
            }
            let (author, open) = (by.unwrap_or_else(operator), found["alerts"].as_array().map_or(0, Vec::len));
            let body = json!({ "match": conditions, "seconds": seconds, "author": author, "comment": comment });
            let made = ask(remote, Method::POST, "/api/v1/silences", Some(body)).await?;
            answer(remote, &made, |made| {
                let (id, end) = (text(&made["id"]), text(&made["end"]));
                print(&format!("silence {id} lasts until {end}; {} silenced now", counted(open, "open alert")))
            })
        }
        Some(SilenceCommand::End { id }) => {
            let found = ask(remote, Method::DELETE, &format!("/api/v1/silences/{}", part(&id)), None).await?;
            answer(remote, &found, |_| print(&format!("silence {id} is over")))
        }
    }
}

fn show_preview(found: &Value) -> anyhow::Result<()> {
    let alerts = found["alerts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if alerts.is_empty() {
        return print("no open alert matches now");
    }
    let row = |alert: &Value| vec![name(alert), text(&alert["status"]), text(&alert["since"]), text(&alert["message"])];
    table(&["ALERT", "STATUS", "SINCE", "WHY"], &alerts.iter().map(row).collect::<Vec<_>>())
}

/// Splits `target=~na.*` into the attribute and the condition on it.
fn condition(text: &str) -> anyhow::Result<(String, Value)> {
    let first = SIGNS.into_iter().filter_map(|sign| text.find(sign)).min();
    match first {
        Some(at) if at > 0 => Ok((text[..at].to_owned(), Value::from(&text[at..]))),
        _ => bail!("{text:?} is not a condition: write it like target=nas, kind=~p(ve|bs) or label.site!=zurich"),
    }
}

fn row(silence: &Value) -> Vec<String> {
    let conditions = silence["match"].as_object().into_iter().flatten();
    let conditions: Vec<String> =
        conditions.map(|(attribute, condition)| attribute.clone() + &text(condition)).collect();
    let when = match silence["every"].as_str() {
        Some(every) => format!("{every} in {}", text(&silence["timeZone"])),
        None => format!("{} to {}", text(&silence["start"]), text(&silence["end"])),
    };
    let active = if silence["active"] == true { "yes" } else { "no" };
    let column = |key: &str| text(&silence[key]);
    vec![column("id"), active.to_owned(), conditions.join(" "), when, column("author"), column("comment")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_split_at_their_sign() {
        for (text, attribute, rest) in [
            ("target=nas", "target", "=nas"),
            ("kind=~p(ve|bs)", "kind", "=~p(ve|bs)"),
            ("label.site!=a=b", "label.site", "!=a=b"),
            ("name!~x!=y", "name", "!~x!=y"),
        ] {
            assert_eq!(condition(text).unwrap(), (attribute.to_owned(), Value::from(rest)), "{text}");
        }
        for text in ["", "nas", "=nas"] {
            assert!(condition(text).is_err(), "{text}");
        }
    }
}
