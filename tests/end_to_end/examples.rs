//! The examples of the SDK, as an author would use them: recorded against real servers, and replayed.

use crate::receiver::Receiver;
use crate::support::{Server, folder, ok, output};
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The key of the signed webhook.
const KEY: &str = "a key that only two parties have";

/// A file with a secret, as an option of the command line.
fn secret(folder: &std::path::Path, name: &str, value: &str) -> String {
    fs::write(folder.join(name), value).unwrap();
    format!("{name}=file:{}", folder.join(name).display())
}

#[test]
fn a_log_in_with_a_cookie_is_recorded_and_replayed_with_three_polls() {
    let (_keep, folder) = folder();
    // A session ends after two requests, so that the third poll logs in again.
    let (used, logins) = (AtomicUsize::new(2), Arc::new(AtomicUsize::new(0)));
    let count = logins.clone();
    let server = Receiver::start(Arc::new(move |_, received| {
        let number = count.load(Ordering::Relaxed);
        if received.path == "/login" {
            let is_right = received.body == b"user=reader&password=p%40ss%20word%26";
            used.store(if is_right { 0 } else { 2 }, Ordering::Relaxed);
            count.store(number + 1, Ordering::Relaxed);
            let cookie = format!("set-cookie: session=secret-cookie-{}; Path=/; HttpOnly", number + 1);
            return Some(format!("HTTP/1.1 303 See Other\r\n{cookie}\r\ncontent-length: 0\r\n\r\n").into_bytes());
        }
        let is_known = received.header("cookie") == format!("session=secret-cookie-{number}");
        if received.path == "/logout" {
            return Some(if is_known { ok("bye") } else { b"HTTP/1.1 401 Unauthorized\r\n\r\n".to_vec() });
        }
        Some(match used.fetch_add(1, Ordering::Relaxed) < 2 && is_known {
            true => ok(r#"{"database": true, "queue": false}"#),
            false => b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec(),
        })
    }));
    fs::write(folder.join("plugin.wasm"), tests::guests::SDK_LOG_IN).unwrap();
    fs::create_dir(folder.join("recordings")).unwrap();
    let (password, url) = (secret(&folder, "password", "p@ss word&"), server.url("/"));
    let mut arguments = vec!["poll", "--plugin", "plugin.wasm", "--url", &url, "--settings", r#"{"user":"reader"}"#];
    arguments.extend(["--secret", &password, "--polls", "3", "--record", "recordings/three.json", "--json"]);
    let (code, said, why) = output(&folder, &arguments);
    assert_eq!(code, 2, "{said}{why}");
    let polls: Vec<Value> = serde_json::from_str(&said).unwrap();
    let requests: Vec<u64> = polls.iter().map(|poll| poll["requests"].as_u64().unwrap()).collect();
    assert_eq!(requests, [2, 1, 3], "a log-in, a session that is kept, and one that has expired");
    assert!(polls.iter().all(|poll| poll["dependencies"][1]["status"] == "critical"), "{said}");
    assert_eq!(logins.load(Ordering::Relaxed), 2);
    let last = server.all().pop().unwrap();
    assert_eq!((&*last.path, &*last.header("cookie")), ("/logout", "session=secret-cookie-2"), "it logs out");
    let recorded = fs::read_to_string(folder.join("recordings/three.json")).unwrap();
    assert!(
        !recorded.contains("secret-cookie") && !recorded.contains("p@ss") && !recorded.contains("p%40ss"),
        "{recorded}"
    );
    let test = |more: &[&str]| output(&folder, &[&["plugin", "test", "plugin.wasm"], more].concat());
    assert_eq!(test(&["--update"]).0, 0, "{:?}", test(&[]));
    let (code, said, why) = test(&[]);
    assert_eq!(code, 0, "{said}{why}");
    // Each poll has its golden report.
    let golden = folder.join("recordings/three.report.json");
    let mut reports: Vec<Value> = serde_json::from_str(&fs::read_to_string(&golden).unwrap()).unwrap();
    reports[1]["dependencies"][1]["status"] = "ok".into();
    fs::write(&golden, serde_json::to_string(&reports).unwrap()).unwrap();
    let (code, said, _) = test(&[]);
    let expected = r#"[1].dependencies[1] ("queue").status is "critical", expected "ok""#;
    assert!(code == 1 && said.contains(expected), "{said}");
}

#[test]
fn a_counter_keeps_its_value_from_poll_to_poll() {
    let (_keep, folder) = folder();
    let errors = Arc::new(AtomicUsize::new(100));
    let server = Server::start(vec![(
        "/",
        Arc::new(move |_| ok(format!("{{\"errors\": {}}}", errors.fetch_add(1_000_000, Ordering::Relaxed)))),
    )]);
    fs::write(folder.join("plugin.wasm"), tests::guests::SDK_COUNTER).unwrap();
    let url = server.url("/");
    let arguments = ["poll", "--plugin", "plugin.wasm", "--url", &url, "--polls", "2", "--json"];
    let (code, said, why) = output(&folder, &arguments);
    assert_eq!(code, 1, "{said}{why}");
    let polls: Vec<Value> = serde_json::from_str(&said).unwrap();
    let status = |poll: usize| polls[poll]["dependencies"][0]["status"].as_str().unwrap().to_owned();
    assert_eq!([status(0), status(1)], ["unknown", "warning"], "{said}");
    assert_eq!(polls[1]["samples"][0]["dependency"], "errors", "{said}");
}

#[test]
fn a_webhook_is_signed_with_a_key_that_the_plugin_does_not_see() {
    let (_keep, folder) = folder();
    let receiver = Receiver::patient();
    fs::write(folder.join("plugin.wasm"), tests::guests::SDK_SIGNED_WEBHOOK).unwrap();
    let (key, url) = (secret(&folder, "key", KEY), receiver.url("/hook"));
    let (code, said, why) = output(&folder, &["plugin", "send", "plugin.wasm", "--url", &url, "--secret", &key]);
    assert_eq!(code, 0, "{said}{why}");
    let received = receiver.all().remove(0);
    let mut expected = Hmac::<Sha256>::new_from_slice(KEY.as_bytes()).unwrap();
    expected.update(&received.body);
    let expected: String = expected.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(received.header("x-signature"), format!("sha256={expected}"));
}

#[test]
fn the_others_describe_themselves() {
    let (_keep, folder) = folder();
    for (component, expected) in
        [(tests::guests::SDK_QUEUE_DEPTH, "queue-depth"), (tests::guests::SDK_NOTIFIER, "pager")]
    {
        fs::write(folder.join("plugin.wasm"), component).unwrap();
        let (code, said, why) = output(&folder, &["plugin", "inspect", "plugin.wasm"]);
        assert!(code == 0 && said.contains(expected), "{said}{why}");
    }
}

#[test]
fn several_alerts_of_which_some_are_refused_are_sent_recorded_and_replayed() {
    let (_keep, folder) = folder();
    let receiver = Receiver::start(Arc::new(|_, received| {
        let number = received.json()["text"].as_str()?.strip_prefix("Database ")?.chars().next()?;
        let (status, more) = match number {
            '2' => ("422 Unprocessable", ""),
            '4' => ("429 Too Many", "retry-after: 2\r\n"),
            _ => ("202 Accepted", ""),
        };
        Some(format!("HTTP/1.1 {status}\r\n{more}content-length: 0\r\n\r\n").into_bytes())
    }));
    fs::write(folder.join("plugin.wasm"), tests::guests::SDK_NOTIFIER).unwrap();
    fs::create_dir(folder.join("recordings")).unwrap();
    let url = receiver.url("/");
    let mut arguments = vec!["plugin", "send", "plugin.wasm", "--url", &url, "--event", "firing", "--alerts", "5"];
    arguments.extend(["--record", "recordings/several.json"]);
    let (code, _, why) = output(&folder, &arguments);
    assert!(code == 1 && why.contains("the receiver refuses the alert"), "{why}");
    let lengths: Vec<usize> = receiver.all().iter().map(|received| received.body.len()).collect();
    assert!(
        lengths.len() == 4 && lengths[1] > 1_000 && lengths[2] < 400,
        "the fifth is for the next attempt: {lengths:?}"
    );
    let test = |more: &[&str]| output(&folder, &[&["plugin", "test", "plugin.wasm"], more].concat());
    assert_eq!(test(&["--update"]).0, 0);
    let (code, said, why) = test(&[]);
    assert_eq!(code, 0, "{said}{why}");
    let golden = fs::read_to_string(folder.join("recordings/several.report.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    assert_eq!(golden["progress"].as_array().unwrap().len(), 3, "{golden}");
}
