//! Alerts: from a report to the page, over a kill, an acknowledgement and a silence.

use crate::operating::target;
use crate::support::{Answer, Host, Server, TOKEN, folder, get, ok, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Answers with one dependency, which is healthy while the switch is on.
fn switched(healthy: &Arc<AtomicBool>) -> Answer {
    let healthy = healthy.clone();
    Arc::new(move |_| match healthy.load(Ordering::Relaxed) {
        true => ok(r#"[{"name":"db","healthy":true}]"#),
        false => ok(r#"[{"name":"db","healthy":false,"errorMessage":"the disk is full"}]"#),
    })
}

fn alerts(host: &Host, state: &str) -> Vec<Value> {
    host.get(&format!("/api/v1/alerts?state={state}"))["alerts"].as_array().unwrap().clone()
}

/// The states of the alerts of both targets, as `name state`.
fn states(host: &Host) -> Vec<String> {
    let of = |alert: &Value| format!("{} {}", alert["name"].as_str().unwrap(), alert["state"].as_str().unwrap());
    let mut states: Vec<String> = host.get("/api/v1/alerts")["alerts"].as_array().unwrap().iter().map(of).collect();
    states.sort();
    states
}

#[test]
fn an_alert_is_confirmed_explained_acknowledged_silenced_and_resolved() {
    let (_keep, folder) = folder();
    let healthy = Arc::new(AtomicBool::new(true));
    let server = Server::start(vec![("/nas", switched(&healthy)), ("/shop", switched(&healthy))]);
    let config = format!(
        "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{}{}",
        target("nas", &server.url("/nas"), ""),
        target("shop", &server.url("/shop"), "depends_on = [\"nas\"]\n")
    );
    let host = Host::start(&folder, &config);
    until("both answer", || server.count("/shop").min(server.count("/nas")), |count| *count > 0);
    assert_eq!(alerts(&host, "open"), Vec::<Value>::new());
    let (_, said, _) = host.command(&folder, &["alerts"]);
    assert_eq!(said.trim(), "no alert is open");

    healthy.store(false, Ordering::Relaxed);
    until("both fire", || states(&host), |states| *states == ["nas firing", "shop firing"]);
    let explained =
        |alerts: &Vec<Value>| alerts.iter().find(|alert| alert["name"] == "shop").unwrap()["suppressedBy"].clone();
    until("the one explains the other", || alerts(&host, "firing"), |alerts| explained(alerts).is_string());
    let nas = |host: &Host| alerts(host, "firing").into_iter().find(|alert| alert["name"] == "nas").unwrap();
    let before = nas(&host);
    assert_eq!(explained(&alerts(&host, "firing")), before["id"]);
    assert_eq!((&before["message"], &before["suppresses"]), (&json!("the disk is full"), &json!(1)));
    let (_, page) = get(&host.api, "/alerts", Some(TOKEN));
    assert!(page.contains("2 alerts fire, 1 of them explained by another."), "{page}");

    let id = before["id"].as_str().unwrap();
    assert_eq!(host.command(&folder, &["alerts", "ack", id, "--by", "Ada"]).0, 0);
    let added = host.command(&folder, &["silence", "add", "target=~n.s", "--for", "1h", "--by", "Ada"]);
    assert!(added.1.contains("1 open alert silenced now"), "{added:?}");
    until("it is silenced", || nas(&host), |nas| nas["silencedBy"].is_string() && nas["acknowledged"]["by"] == "Ada");
    host.kill();
    let host = Host::start(&folder, &config);
    let after = nas(&host);
    for field in ["since", "id", "message"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert!(after["silencedBy"].is_string() && after["acknowledged"]["by"] == "Ada", "{after}");
    let (_, listed, _) = host.command(&folder, &["silence", "list"]);
    let silence = listed.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!(host.command(&folder, &["silence", "end", &silence]).1.trim(), format!("silence {silence} is over"));
    until("nothing silences it", || nas(&host), |nas| nas["silencedBy"].is_null());

    healthy.store(true, Ordering::Relaxed);
    until("both are over", || states(&host), |states| *states == ["nas resolved", "shop resolved"]);
    let over = alerts(&host, "resolved");
    assert!(over.iter().all(|alert| alert["resolution"] == "recovered" && alert["resolvedAt"].is_string()), "{over:?}");
    let (code, _, why) = host.command(&folder, &["alerts", "ack", id]);
    assert!(code == 1 && why.contains("is over"), "{why}");
}

#[test]
fn an_alert_is_shown_with_the_text_of_the_last_report() {
    let (_keep, folder) = folder();
    let count = AtomicU32::new(0);
    let counted: Answer = Arc::new(move |_| {
        let count = count.fetch_add(1, Ordering::Relaxed);
        ok(json!([{ "name": "db", "healthy": false, "errorMessage": format!("{count} rows are lost") }]).to_string())
    });
    let server = Server::start(vec![("/nas", counted)]);
    let config = "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n";
    let host = Host::start(&folder, &format!("{config}{}", target("nas", &server.url("/nas"), "")));
    until("it fires", || states(&host), |states| *states == ["nas firing"]);
    let rows = |host: &Host| {
        let message = alerts(host, "firing")[0]["message"].as_str().unwrap().to_owned();
        message.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    let first = rows(&host);
    until("later texts are shown", || rows(&host), |rows| *rows > first + 2);
}

#[test]
fn conditions_that_cannot_hold_are_refused_with_the_reason() {
    let (_keep, folder) = folder();
    let host = Host::start(&folder, "");
    for (arguments, expected) in [
        (vec!["silence", "add", "nas", "--for", "1h"], "\"nas\" is not a condition"),
        (vec!["silence", "add", "host=nas", "--for", "1h"], "unknown attribute \"host\""),
        (vec!["silence", "add", "kind=~(", "--for", "1h"], "the regular expression \"(\" cannot be used"),
        (vec!["silence", "add", "target=a", "--for", "9000h"], "(366 days)"),
        (vec!["silence", "end", "nothing"], "there is no silence \"nothing\""),
        (vec!["alerts", "ack", "0123456789abcdef"], "there is no alert"),
    ] {
        let (code, _, why) = host.command(&folder, &arguments);
        assert!(code == 1 && why.contains(expected), "{arguments:?}: {code} {why}");
    }
}
