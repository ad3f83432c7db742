//! The loop that follows the resources and writes their status.

use crate::client::{Client, Refused, Settings};
use crate::resource::{
    GROUP, OF_FINALIZER, OF_STATUS, Resource, VERSION, add_heard, covers, finalizer, status, with_status,
};
use fleet::names::{RULE, is_name};
use fleet::{DeploymentView, KubernetesState};
use hyper::StatusCode;
use model::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// The time between two writes of the status of one resource, at least.
const TICK: Duration = Duration::from_secs(1);
/// A status is written again after this time for the time of the last heartbeat alone.
const REFRESH: Duration = Duration::from_secs(300);
/// A field that another manager changed is written again after this time.
const RESTORE: Duration = Duration::from_secs(10);
/// The delay before a failed step is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The server ends a watch after this time, in seconds; then the resources are listed again.
const WATCHED: u32 = 290;
/// Without an event or a bookmark for this time, the connection is taken as lost.
const SILENT: Duration = Duration::from_secs(320);

/// The deployments of the operator.
pub trait Deployments: Send + Sync + 'static {
    /// Whether this operator writes what is counted: it assigns deployments instead of another one, and has read
    /// everything at the broker.
    fn reports(&self) -> bool;

    /// The deployment with a name.
    fn find(&self, name: &str) -> Option<DeploymentView>;

    /// When a device of a deployment was heard last.
    fn last_heard(&self, name: &str) -> Option<Timestamp>;

    /// Makes or changes a deployment from its definition as JSON; without one, deletes it.
    fn define(&self, name: &str, definition: Option<String>) -> impl Future<Output = Result<(), String>> + Send;
}

/// The known state of a resource.
#[derive(Default)]
struct Known {
    generation: i64,
    /// Why its spec is not in effect.
    problem: Option<String>,
    /// The status that the cluster holds.
    held: Value,
    /// The status that this program wrote last, and when.
    written: Option<(Value, Instant)>,
}

/// Follows the resources of a namespace.
pub struct Controller<D> {
    client: Client,
    deployments: Arc<D>,
    known: BTreeMap<String, Known>,
    state: Arc<Mutex<KubernetesState>>,
}

impl<D: Deployments> Controller<D> {
    /// Creates a controller, and a handle for readers.
    pub fn new(settings: Settings, deployments: Arc<D>) -> (Self, Arc<Mutex<KubernetesState>>) {
        let problem = Some("not connected yet".to_owned());
        let state = Arc::new(Mutex::new(KubernetesState { problem, resources: 0 }));
        let client = Client::new(settings);
        (Self { client, deployments, known: BTreeMap::new(), state: state.clone() }, state)
    }

    /// Runs until the future is dropped.
    pub async fn run(mut self) {
        loop {
            match self.follow().await {
                Ok(()) => {}
                Err(why) => {
                    self.note(Some(why));
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/deployments{rest}", self.client.namespace())
    }

    /// Shows a problem; `None` if it is over.
    fn note(&self, problem: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = problem.as_ref().filter(|_| state.problem != problem) {
            tracing::warn!("deployments of Kubernetes: {why}");
        }
        *state = KubernetesState { problem, resources: self.known.len() };
    }

    /// Lists the resources, and follows their changes until the server ends that.
    async fn follow(&mut self) -> Result<(), String> {
        let listed = self.client.get(&self.path("")).await.map_err(|why| explained(&why))?;
        let resources: Vec<Resource> =
            listed["items"].as_array().into_iter().flatten().filter_map(Resource::read).collect();
        self.known.retain(|name, _| resources.iter().any(|resource| resource.name == *name));
        for resource in resources {
            self.take(resource).await?;
        }
        self.note(None);
        let from = listed["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        let query = format!("?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCHED}&resourceVersion={from}");
        let mut watch = self.client.watch(&self.path(&query)).await.map_err(|why| explained(&why))?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent_at = Instant::now() + SILENT;
        loop {
            tokio::select! {
                event = watch.next() => {
                    let Some(event) = event.map_err(|why| explained(&why))? else { return Ok(()) };
                    silent_at = Instant::now() + SILENT;
                    if !self.happened(&event).await? {
                        return Ok(());
                    }
                    self.note(None);
                }
                _ = ticks.tick() => {
                    self.report().await?;
                    self.note(None);
                }
                () = tokio::time::sleep_until(silent_at) => return Err("the server is silent".to_owned()),
            }
        }
    }

    /// Handles an event. Returns whether the watch goes on.
    async fn happened(&mut self, event: &Value) -> Result<bool, String> {
        let resource = || Resource::read(&event["object"]);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                if let Some(resource) = resource() {
                    self.take(resource).await?;
                }
            }
            Some("DELETED") => {
                if let Some(resource) = resource() {
                    self.end(&resource.name).await?;
                }
            }
            Some("BOOKMARK") => {}
            // The resource version of the watch is too old: the resources are listed again.
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes over a resource.
    async fn take(&mut self, resource: Resource) -> Result<(), String> {
        let name = resource.name.clone();
        let place = self.client.namespace().to_owned();
        if resource.is_deleted {
            self.end(&name).await?;
            if resource.has_finalizer {
                self.apply(&format!("/{name}"), OF_FINALIZER, &finalizer((&place, &name), false)).await?;
            }
            return Ok(());
        }
        let known = self.known.entry(name.clone()).or_default();
        (known.held, known.generation) = (resource.status.clone(), resource.generation);
        if !resource.has_finalizer {
            self.apply(&format!("/{name}"), OF_FINALIZER, &finalizer((&place, &name), true)).await?;
        }
        // Also if the resource did not change: a user may have changed the deployment through the API.
        let problem = self.define(&resource).await.err();
        if let Some(known) = self.known.get_mut(&name) {
            if let Some(why) = problem.as_ref().filter(|_| known.problem != problem) {
                tracing::warn!("the deployment {name} of Kubernetes is not in effect: {why}");
            }
            known.problem = problem;
        }
        Ok(())
    }

    async fn define(&self, resource: &Resource) -> Result<(), String> {
        let name = &resource.name;
        if !is_name(name) {
            return Err(format!("{name:?} cannot be the name of a deployment: use {RULE}"));
        }
        if resource.is_defined_by(self.deployments.find(name).as_ref())? {
            return Ok(());
        }
        tracing::info!("Kubernetes defines the deployment {name}");
        self.deployments.define(name, Some(resource.spec.to_string())).await
    }

    /// Ends the deployment of a resource that is deleted.
    async fn end(&mut self, name: &str) -> Result<(), String> {
        self.known.remove(name);
        if self.deployments.find(name).is_none() {
            return Ok(());
        }
        tracing::info!("the resource of the deployment {name} is deleted in Kubernetes");
        self.deployments.define(name, None).await
    }

    /// Writes each status that differs from what the cluster holds.
    async fn report(&mut self) -> Result<(), String> {
        if !self.deployments.reports() {
            return Ok(());
        }
        let place = self.client.namespace().to_owned();
        let now = Instant::now();
        let mut due = Vec::new();
        for (name, known) in &self.known {
            let view = self.deployments.find(name);
            let status = status(known.generation, known.problem.as_deref(), view.as_ref());
            let is_due = known.written.as_ref().is_none_or(|(written, at)| {
                let is_old = |age: Duration| now - *at >= age;
                let has_devices = view.is_some_and(|view| view.aggregate.matched > 0);
                *written != status || is_old(RESTORE) && !covers(&known.held, &status) || is_old(REFRESH) && has_devices
            });
            if is_due {
                due.push((name.clone(), status));
            }
        }
        for (name, status) in due {
            let mut full = status.clone();
            add_heard(&mut full, self.deployments.last_heard(&name));
            let body = with_status((&place, &name), &full);
            let held = self.apply(&format!("/{name}/status"), OF_STATUS, &body).await?;
            if let Some(known) = self.known.get_mut(&name) {
                known.held = held["status"].clone();
                known.written = Some((status, now));
            }
        }
        Ok(())
    }

    /// Applies a body to a resource, and returns what it is then; null if it is gone, which the watch says too.
    async fn apply(&mut self, rest: &str, manager: &str, body: &Value) -> Result<Value, String> {
        match self.client.apply(&self.path(rest), manager, body).await {
            Err(refused) if refused.status == Some(StatusCode::NOT_FOUND) => Ok(Value::Null),
            answer => answer.map_err(|refused| explained(&refused)),
        }
    }
}

/// Returns the problem and its remedy, as one sentence.
fn explained(refused: &Refused) -> String {
    let why = &refused.why;
    match refused.status {
        Some(StatusCode::NOT_FOUND) => {
            format!(
                "the cluster does not know this resource ({why}): `polliwog fleet crd | kubectl apply -f -`; or the url is not that of \
             an API server"
            )
        }
        Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => format!(
            "the cluster refuses: {why}; the account needs get, list, watch and patch of deployments and deployments/status \
             in polliwog.dev"
        ),
        Some(status) => format!("the cluster answers {status}: {why}"),
        None => format!("the cluster cannot be reached: {why}"),
    }
}
