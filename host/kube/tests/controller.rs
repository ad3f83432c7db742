//! The controller against a server that behaves like the API server of Kubernetes, where it matters here: versions,
//! generations, finalizers, a watch, and fields that another manager owns.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use fleet::{Aggregate, DeploymentView, KubernetesState, read_deployment};
use kube::{Controller, Deployments, Settings};
use model::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::broadcast;

const FINALIZER: &str = "polliwog.dev/deployment";

#[derive(Default)]
struct Objects {
    all: BTreeMap<String, Value>,
    version: u64,
    /// The number of patches of each object.
    patched: BTreeMap<String, usize>,
    /// The manager that owns the finalizer of an object.
    owners: BTreeMap<String, String>,
    /// An answer to all requests instead.
    refusal: Option<(StatusCode, &'static str)>,
}

/// The server.
#[derive(Clone)]
struct Cluster {
    objects: Arc<Mutex<Objects>>,
    events: broadcast::Sender<String>,
}

impl Cluster {
    async fn start() -> (Self, url::Url) {
        let cluster = Self { objects: Arc::default(), events: broadcast::channel(100).0 };
        let base = "/apis/polliwog.dev/v1alpha1/namespaces/site/deployments";
        let router = Router::new()
            .route(base, get(list))
            .route(&format!("{base}/{{name}}"), patch(apply))
            .route(&format!("{base}/{{name}}/status"), patch(apply_status))
            .with_state(cluster.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (cluster, url)
    }

    /// Changes an object as a client with all rights, and sends the event to the watches.
    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut objects = self.objects.lock().unwrap();
        let is_new = !objects.all.contains_key(name);
        let mut object = objects.all.remove(name).unwrap_or_else(|| json!({ "metadata": { "name": name } }));
        let before = object.clone();
        change(&mut object);
        if object == before {
            objects.all.insert(name.to_owned(), object.clone());
            return object;
        }
        objects.version += 1;
        object["metadata"]["resourceVersion"] = objects.version.to_string().into();
        if object["spec"] != before["spec"] {
            object["metadata"]["generation"] = (before["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
        let is_gone = is_deleted && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        if !is_gone {
            objects.all.insert(name.to_owned(), object.clone());
        }
        let kind = if is_gone {
            "DELETED"
        } else if is_new {
            "ADDED"
        } else {
            "MODIFIED"
        };
        let _ = self.events.send(json!({ "type": kind, "object": object }).to_string());
        object
    }

    fn define(&self, name: &str, spec: &Value) {
        self.change(name, |object| object["spec"] = spec.clone());
    }

    fn delete(&self, name: &str) {
        self.change(name, |object| object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    }

    fn object(&self, name: &str) -> Value {
        self.objects.lock().unwrap().all.get(name).cloned().unwrap_or_default()
    }

    fn patched(&self, name: &str) -> usize {
        self.objects.lock().unwrap().patched.get(name).copied().unwrap_or_default()
    }
}

async fn list(State(cluster): State<Cluster>, Query(query): Query<HashMap<String, String>>) -> Response {
    if let Some((status, message)) = cluster.objects.lock().unwrap().refusal {
        return (status, json!({ "kind": "Status", "message": message }).to_string()).into_response();
    }
    if !query.contains_key("watch") {
        let objects = cluster.objects.lock().unwrap();
        let items: Vec<&Value> = objects.all.values().collect();
        return json!({ "metadata": { "resourceVersion": objects.version.to_string() }, "items": items })
            .to_string()
            .into_response();
    }
    let (mut events, (into, body)) = (cluster.events.subscribe(), tokio::sync::mpsc::channel::<String>(100));
    // The changes between the list and the watch.
    let from: u64 = query["resourceVersion"].parse().unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let missed: Vec<String> = (cluster.objects.lock().unwrap().all.values())
        .filter(|object| version(object) > from)
        .map(|object| json!({ "type": "MODIFIED", "object": object }).to_string())
        .collect();
    tokio::spawn(async move {
        for event in missed {
            let _ = into.send(event).await;
        }
        while let Ok(event) = events.recv().await {
            let is_last = event.contains("\"ERROR\"");
            if into.send(event).await.is_err() || is_last {
                return;
            }
        }
    });
    let lines = futures_util::stream::unfold(body, |mut body| async {
        let line = body.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line + "\n")), body))
    });
    Body::from_stream(lines).into_response()
}

type Managed = Query<HashMap<String, String>>;

/// Server-side apply of the finalizer: a manager removes only what it owns.
async fn apply(
    State(cluster): State<Cluster>,
    Path(name): Path<String>,
    Query(query): Managed,
    body: Bytes,
) -> Response {
    let manager = &query["fieldManager"];
    let applied: Value = serde_json::from_slice(&body).unwrap();
    let is_owner = {
        let owners = &mut cluster.objects.lock().unwrap().owners;
        if applied["metadata"]["finalizers"].is_array() {
            owners.insert(name.clone(), manager.clone());
        }
        owners.get(&name) == Some(manager)
    };
    patched(&cluster, &name, |object| match &applied["metadata"]["finalizers"] {
        Value::Null if is_owner => drop(object["metadata"].as_object_mut().unwrap().remove("finalizers")),
        Value::Null => {}
        finalizers => object["metadata"]["finalizers"] = finalizers.clone(),
    })
}

/// Server-side apply of the status: the fields of this manager are replaced, those of others stay. As in API servers
/// before 1.22, the manager gives up what it owns outside of the status.
async fn apply_status(
    State(cluster): State<Cluster>,
    Path(name): Path<String>,
    Query(query): Managed,
    body: Bytes,
) -> Response {
    cluster.objects.lock().unwrap().owners.retain(|of, owner| *of != name || *owner != query["fieldManager"]);
    patched(&cluster, &name, |object| {
        let applied: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(applied["spec"], Value::Null, "a status has no spec");
        let note = object["status"]["note"].clone();
        object["status"] = applied["status"].clone();
        if !note.is_null() {
            object["status"]["note"] = note;
        }
    })
}

fn patched(cluster: &Cluster, name: &str, change: impl FnOnce(&mut Value)) -> Response {
    let is_known = cluster.objects.lock().unwrap().all.contains_key(name);
    if !is_known {
        return (StatusCode::NOT_FOUND, json!({ "message": "not found" }).to_string()).into_response();
    }
    *cluster.objects.lock().unwrap().patched.entry(name.to_owned()).or_default() += 1;
    cluster.change(name, change).to_string().into_response()
}

/// The deployments of an operator.
#[derive(Default)]
struct Known(Mutex<BTreeMap<String, DeploymentView>>);

impl Known {
    fn count(&self, name: &str, succeeded: u32, failed: u32) {
        let mut all = self.0.lock().unwrap();
        let counted = &mut all.get_mut(name).unwrap().aggregate;
        *counted = Aggregate { matched: succeeded + failed, succeeded, failed, ..Aggregate::default() };
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

impl Deployments for Known {
    fn reports(&self) -> bool {
        true
    }

    fn find(&self, name: &str) -> Option<DeploymentView> {
        self.0.lock().unwrap().get(name).cloned()
    }

    fn last_heard(&self, _: &str) -> Option<Timestamp> {
        Some(Timestamp::from_millis(1_784_000_000_000))
    }

    async fn define(&self, name: &str, definition: Option<String>) -> Result<(), String> {
        let mut all = self.0.lock().unwrap();
        let Some(text) = definition else {
            all.remove(name);
            return Ok(());
        };
        let version = all.get(name).map_or(0, |known| known.definition.version) + 1;
        let definition = read_deployment(&text, version)?;
        let view = DeploymentView { name: name.to_owned(), definition, aggregate: Aggregate::default(), since: None };
        all.insert(name.to_owned(), view);
        Ok(())
    }
}

struct World {
    cluster: Cluster,
    url: url::Url,
    known: Arc<Known>,
    running: Option<(tokio::task::JoinHandle<()>, Arc<Mutex<KubernetesState>>)>,
}

impl World {
    async fn new() -> Self {
        let (cluster, url) = Cluster::start().await;
        Self { cluster, url, known: Arc::default(), running: None }
    }

    fn start(&mut self) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let settings = Settings { url: self.url.clone(), namespace: "site".to_owned(), token_file: None, tls };
        let (controller, state) = Controller::new(settings, self.known.clone());
        self.running = Some((tokio::spawn(controller.run()), state));
    }

    fn stop(&mut self) {
        self.running.take().unwrap().0.abort();
    }

    fn problem(&self) -> Option<String> {
        self.running.as_ref().unwrap().1.lock().unwrap().problem.clone()
    }

    fn status(&self, name: &str) -> Value {
        self.cluster.object(name)["status"].clone()
    }
}

async fn until<T: std::fmt::Debug>(what: &str, mut read: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> T {
    let begun = tokio::time::Instant::now();
    loop {
        let found = read();
        if holds(&found) {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "timeout waiting for: {what}; last seen: {found:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn spec(url: &str) -> Value {
    json!({ "targets": [{ "id": "dns", "kind": "http", "url": url }] })
}

#[tokio::test]
async fn a_resource_is_a_deployment_and_its_status_is_what_is_counted() {
    let mut world = World::new().await;
    world.cluster.define("dns", &spec("http://a/"));
    world.start();
    until("it is defined", || world.known.names(), |names| *names == ["dns"]).await;
    world.known.count("dns", 2, 0);
    let status = until("it is counted", || world.status("dns"), |status| status["aggregate"]["succeeded"] == 2).await;
    assert_eq!((&status["phase"], &status["observedGeneration"]), (&json!("succeeded"), &json!(1)), "{status}");
    assert_eq!(status["aggregate"]["lastHeartbeatAt"], "2026-07-14T03:33:20Z");
    assert_eq!(world.problem(), None);

    // A change of the spec, and one of the counters. Between them nothing is written.
    world.cluster.define("dns", &spec("http://b/"));
    let observed = |status: &Value| status["observedGeneration"] == 2;
    until("the change is observed", || world.status("dns"), observed).await;
    assert!(world.known.find("dns").unwrap().definition.targets[0].contains("http://b/"));
    let before = world.cluster.patched("dns");
    world.cluster.define("web", &spec("http://a/"));
    until("another one is defined", || world.known.names(), |names| names.len() == 2).await;
    for count in 1..=3 {
        world.known.count("web", count, 0);
        let is_shown = |status: &Value| status["aggregate"]["succeeded"] == count;
        until("the other one is written", || world.status("web"), is_shown).await;
    }
    assert_eq!(world.cluster.patched("dns"), before, "an equal status is not written");
    world.known.count("dns", 1, 1);
    until("the failure is shown", || world.status("dns"), |status| status["phase"] == "failed").await;

    // Another manager's field stays, and one of ours that it changed is written again.
    world.cluster.change("dns", |object| {
        object["status"]["note"] = "by hand".into();
        object["status"]["phase"] = "fine".into();
    });
    let status = until("it is restored", || world.status("dns"), |status| status["phase"] == "failed").await;
    assert_eq!(status["note"], "by hand");
}

#[tokio::test]
async fn a_resource_that_is_deleted_while_the_operator_is_away_ends_its_deployment() {
    let mut world = World::new().await;
    world.start();
    until("it is connected", || world.problem(), Option::is_none).await;
    world.cluster.define("dns", &spec("http://a/"));
    world.cluster.define("web", &spec("http://a/"));
    until("both are defined", || world.known.names(), |names| names.len() == 2).await;
    until("it is held", || world.cluster.object("dns"), |object| object["metadata"]["finalizers"][0] == FINALIZER)
        .await;
    until("a status is written", || world.status("dns"), |status| !status["phase"].is_null()).await;
    let version = world.known.find("web").unwrap().definition.version;
    world.stop();
    world.cluster.delete("dns");
    assert!(!world.cluster.object("dns").is_null(), "the finalizer keeps it");
    world.start();
    until("its deployment ends", || world.known.names(), |names| *names == ["web"]).await;
    until("it is gone", || world.cluster.object("dns"), Value::is_null).await;
    // An unchanged deployment is not defined again, because that would reach every device.
    assert_eq!(world.known.find("web").unwrap().definition.version, version);
    world.cluster.delete("web");
    until("it is gone too", || world.cluster.object("web"), Value::is_null).await;
    until("its deployment ends too", || world.known.names(), Vec::is_empty).await;
}

#[tokio::test]
async fn a_spec_that_is_no_deployment_says_why() {
    let mut world = World::new().await;
    world.cluster.define("dns", &json!({ "targets": [] }));
    world.cluster.define("a.b", &spec("http://a/"));
    world.start();
    let problem = |name: &str| world.status(name)["problem"].clone();
    let why = until("why", || problem("dns"), Value::is_string).await;
    assert_eq!(why, "spec: targets: a deployment has at least one target");
    let why = until("why the name is wrong", || problem("a.b"), Value::is_string).await;
    assert!(why.as_str().unwrap().contains("cannot be the name of a deployment"), "{why}");
    world.cluster.define("dns", &spec("http://a/"));
    until("it is repaired", || world.status("dns"), |status| status["problem"].is_null() && !status["phase"].is_null())
        .await;
    assert_eq!(world.known.names(), ["dns"]);
}

#[tokio::test]
async fn a_watch_that_expired_begins_anew_and_a_cluster_that_refuses_is_named() {
    let mut world = World::new().await;
    world.start();
    until("it is connected", || world.problem(), Option::is_none).await;
    world.cluster.events.send(json!({ "type": "ERROR", "object": { "code": 410 } }).to_string()).unwrap();
    world.cluster.define("dns", &spec("http://a/"));
    until("it is defined", || world.known.names(), |names| *names == ["dns"]).await;

    for (status, message, expected) in [
        (StatusCode::NOT_FOUND, "the server could not find the requested resource", "polliwog fleet crd"),
        (StatusCode::FORBIDDEN, "deployments.polliwog.dev is forbidden", "needs get, list, watch and patch"),
        (StatusCode::INTERNAL_SERVER_ERROR, "etcd is away", "500 Internal Server Error: etcd is away"),
    ] {
        world.stop();
        world.cluster.objects.lock().unwrap().refusal = Some((status, message));
        world.start();
        let is_named = |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains(expected));
        until(expected, || world.problem(), is_named).await;
    }
    world.cluster.objects.lock().unwrap().refusal = None;
    until("it recovers", || world.problem(), Option::is_none).await;
}
