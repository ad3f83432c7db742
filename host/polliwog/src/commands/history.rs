//! `history`: shows what happened to a target of the running host.

use super::remote::{answer, ask, part, table, text};
use crate::cli::Remote;
use crate::output::print;
use egress::Method;
use serde_json::Value;

/// `history TARGET`.
pub(crate) async fn history(remote: &Remote, (root, target): (&str, &str), range: &str) -> anyhow::Result<u8> {
    let path = format!("{root}/targets/{}/history?range={}", part(target), part(range));
    let history = ask(remote, Method::GET, &path, None).await?;
    answer(remote, &history, |history| {
        let availability = &history["availability"];
        let seconds = |name: &str| availability[name].as_f64().unwrap_or(0.0);
        print(&match availability["share"].as_f64() {
            None => "nothing is known of this time".to_owned(),
            Some(share) => format!(
                "available {:.3} % of the {:.0} s that are known: {:.0} s down",
                share * 100.0,
                seconds("upSeconds") + seconds("downSeconds"),
                seconds("downSeconds")
            ),
        })?;
        print("")?;
        table(&["AT", "WHAT", "CHANGE", "WHY"], &changes(history))
    })
}

/// A row for each change, oldest first.
fn changes(history: &Value) -> Vec<Vec<String>> {
    let list = |name: &str| history[name].as_array().into_iter().flatten();
    let why = |at: &Value, dependency: &Value| {
        let found = list("errors").find(|error| error["at"] == *at && error["dependency"] == *dependency);
        found.map(|error| text(&error["message"])).filter(|message| message != "-").unwrap_or_default()
    };
    let transitions = list("transitions").map(|change| {
        let (at, dependency) = (&change["at"], &change["dependency"]);
        let change = format!("{} -> {}", text(&change["previous"]), text(&change["current"]));
        vec![text(at), text(dependency), change, why(at, dependency)]
    });
    let polls = list("polls").map(|change| {
        let at = text(&change["at"]);
        match change["category"].as_str() {
            None => vec![at, "polls".to_owned(), "succeed".to_owned(), String::new()],
            Some(category) => {
                vec![at, "polls".to_owned(), format!("fail ({category})"), text(&change["message"])]
            }
        }
    });
    let mut rows: Vec<Vec<String>> = transitions.chain(polls).collect();
    // Times in this format sort as text.
    rows.sort();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_are_listed_in_order_with_their_reasons() {
        let history = json!({
            "transitions": [
                { "at": "2026-01-01T00:00:02Z", "dependency": "db", "previous": "ok", "current": "critical" },
                { "at": "2026-01-01T00:00:09Z", "dependency": "db", "previous": "critical", "current": "ok" },
            ],
            "polls": [
                { "at": "2026-01-01T00:00:05Z", "category": "transient", "code": "timeout", "message": "no answer" },
                { "at": "2026-01-01T00:00:07Z", "category": null, "code": null, "message": null },
            ],
            "errors": [
                { "at": "2026-01-01T00:00:02Z", "dependency": "db", "error": "{}", "message": "disk full" },
                { "at": "2026-01-01T00:00:09Z", "dependency": "db", "error": null, "message": null },
            ],
        });
        let rows: Vec<String> = changes(&history).iter().map(|row| row[1..].join("|")).collect();
        let expected =
            ["db|ok -> critical|disk full", "polls|fail (transient)|no answer", "polls|succeed|", "db|critical -> ok|"];
        assert_eq!(rows, expected);
    }
}
