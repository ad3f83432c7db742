//! A channel that is corrected after its notifications have waited.

use crate::notifying::{deliveries, switched, webhook};
use crate::operating::target;
use crate::receiver::Receiver;
use crate::support::{Host, Server, TOKEN, folder, get, ok, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_corrected_channel_hears_what_still_fires_and_once_what_ended() {
    correct_a_channel(|host, folder, config| {
        Host::configure(folder, config);
        host
    });
}

#[test]
fn a_channel_that_is_corrected_while_the_host_is_down_hears_the_same() {
    correct_a_channel(|host, folder, config| {
        host.kill();
        Host::start(folder, config)
    });
}

fn correct_a_channel(correct: impl FnOnce(Host, &Path, &str) -> Host) {
    let (_keep, folder) = folder();
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.join(name));
    let routes = [("/one", &one), ("/two", &two), ("/three", &three)];
    let server = Server::start(routes.map(|(path, file)| (path, switched(file, "path"))).into());
    let receiver = Receiver::start(Arc::new(|_, received| {
        let unknown = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
        Some(if received.path == "/right" { ok("ok") } else { unknown })
    }));
    let targets = ["one", "two", "three"].map(|id| target(id, &server.url(&format!("/{id}")), "")).concat();
    let config = |path: &str| {
        format!(
            "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{targets}{}[[route]]\n\
             channels = [\"ops\"]\ngroup_wait = \"0s\"\ngroup_interval = \"0s\"\n",
            webhook(&receiver.url(path))
        )
    };
    let host = Host::start(&folder, &config("/wrong"));
    let made = |count: usize| until("a notification", || deliveries(&host, "channel=ops").len(), |seen| *seen == count);
    fs::write(&one, "").unwrap();
    made(1);
    let is_refused = |all: &Vec<Value>| all.iter().any(|found| found["error"].to_string().contains("404"));
    until("it is refused", || deliveries(&host, "state=waiting"), is_refused);
    fs::remove_file(&one).unwrap();
    made(2);
    fs::write(&two, "").unwrap();
    made(3);
    fs::remove_file(&two).unwrap();
    made(4);
    fs::write(&three, "").unwrap();
    made(5);
    let host = correct(host, &folder, &config("/right"));
    let delivered = || deliveries(&host, "state=delivered");
    until("what is true is delivered", delivered, |all| all.len() == 2);
    assert_eq!(deliveries(&host, "state=waiting"), Vec::<Value>::new());
    let told: Vec<Value> = receiver.all().iter().filter(|told| told.path == "/right").map(|told| told.json()).collect();
    let alerts = |told: &Value| -> Vec<String> {
        let word =
            |alert: &Value| format!("{} {}", alert["event"].as_str().unwrap(), alert["targetId"].as_str().unwrap());
        told["alerts"].as_array().unwrap().iter().map(word).collect()
    };
    assert_eq!(
        told.iter().map(alerts).collect::<Vec<_>>(),
        [vec!["resolved one", "resolved two"], vec!["firing three"]]
    );
    let replaced = deliveries(&host, "state=replaced");
    assert_eq!(replaced.len(), 3, "{replaced:?}");
    assert!(replaced[0]["error"].as_str().unwrap().contains("later notifications"), "{replaced:?}");
    let retry = host.command(&folder, &["channel", "retry", &replaced[0]["number"].to_string()]);
    assert!(retry.0 == 1 && retry.2.contains("was replaced by later ones"), "{retry:?}");
    let (_, page) = get(&host.api, "/channels", Some(TOKEN));
    assert!(page.contains("replaced"), "{page}");
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_channel_for_which_too_much_waited_is_notified_again_once_it_is_back() {
    let (_keep, folder) = folder();
    let names: Vec<String> = (0..110).map(|number| format!("d{number:03}")).collect();
    let items: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}","healthy":false}}"#)).collect();
    let body = format!("[{}]", items.join(","));
    let server = Server::start(vec![("/many", Arc::new(move |_| ok(&body)))]);
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = is_open.clone();
    let receiver = Receiver::start(Arc::new(move |_, _| {
        let closed = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec();
        Some(if opened.load(Ordering::SeqCst) { ok("ok") } else { closed })
    }));
    let target = target("many", &server.url("/many"), "");
    let config = |channel: &str| {
        format!(
            "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n[alerts]\nstartup_grace = \"0s\"\n{target}{channel}"
        )
    };
    // More groups than that of one route would be one notification.
    let route = |number: usize| {
        format!(
            "[[route]]\nchannels = [\"ops\"]\ngroup_by = [\"dependency\"]\nmatch = {{ dependency = \"=~d{number:02}.\" }}\n\
             group_wait = \"0s\"\ngroup_interval = \"0s\"\n"
        )
    };
    let channel = webhook(&receiver.url("/")) + &(0..11).map(route).collect::<String>();
    let host = Host::start(&folder, &config(&channel));
    let waiting = || host.get("/api/v1/channels")["channels"][0]["waiting"].as_u64();
    until("too much waits", waiting, |count| count.is_some_and(|count| count >= 100));
    Host::configure(&folder, &config(""));
    until("the channel is gone", waiting, Option::is_none);
    is_open.store(true, Ordering::SeqCst);
    let before = receiver.alerts().len();
    Host::configure(&folder, &config(&channel));
    let told = || -> BTreeSet<String> {
        let alerts = receiver.alerts().split_off(before).into_iter();
        alerts.filter_map(|alert| alert["dependency"].as_str().map(str::to_owned)).collect()
    };
    until("the channel is notified of all that fires", || told().len(), |count| *count == names.len());
    assert_eq!(host.terminate(), 0);
}

#[test]
fn a_corrected_channel_hears_of_alerts_that_a_refused_message_only_counted() {
    for is_down in [false, true] {
        let (_keep, folder) = folder();
        let items: Vec<String> = (0..150).map(|number| format!(r#"{{"name":"d{number}","healthy":false}}"#)).collect();
        let body = format!("[{}]", items.join(","));
        let server = Server::start(vec![("/many", Arc::new(move |_| ok(&body)))]);
        let receiver = Receiver::start(Arc::new(|_, received| {
            let refused = b"HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 0\r\n\r\n".to_vec();
            Some(if received.path == "/right" { ok("ok") } else { refused })
        }));
        let target = target("many", &server.url("/many"), "");
        let config = |path: &str| {
            let channel = webhook(&receiver.url(path));
            format!(
                "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{target}{channel}[[route]]\n\
                 channels = [\"ops\"]\ngroup_wait = \"1s\"\ngroup_interval = \"1s\"\n"
            )
        };
        let mut host = Host::start(&folder, &config("/wrong"));
        until("it is refused", || deliveries(&host, "state=undeliverable").len(), |count| *count == 1);
        if is_down {
            host.kill();
            host = Host::start(&folder, &config("/right"));
        } else {
            Host::configure(&folder, &config("/right"));
        }
        until("what was lost arrives", || deliveries(&host, "state=delivered").len(), |count| *count == 1);
        let told = receiver.all().iter().find(|told| told.path == "/right").unwrap().json();
        let listed = told["alerts"].as_array().unwrap().len();
        assert_eq!((listed, told["omitted"].as_u64()), (100, Some(50)), "{is_down}");
        assert_eq!(host.terminate(), 0);
    }
}

#[test]
fn an_alert_that_was_acknowledged_before_its_channel_could_be_reached_is_not_sent_nor_its_end() {
    let (_keep, folder) = folder();
    let [one, two] = ["one", "two"].map(|name| folder.join(name));
    let server = Server::start(vec![("/one", switched(&one, "path")), ("/two", switched(&two, "path"))]);
    let receiver = Receiver::patient();
    let targets = ["one", "two"].map(|id| target(id, &server.url(&format!("/{id}")), "")).concat();
    let config = |url: &str| {
        let channel = webhook(url);
        format!(
            "[scheduler]\nmin_interval = \"200ms\"\nbase_interval = \"200ms\"\n{targets}{channel}[[route]]\n\
             channels = [\"ops\"]\ngroup_wait = \"0s\"\ngroup_interval = \"0s\"\n"
        )
    };
    // Nothing listens there.
    let host = Host::start(&folder, &config("http://127.0.0.1:1/"));
    fs::write(&one, "").unwrap();
    let tried = || deliveries(&host, "channel=ops").first().and_then(|first| first["attempts"].as_u64());
    until("it was tried", tried, |attempts| attempts.is_some_and(|attempts| attempts > 0));
    let open = || host.get("/api/v1/alerts?state=open")["alerts"].as_array().unwrap().clone();
    let id = open().iter().find(|alert| alert["name"] == "one").unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(host.command(&folder, &["alerts", "ack", &id]).0, 0);
    until("it is withdrawn", || deliveries(&host, "state=replaced").len(), |count| *count == 1);
    Host::configure(&folder, &config(&receiver.url("/")));
    fs::write(&two, "").unwrap();
    until("the other one is notified", || receiver.alerts().len(), |count| *count == 1);
    fs::remove_file(&one).unwrap();
    until("the first one is over", open, |open| open.iter().all(|alert| alert["name"] != "one"));
    fs::remove_file(&two).unwrap();
    until("the end of the other one is notified", || receiver.alerts().len(), |count| *count == 2);
    assert!(receiver.alerts().iter().all(|alert| alert["targetId"] == "two"), "{:?}", receiver.alerts());
    assert_eq!(host.terminate(), 0);
}
