//! Answers that a healthy server gives, but for one entry. Whatever its shape and its place in the list, it hides no
//! failure.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use tests::proxmox::{Bench, NOW, lines};
use tokio::time::Instant;

/// The largest body of an answer.
const LARGEST: usize = 1 << 20;

/// A change of the body of an answer; `None` for an error.
type Patch = fn(&str) -> Option<String>;

/// Polls a healthy server of which the answers to paths with this end are changed.
async fn polled(product: &'static str, path: &'static str, patch: Patch) -> std::collections::BTreeMap<String, String> {
    let change = move |request: Request, next: Next| async move {
        let is_meant = request.uri().path().ends_with(path);
        let response = next.run(request).await;
        if is_meant && response.status().is_success() { changed(response, patch).await } else { response }
    };
    let router = demo::router(Instant::now(), || NOW).layer(from_fn(change));
    lines(&Bench::with(product, router).await.report("healthy").await)
}

async fn changed(response: Response, patch: Patch) -> Response {
    let body = to_bytes(response.into_body(), LARGEST).await.unwrap();
    match patch(std::str::from_utf8(&body).unwrap()) {
        Some(body) => Body::from(body).into_response(),
        None => (StatusCode::INTERNAL_SERVER_ERROR, "{\"data\":null}").into_response(),
    }
}

/// Changes the content of a body.
fn data(body: &str, change: impl FnOnce(&mut Vec<Value>)) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).unwrap();
    change(body["data"].as_array_mut().unwrap());
    Some(body.to_string())
}

/// Adds an entry at the end, and in the second case at the beginning.
fn added(body: &str, is_first: bool, entry: Value) -> Option<String> {
    data(body, |entries| entries.insert(if is_first { 0 } else { entries.len() }, entry))
}

/// Product, end of the path, change, and the line that must be in the report.
const CASES: &[(&str, &str, Patch, &str)] = &[
    // One name twice.
    (
        "pve",
        "/ha/status/current",
        |body| added(body, false, json!({"type": "quorum", "quorate": 0})),
        "ha critical: HA has no quorum*",
    ),
    (
        "pve",
        "/ha/status/current",
        |body| added(body, true, json!({"type": "quorum", "quorate": 0})),
        "ha critical: HA has no quorum*",
    ),
    (
        "pve",
        "/ha/status/current",
        |body| added(body, true, json!({"type": "quorum"})),
        "ha unknown: HA does not report*",
    ),
    (
        "pve",
        "/ha/status/current",
        |body| added(body, false, json!({"type": "master", "status": "pve1 (old timestamp - dead?, x)"})),
        "ha critical: the HA master has not reported*",
    ),
    (
        "pve",
        "/ha/status/current",
        |body| added(body, false, json!({"type": "fencing", "armed-state": "disarmed"})),
        "ha warning: HA is disarmed*",
    ),
    (
        "pve",
        "/cluster/status",
        |body| added(body, true, json!({"type": "cluster", "name": "lab"})),
        "cluster/quorum unknown*",
    ),
    (
        "pve",
        "/cluster/status",
        |body| added(body, false, json!({"type": "cluster", "name": "lab", "quorate": 0})),
        "cluster/quorum critical*",
    ),
    (
        "pbs",
        "/datastore-usage",
        |body| added(body, false, json!({"store": "archive", "used": 960, "avail": 10, "total": 2000})),
        "datastore/archive critical*",
    ),
    (
        "pbs",
        "/datastore-usage",
        |body| added(body, true, json!({"store": "archive", "used": 960, "avail": 10, "total": 2000})),
        "datastore/archive critical*",
    ),
    (
        "pbs",
        "/datastore-usage",
        |body| {
            added(
                body,
                false,
                json!({"store": "archive", "used": 1, "avail": 999, "total": 1000, "mount-status": "notmounted"}),
            )
        },
        "datastore/archive warning*",
    ),
    // Without a name.
    (
        "pve",
        "/cluster/status",
        |body| added(body, false, json!({"type": "node", "id": "node/pve9", "online": 0})),
        "node/pve9 critical*",
    ),
    (
        "pve",
        "/ha/status/current",
        |body| {
            added(body, false, json!({"type": "lrm", "id": "lrm:pve1", "status": "pve1 (old timestamp - dead?, x)"}))
        },
        "ha/lrm/pve1 critical*",
    ),
    (
        "pve",
        "/nodes/pve1/replication",
        |body| added(body, false, json!({"error": "boom"})),
        "replication/item * of pve1 critical: it fails: boom*",
    ),
    (
        "pbs",
        "/datastore-usage",
        |body| added(body, false, json!({"error": "disk gone"})),
        "datastore/item 1 of the usages critical: the server cannot use it: disk gone",
    ),
    // In another shape.
    (
        "pbs",
        "/datastore-usage",
        |body| data(body, |all| all.iter_mut().for_each(|one| one["error"] = json!(["io"]))),
        "datastore/archive critical*",
    ),
    (
        "pve",
        "/nodes/pve1/replication",
        |body| data(body, |all| all.iter_mut().for_each(|one| one["error"] = json!({"code": 5}))),
        "replication/* critical: it fails: an object*",
    ),
    (
        "pmg",
        "/nodes/pmg1/services",
        |body| data(body, |all| all[0]["state"] = json!({"x": "failed"})),
        "service/* unknown: whether it runs is not known: pmg1",
    ),
    (
        "pmg",
        "/nodes/pmg1/services",
        |body| added(body, false, json!("postfix failed")),
        "api unknown: *not objects and cannot be judged*",
    ),
    (
        "pve",
        "/cluster/status",
        |body| Some(body.replacen("{\"data\":", "{\"data\":[],\"data\":", 1)),
        "cluster/quorum unknown*",
    ),
    // Nodes that do not agree about a shared storage.
    (
        "pve",
        "/cluster/resources",
        |body| {
            data(body, |all| {
                let nfs = all.iter_mut().filter(|one| one["storage"] == "nfs-backup").nth(1).unwrap();
                nfs["disk"] = json!(nfs["maxdisk"].as_f64().unwrap() * 0.99);
            })
        },
        "storage/nfs-backup critical*",
    ),
    // Nothing can be read.
    ("pmg", "/nodes/pmg1/services", |_| None, "service/* unknown: whether it runs on pmg1 is not known*"),
    ("pmg", "/services", |_| None, "service/all unknown: which services run on pmg1 is not known*"),
    ("pmg", "/services", |body| data(body, Vec::clear), "service/all unknown: *it lists none"),
    ("pve", "/nodes/pve1/tasks", |_| None, "backup/node/pve1 unknown: the last backups are not known*"),
];

#[tokio::test(flavor = "multi_thread")]
async fn one_entry_hides_no_failure() {
    for (product, path, patch, expected) in CASES {
        let found = polled(product, path, *patch).await;
        let is_found = found.iter().any(|(name, line)| super::fits(expected, &format!("{name} {line}")));
        let bad: Vec<_> = found.iter().filter(|(_, line)| !line.starts_with("ok")).collect();
        assert!(is_found, "{product} {path}: no {expected}: {bad:?}");
    }
}
