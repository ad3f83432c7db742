use super::*;
use polliwog_sdk::testing::{Recording, poll, target};
use polliwog_sdk::{CallError, Info, NoSettings, Poller, Report};
use serde_json::{Value, json};

/// Only connects.
struct Finder;

impl Poller for Finder {
    type Settings = NoSettings;
    const INFO: Info = Info { kind: "finder", ..Info::SERVICE };

    fn poll(target: &Endpoint, _: NoSettings) -> Result<Report, CallError> {
        let mut memory = Memory::<()>::load(target);
        let connected =
            connect(target, Product::Ve, &mut memory, &FIRST, |api, _| Ok(api.with_header("authorization", "x")));
        memory.save();
        let Connected { api, dependency, answers } = connected?;
        assert_eq!(answers.len(), FIRST.len());
        Ok([dependency.with_title(format!("{} {}", api.origin(), api.product().name()))].into_iter().collect())
    }
}

const ONE: &str = "https://one:8006";
const TWO: &str = "https://two:8006";

/// The path that is requested in addition to `/version`.
const FIRST: [&str; 1] = ["/cluster/status"];

/// The answer of an origin to `/version`.
fn exchange(origin: &str, answer: Value) -> Value {
    let mut exchange = json!({ "request": { "method": "GET", "url": format!("{origin}/api2/json/version") } });
    let part = if answer["code"].is_string() { "error" } else { "response" };
    exchange[part] = answer;
    exchange
}

fn version() -> Value {
    json!({ "status": 200, "body": r#"{"data":{"version":"9.1.6","release":"9.1"}}"# })
}

fn error(class: &str, code: &str, retryable: bool) -> Value {
    json!({ "class": class, "code": code, "message": format!("it is {code}"), "retryable": retryable })
}

/// Polls both origins. A request that is not in the recording fails the test; the first path of each origin is
/// recorded.
fn find(exchanges: &[Value]) -> Result<Dependency, CallError> {
    let first = |exchange: &Value| {
        let url = exchange["request"]["url"].as_str().unwrap_or_default().replace("/version", FIRST[0]);
        json!({ "request": { "method": "GET", "url": url }, "response": { "status": 200, "body": "[]" } })
    };
    let first: Vec<Value> = exchanges.iter().map(first).collect();
    find_exactly(&[exchanges, &first].concat())
}

/// Polls both origins. `exchanges` is the whole recording.
fn find_exactly(exchanges: &[Value]) -> Result<Dependency, CallError> {
    let target =
        Endpoint { url: format!("{ONE}/"), also: vec![format!("{TWO}/api2/json"), ONE.to_owned()], ..target("{}") };
    let recording = Recording::parse(&Value::from(exchanges).to_string());
    poll::<Finder>(recording, target).map(|mut report| report.dependencies.swap_remove(0))
}

#[test]
fn the_next_origin_is_used_only_if_the_first_does_not_answer() {
    let api = find(&[exchange(ONE, version())]).unwrap();
    assert_eq!((api.status, api.title.as_deref()), (Status::Ok, Some("0 Proxmox VE")));
    assert_eq!(api.description.as_deref(), Some("Proxmox VE 9.1.6 at https://one:8006"));

    let refused = json!({ "status": 401, "reason": "permission denied - invalid PVE ticket" });
    let Err(CallError::Misconfigured(failure)) = find(&[exchange(ONE, refused)]) else { panic!("a 401 is an answer") };
    assert!(
        failure.message.contains("invalid PVE ticket\"): check on the server with \"pveum user token list"),
        "{failure:?}"
    );

    let silent = exchange(ONE, error("connection_refused", "connect_refused", true));
    let api = find(&[silent, exchange(TWO, version())]).unwrap();
    assert_eq!((api.status, api.title.as_deref()), (Status::Warning, Some("1 Proxmox VE")));
    let said = "https://one:8006 does not answer, and https://two:8006 is used instead: it is connect_refused";
    assert_eq!(api.error_message.as_deref(), Some(said));

    // For a minute the silent origin is tried last, so it is not requested.
    let api = find(&[exchange(TWO, version())]).unwrap();
    assert_eq!((api.status, api.error_message.as_deref()), (Status::Warning, Some(said)));
    // If the other origin is silent too, it is tried; an origin that answers is the first again.
    assert_eq!(
        find(&[exchange(TWO, error("timeout", "timeout", true)), exchange(ONE, version())]).unwrap().status,
        Status::Ok
    );
    assert_eq!(find(&[exchange(ONE, version())]).unwrap().status, Status::Ok);
}

/// A request that is not in the recording panics.
#[test]
fn only_a_known_origin_is_asked_for_more_than_its_version() {
    let refused = || exchange(ONE, json!({ "status": 401, "reason": "permission denied - invalid PVE ticket" }));
    let asks_for_more = || std::panic::catch_unwind(|| find_exactly(&[refused()])).is_err();
    assert!(!asks_for_more(), "at a first poll");
    assert!(find(&[exchange(ONE, version())]).is_ok());
    assert!(asks_for_more(), "after a poll that it answered");
    assert!(find(&[refused()]).is_err());
    assert!(!asks_for_more(), "after a poll that it refused");
}

#[test]
fn a_proxy_whose_server_is_down_does_not_answer() {
    let api =
        find(&[exchange(ONE, json!({ "status": 503, "reason": "Service Unavailable" })), exchange(TWO, version())]);
    assert_eq!(api.unwrap().status, Status::Warning);
}

#[test]
fn if_no_origin_answers_each_is_named() {
    let all = [
        exchange(ONE, error("certificate", "tls_fingerprint_mismatch", false)),
        exchange(TWO, error("timeout", "timeout", true)),
    ];
    let Err(CallError::Transient(failure)) = find(&all) else { panic!("one of them may be back") };
    assert_eq!(failure.code, "tls_fingerprint_mismatch");
    assert!(failure.message.starts_with("none of 2 origins answers. https://one:8006: it is tls_"), "{failure:?}");
    assert!(failure.message.contains("https://two:8006: it is timeout; check that the machine is up"), "{failure:?}");
}

#[test]
fn wrong_certificates_of_all_origins_are_permanent() {
    let wrong = || error("certificate", "tls_fingerprint_mismatch", false);
    let Err(CallError::Misconfigured(failure)) = find(&[exchange(ONE, wrong()), exchange(TWO, wrong())]) else {
        panic!("it is permanent")
    };
    assert!(failure.message.contains("\"polliwog setup pve https://one:8006\" shows"), "{failure:?}");
}

#[test]
fn a_longer_timeout_gives_each_origin_more_time() {
    for (timeout_ms, origins, expected) in [
        (30_000, 1, (6_000, 10_000)),
        (30_000, 3, (6_000, 10_000)),
        (30_000, 4, (5_250, 10_000)),
        (60_000, 1, (12_000, 20_000)),
        (60_000, 4, (10_500, 20_000)),
        (2_000, 1, (1_400, 666)),
    ] {
        assert_eq!(limits(timeout_ms, origins), expected, "{timeout_ms} {origins}");
    }
}
