//! Notifications: from a report to the receiver, with retries and routes, and over kills.

use crate::operating::target;
use crate::receiver::Receiver;
use crate::support::{Answer, Host, Server, TOKEN, always, folder, get, ok, output, preloaded, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The header that identifies a notification over its attempts.
const KEY: &str = "idempotency-key";

/// The titles of the received notifications, in order.
fn titles(receiver: &Receiver) -> Vec<String> {
    receiver.all().iter().map(|received| received.json()["title"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A server with one dependency, which is healthy until the file exists. Its error names a secret.
pub(crate) fn switched(file: &Path, secret: &str) -> Answer {
    let (file, broken) = (file.to_owned(), format!("refused ${{secret.{secret}}}"));
    Arc::new(move |_| match file.exists() {
        false => ok(r#"[{"name":"db","healthy":true}]"#),
        true => ok(format!(r#"[{{"name":"db","healthy":false,"errorMessage":"{broken}"}}]"#)),
    })
}

/// A target, a channel at a URL, and a route to it that notifies at once.
fn config(server: &Server, channel: &str) -> String {
    format!(
        "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{}{channel}[[route]]\nchannels = [\"ops\"]\n\
         group_wait = \"0s\"\ngroup_interval = \"0s\"\n",
        target("shop", &server.url("/shop"), "")
    )
}

pub(crate) fn webhook(url: &str) -> String {
    format!("[[channel]]\nname = \"ops\"\nkind = \"webhook\"\nurl = \"{url}\"\n")
}

pub(crate) fn deliveries(host: &Host, query: &str) -> Vec<Value> {
    host.get(&format!("/api/v1/deliveries?{query}"))["deliveries"].as_array().unwrap().clone()
}

#[test]
fn an_alert_is_notified_with_a_secret_in_the_path_that_no_surface_shows() {
    let (_keep, folder) = folder();
    let broken = folder.join("broken");
    let (server, receiver) = (Server::start(vec![("/shop", switched(&broken, "path"))]), Receiver::patient());
    let secret = "T00/B00/abcdefgh";
    fs::write(folder.join("slack"), secret).unwrap();
    let file = folder.join("slack").display().to_string();
    let channel = format!(
        "[[channel]]\nname = \"ops\"\nkind = \"slack\"\nurl = \"{}\"\nsecrets = {{ path = {{ file = \"{file}\" }} }}\n",
        receiver.url("/services/${secret.path}")
    );
    let host = Host::start(&folder, &config(&server, &channel));
    let tested = host.command(&folder, &["channel", "test", "ops"]);
    assert_eq!((tested.0, tested.1.trim()), (0, "channel ops took a test notification"), "{tested:?}");
    fs::write(&broken, "").unwrap();
    let titled = |titles: &[&str]| {
        let texts: Vec<String> = receiver.all().iter().map(|received| received.json()["text"].to_string()).collect();
        titles.iter().all(|title| texts.iter().any(|text| text.contains(title)))
    };
    until("it is notified", || titled(&["Test: channel ops", "Critical: db (shop)"]), |is_there| *is_there);
    fs::remove_file(&broken).unwrap();
    until("its end is notified", || titled(&["Resolved: db (shop)"]), |is_there| *is_there);
    for received in receiver.all() {
        assert_eq!(received.path, format!("/services/{secret}"));
        // The text of the target is no reference to the secret of the channel.
        assert!(!received.json().to_string().contains(secret), "{received:?}");
    }
    let (_, explained, _) = host.command(&folder, &["route", "explain", "shop/db"]);
    assert!(explained.contains("it matches") && explained.contains("notified: ops"), "{explained}");
    let delivered = |all: &Vec<Value>| all.len() == 2 && all.iter().all(|found| found["state"] == "delivered");
    until("both are delivered", || deliveries(&host, "channel=ops"), delivered);
    let (_, listed, _) = host.command(&folder, &["channel", "list"]);
    assert!(listed.contains("slack") && listed.contains("ops"), "{listed}");
    let (_, page) = get(&host.api, "/channels", Some(TOKEN));
    assert!(page.contains("/services/${secret.path}"), "{page}");
    let shown = [page, listed, host.get("/api/v1/channels").to_string(), host.log.lock().unwrap().clone()];
    assert!(shown.iter().all(|text| !text.contains("abcdefgh")), "{shown:?}");
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_notification_is_tried_again_in_order_and_given_up_when_it_is_refused() {
    let (_keep, folder) = folder();
    let broken = folder.join("broken");
    let server = Server::start(vec![("/shop", switched(&broken, "path"))]);
    // The first attempt is refused for a minute, longer than this test takes to hurry it. The second one ends without
    // an answer, and the third one is taken.
    let receiver = Receiver::start(Arc::new(|place, received| {
        let late = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 60\r\ncontent-length: 4\r\n\r\nlate";
        let bad = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 10\r\n\r\nno_payload";
        match place {
            0 => Some(late.to_vec()),
            1 => None,
            _ if received.json()["title"].as_str().is_some_and(|title| title.starts_with("Resolved")) => {
                Some(bad.to_vec())
            }
            _ => Some(ok("ok")),
        }
    }));
    fs::write(&broken, "").unwrap();
    let host = Host::start(&folder, &config(&server, &webhook(&receiver.url("/hook"))));
    until("the first attempt", || titles(&receiver).len(), |count| *count > 0);
    let waiting = || deliveries(&host, "state=waiting");
    let found = until("it waits", waiting, |all| all.first().is_some_and(|found| found["attempts"] == 1));
    assert!(found[0]["error"].as_str().unwrap().contains("503"), "{found:?}");
    fs::remove_file(&broken).unwrap();
    // Not later than its end: the order of one alert is kept.
    let over = || deliveries(&host, "state=undeliverable");
    let number = &found[0]["number"];
    let retry = number.to_string();
    for attempts in 1..3 {
        let is_next = |next: &Value| next["attempts"] == attempts && next["number"] == *number;
        let is_seen = |all: &Vec<Value>| all.is_empty() || all.first().is_some_and(is_next);
        // A slow machine may come when the host has tried again.
        if until("the next attempt waits", waiting, is_seen).is_empty() {
            break;
        }
        let (code, _, why) = host.command(&folder, &["channel", "retry", &retry]);
        assert!(code == 0 || why.contains("was delivered already"), "{why}");
    }
    let lost = until("the end is refused", over, |all| !all.is_empty());
    assert!(lost[0]["error"].as_str().unwrap().contains("no_payload"), "{lost:?}");
    let critical = "Critical: db (shop)";
    assert_eq!(titles(&receiver), [critical, critical, critical, "Resolved: db (shop)"]);
    let keys: Vec<String> = receiver.all().into_iter().map(|received| received.header(KEY)).collect();
    assert!(keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3] && !keys[0].is_empty(), "{keys:?}");
    let alert = || host.get("/api/v1/alerts?state=firing")["alerts"].clone();
    let found = until("the channel is an alert", alert, |all| all.as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!((&found[0]["class"], &found[0]["name"]), (&"channel".into(), &"ops".into()), "{found}");
    let events = host.get("/api/v1/event-log?event=delivery:failed")["events"].clone();
    let given_up: Vec<bool> =
        events.as_array().unwrap().iter().map(|event| event["event"]["givenUp"] == true).collect();
    assert!(given_up.contains(&true) && given_up.contains(&false), "{events}");
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_recorded_notification_is_replayed_compared_and_measured() {
    let (_keep, folder) = folder();
    let receiver = Receiver::patient();
    let webhook = builtin::ALL.iter().find(|plugin| plugin.kind == "webhook").unwrap();
    fs::write(folder.join("hook.wasm"), webhook.component).unwrap();
    fs::create_dir(folder.join("recordings")).unwrap();
    let url = receiver.url("/hooks/${secret.path}");
    fs::write(folder.join("path"), "a-secret-path").unwrap();
    let (recorded, golden) = ("recordings/firing.json", folder.join("recordings/firing.report.json"));
    let secret = format!("path=file:{}", folder.join("path").display());
    let send =
        ["plugin", "send", "hook.wasm", "--event", "firing", "--record", recorded, "--url", &url, "--secret", &secret];
    let (code, out, why) = output(&folder, &send);
    assert!(code == 0 && out.contains("it was taken: 1 request, "), "{out}{why}");
    let received = &receiver.all()[0];
    assert_eq!(
        (received.path.as_str(), &received.json()["title"]),
        ("/hooks/a-secret-path", &"Critical: Database (Shop)".into())
    );
    let text = fs::read_to_string(folder.join(recorded)).unwrap();
    assert!(text.contains("\"event\": \"firing\"") && !text.contains("a-secret-path"), "{text}");
    let test = |more: &[&str]| output(&folder, &[&["plugin", "test", "hook.wasm"], more].concat());
    assert_eq!(test(&["--update"]).0, 0);
    assert_eq!(fs::read_to_string(&golden).unwrap(), "{\n  \"taken\": true\n}\n");
    let (code, out, why) = test(&[]);
    assert!(code == 0 && out.contains("ok       firing"), "{out}{why}");
    let (code, out, why) = output(&folder, &["plugin", "bench", "hook.wasm", "--polls", "5"]);
    assert!(code == 0 && out.contains("5 notifications over recordings/firing.json"), "{out}{why}");
    assert_eq!(receiver.all().len(), 1, "a replay sends nothing");
    // A plugin that sends another body than the recorded one fails its test.
    fs::write(folder.join(recorded), text.replace("Critical: Database", "Grave: Database")).unwrap();
    let (code, out, _) = test(&[]);
    assert!(code == 1 && out.contains("FAILED   firing"), "{out}");
}

/// The number of kills. More find more; each takes about a second.
fn kills() -> usize {
    std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

/// Answers are withheld while this is set.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.0.lock().unwrap() = is_closed;
        self.1.notify_all();
    }

    fn pass(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |is_closed| *is_closed).unwrap());
    }
}

#[test]
fn kills_lose_no_notification_and_repeat_only_the_last() {
    let (_keep, folder) = folder();
    let gate: Arc<Gate> = Arc::default();
    let passing = gate.clone();
    let receiver = Receiver::start(Arc::new(move |_, _| {
        passing.pass();
        Some(ok("ok"))
    }));
    // Each target breaks once and recovers once: more changes would be flapping.
    let names: Vec<String> = (0..kills().div_ceil(2)).map(|number| format!("t{number}")).collect();
    let path = |name: &String| -> &'static str { format!("/{name}").leak() };
    let server = Server::start(names.iter().map(|name| (path(name), switched(&folder.join(name), "path"))).collect());
    let targets: String = names.iter().map(|name| target(name, &server.url(path(name)), "")).collect();
    let config = format!(
        "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{targets}{}[[route]]\nchannels = [\"ops\"]\n\
         group_wait = \"0s\"\ngroup_interval = \"0s\"\n",
        webhook(&receiver.url("/hook"))
    );
    let mut host = Host::start(&folder, &config);
    let mut expected = Vec::new();
    for round in 0..kills() {
        let name = &names[round / 2];
        match round % 2 {
            0 => fs::write(folder.join(name), "").unwrap(),
            _ => fs::remove_file(folder.join(name)).unwrap(),
        }
        expected.push(format!("{}: db ({name})", if round % 2 == 0 { "Critical" } else { "Resolved" }));
        let (polls, received) = (server.count(path(name)), receiver.all().len());
        // The moment of the kill: after some polls, while the receiver has not answered yet, and after its answer.
        match round % 5 {
            3 => {
                gate.set(true);
                until("it is received", || receiver.all().len(), |count| *count > received);
                host.kill();
                gate.set(false);
            }
            4 => {
                until("it is received", || receiver.all().len(), |count| *count > received);
                host.kill();
            }
            more => {
                until("some polls", || server.count(path(name)), |count| *count >= polls + more);
                host.kill();
            }
        }
        host = Host::start(&folder, &config);
        let last = || titles(&receiver).last().cloned().unwrap_or_default();
        until("the receiver knows it", last, |last| Some(last) == expected.last());
    }
    assert_eq!(host.terminate(), 0);
    let all = receiver.all();
    let (mut keys, mut titles, mut doubled) = (BTreeSet::new(), Vec::new(), 0);
    for (place, received) in all.iter().enumerate() {
        if keys.insert(received.header(KEY)) {
            titles.push(received.json()["title"].as_str().unwrap().to_owned());
        } else {
            assert_eq!(
                all[place - 1].header(KEY),
                received.header(KEY),
                "a notification was repeated after another one"
            );
            doubled += 1;
        }
    }
    assert_eq!(titles, expected);
    eprintln!("{} kills: {} notifications, 0 lost, {doubled} doubled, in order", kills(), titles.len());
    assert!(doubled <= kills(), "{doubled}");
}

/// The key of the alert that a request to PagerDuty is about.
fn dedup_key(received: &crate::receiver::Received) -> String {
    received.json()["dedup_key"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn alerts_that_were_taken_or_refused_are_not_sent_again_after_a_kill() {
    let (_keep, folder) = folder();
    let broken = r#"[{"name":"a","healthy":false},{"name":"b","healthy":false},{"name":"c","healthy":false}]"#;
    let server = Server::start(vec![("/shop", always(ok(broken)))]);
    // The first alert is taken and the second one refused. The host is killed while the third one has no answer.
    let gate: Arc<Gate> = Arc::default();
    gate.set(true);
    let passing = gate.clone();
    let receiver = Receiver::start(Arc::new(move |place, _| match place {
        0 => Some(ok(r#"{"status":"success"}"#)),
        1 => Some(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\ninvalid".to_vec()),
        _ => {
            passing.pass();
            Some(ok(r#"{"status":"success"}"#))
        }
    }));
    fs::write(folder.join("key"), "an-integration-key").unwrap();
    let key = format!("{{ file = \"{}\" }}", folder.join("key").display());
    let channel = format!(
        "[[channel]]\nname = \"ops\"\nkind = \"pagerduty\"\nurl = \"{}\"\nsecrets = {{ routing_key = {key} }}\n",
        receiver.url("/")
    );
    // All alerts are in one notification.
    let config = config(&server, &channel).replace("group_wait = \"0s\"", "group_wait = \"1s\"");
    let host = Host::start(&folder, &config);
    until("the third alert is received", || receiver.all().len(), |count| *count == 3);
    host.kill();
    gate.set(false);
    let host = Host::start(&folder, &config);
    let over = until("it is over", || deliveries(&host, "state=undeliverable"), |all| all.len() == 1);
    let error = over[0]["error"].as_str().unwrap();
    assert!(error.starts_with("1 of 3 alerts refused: ") && error.contains("invalid"), "{error}");
    let channel = || host.get("/api/v1/channels")["channels"][0].clone();
    until("the channel has a problem", channel, |channel| channel["problem"].as_str().is_some_and(|why| why == error));
    let alerts = || host.get("/api/v1/alerts?state=firing")["alerts"].to_string();
    until("operators hear of it", alerts, |alerts| alerts.contains("1 of 3 alerts refused"));
    let keys: Vec<String> = receiver.all().iter().map(dedup_key).collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert_eq!(keys[2], keys[3], "only the alert without an answer is sent again");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 3, "{keys:?}");
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_configuration_with_wrong_channels_is_refused_with_its_places() {
    let (_keep, folder) = folder();
    let start = "[[target]]\nid = \"a\"\nkind = \"http\"\nurl = \"http://127.0.0.1:1/\"\n";
    let check = |more: &str| -> String {
        fs::write(folder.join("polliwog.toml"), format!("{start}{more}")).unwrap();
        let (code, out, why) = output(&folder, &["check"]);
        assert_ne!(code, 0, "{more}: {out}");
        format!("{out}{why}")
    };
    let channel = |kind: &str, more: &str| {
        format!("[[channel]]\nname = \"ops\"\nkind = \"{kind}\"\nurl = \"http://127.0.0.1:1/\"\n{more}")
    };
    for (more, expected) in [
        (channel("http", ""), "kind http polls targets: use it in a [[target]]"),
        (channel("ntfy", "settings = { topik = \"a\" }\n"), "topik"),
        (channel("telegram", "settings = { chat = \"1\" }\n"), "it needs the secret \"token\""),
        (channel("webhook", "settings = { template = \"{{ title\" }\n"), "polliwog.toml:9: "),
        (
            channel("webhook", "settings = { headers = { a = \"${secret.no}\" } }\n"),
            "settings: headers.a: there is no secret \"no\"",
        ),
        (
            channel("webhook", "[[route]]\nmatch = { target = \"~a\" }\nchannels = [\"ops\"]\n"),
            "\"~a\" begins with ~, which is no operator",
        ),
        (channel("webhook", "[[route]]\nchannels = [\"osp\"]\n"), "there is no [[channel]] \"osp\""),
        (
            channel("webhook", "[[route]]\nmatch = { target = \"b\" }\nchannels = [\"ops\"]\n"),
            "polliwog.toml:9: route \"route-1\": no target meets target=b: correct it, or use --allow-missing-targets",
        ),
        (start.replace("\"a\"", "\"b\"").replace("\"http\"", "\"slack\""), "kind slack sends notifications"),
    ] {
        let said = check(&more);
        assert!(said.contains(expected), "{more}: {said}");
    }
    let later = "[[route]]\nmatch = { target = \"b\" }\nchannels = [\"ops\"]\n";
    fs::write(folder.join("polliwog.toml"), format!("{start}{}", channel("webhook", later))).unwrap();
    let (code, said, _) = output(&folder, &["check", "--allow-missing-targets"]);
    assert!(code == 0 && said.contains("if such a target comes later (a warning)"), "{said}");
}

#[test]
fn a_receiver_that_misbehaves_costs_only_its_own_notifications() {
    let (_keep, folder) = folder();
    let broken = folder.join("broken");
    let server = Server::start(vec![("/shop", switched(&broken, "path"))]);
    let good = Receiver::patient();
    let huge = Receiver::start(Arc::new(|_, _| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 100 << 20);
        Some([head.into_bytes(), vec![b'x'; 20 << 20]].concat())
    }));
    let away = Receiver::start(Arc::new(|_, _| {
        Some(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n".to_vec())
    }));
    let hour = Receiver::start(Arc::new(|_, _| {
        Some(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 86400\r\ncontent-length: 0\r\n\r\n".to_vec())
    }));
    let mute = Receiver::start(Arc::new(|_, _| {
        loop {
            thread::park();
        }
    }));
    let channels = [("good", &good), ("huge", &huge), ("away", &away), ("hour", &hour), ("mute", &mute)];
    let channel = |(name, receiver): (&str, &Receiver)| {
        let url = receiver.url("/");
        format!("[[channel]]\nname = \"{name}\"\nkind = \"webhook\"\nurl = \"{url}\"\ntimeout = \"1s\"\n")
    };
    let names = channels.map(|(name, _)| format!("{name:?}")).join(", ");
    let text = format!(
        "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{}{}[[route]]\nchannels = [{names}]\ngroup_wait = \"0s\"\n\
         group_interval = \"0s\"\n",
        target("shop", &server.url("/shop"), ""),
        channels.map(channel).concat()
    );
    fs::write(&broken, "").unwrap();
    let host = Host::start(&folder, &text);
    until("the good one gets it", || titles(&good).len(), |count| *count == 1);
    let state = || host.get("/api/v1/channels")["channels"].as_array().unwrap().clone();
    let problem = |all: &[Value], name: &str| {
        all.iter().find(|channel| channel["name"] == name).unwrap()["problem"].as_str().unwrap_or_default().to_owned()
    };
    let expected = [("huge", "longer than"), ("away", "redirect"), ("hour", "429"), ("mute", "timed out")];
    let all = until("the others say why", state, |all| expected.iter().all(|(name, _)| !problem(all, name).is_empty()));
    for (name, why) in expected {
        assert!(problem(&all, name).contains(why), "{name}: {}", problem(&all, name));
    }
    assert_eq!(problem(&all, "good"), "");
    let status = host.command(&folder, &["status"]).1;
    assert!(status.contains("channels    5\n") && status.contains(" huge does not deliver, "), "{status}");
    assert!(!status.contains(" good does not"), "{status}");
    let waiting = deliveries(&host, "state=waiting&channel=hour");
    assert!(waiting.last().unwrap()["nextAttempt"].is_string(), "{waiting:?}");
    let polls = server.count("/shop");
    until("polls go on", || server.count("/shop"), |count| *count > polls + 3);
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_database_that_takes_nothing_is_notified_and_loses_no_alert() {
    let (_keep, folder) = folder();
    let (broken, full) = (folder.join("broken"), folder.join("full"));
    let library = preloaded(&folder, "faults.c");
    let (server, receiver) = (Server::start(vec![("/shop", switched(&broken, "path"))]), Receiver::patient());
    let config = config(&server, &webhook(&receiver.url("/hook")));
    let during = full.display().to_string();
    let environment =
        [("LD_PRELOAD", &*library), ("FAULT_KIND", "full"), ("FAULT_EVERY", "1"), ("FAULT_WHILE", &*during)];
    let host = Host::start_with(&folder, &config, &environment);
    until("polls", || server.count("/shop"), |count| *count > 0);
    fs::write(&full, "").unwrap();
    fs::write(&broken, "").unwrap();
    // After the start, both may be in one notification.
    let shown = |alert: Value| {
        let name = alert["dependency"].as_str().or(alert["title"].as_str()).unwrap_or_default();
        format!("{} {name}", alert["event"].as_str().unwrap_or_default())
    };
    let notified = || receiver.alerts().into_iter().map(shown).collect::<Vec<_>>();
    let has = |found: &[String], wanted: &str| found.iter().any(|found| found == wanted);
    let both = ["firing db", "firing the database does not take results"];
    until("both are notified", notified, |found| both.iter().all(|wanted| has(found, wanted)));
    fs::remove_file(&full).unwrap();
    until("its end is notified", notified, |found| has(found, "resolved the database does not take results"));
    // The alert of the target is on disk now, and is not notified again after a kill.
    let stored = || deliveries(&host, "state=delivered").len();
    until("the deliveries are stored", stored, |count| *count == titles(&receiver).len());
    let before = titles(&receiver);
    host.kill();
    let host = Host::start(&folder, &config);
    let firing = || host.get("/api/v1/alerts?state=firing")["total"].clone();
    until("the alert still fires", firing, |total| *total == 1);
    assert_eq!(titles(&receiver), before);
    assert_eq!(host.terminate(), 0);
}

#[test]
fn an_alert_about_a_channel_outlives_a_restart_and_ends_with_its_cause() {
    let (_keep, folder) = folder();
    let (broken, good) = (folder.join("broken"), folder.join("good"));
    let server = Server::start(vec![("/shop", switched(&broken, "path"))]);
    let is_good = good.clone();
    let receiver = Receiver::start(Arc::new(move |_, _| match is_good.exists() {
        true => Some(ok("ok")),
        false => Some(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec()),
    }));
    let config = config(&server, &webhook(&receiver.url("/hook")));
    fs::write(&broken, "").unwrap();
    let host = Host::start(&folder, &config);
    let about = |host: &Host, state: &str| {
        let found = host.get(&format!("/api/v1/alerts?state={state}"))["alerts"].clone();
        found.as_array().unwrap().iter().any(|alert| alert["class"] == "channel" && alert["name"] == "ops")
    };
    until("it is an alert", || about(&host, "firing"), |is_there| *is_there);
    host.kill();
    let host = Host::start(&folder, &config);
    let attempts = receiver.all().len();
    until("it is tried again", || receiver.all().len(), |count| *count > attempts);
    assert!(about(&host, "firing"), "the channel still fails");
    host.kill();
    // It delivers after this start: the wait of the last failure may not be over yet.
    fs::write(&good, "").unwrap();
    let host = Host::start(&folder, &config);
    assert_eq!(host.command(&folder, &["channel", "test", "ops"]).0, 0);
    until("it is over", || about(&host, "resolved"), |is_there| *is_there);
    assert_eq!(host.terminate(), 0);

    // Fails again, and is removed from the file while the host is off.
    fs::remove_file(&good).unwrap();
    let host = Host::start(&folder, &config);
    assert_eq!(host.command(&folder, &["channel", "test", "ops"]).0, 1);
    fs::remove_file(&broken).unwrap();
    until("it is an alert again", || about(&host, "firing"), |is_there| *is_there);
    host.kill();
    let without = target("shop", &server.url("/shop"), "");
    let host = Host::start(&folder, &without);
    until("it is over with the channel", || about(&host, "firing"), |is_there| !*is_there);
    assert_eq!(host.terminate(), 0);
}
