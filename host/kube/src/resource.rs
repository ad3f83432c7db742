//! The custom resource: what is read from it, and the bodies that are applied to it.

use fleet::{DeploymentView, Happened, read_deployment, show_deployment};
use model::Timestamp;
use serde_json::{Map, Value, json};

/// The definition of the custom resource, for `kubectl apply -f`.
pub const CRD: &str = include_str!("crd.yaml");

pub(crate) const GROUP: &str = "polliwog.dev";
pub(crate) const VERSION: &str = "v1alpha1";
/// The names under which the operator owns the status and the finalizer of a resource. They differ, because API servers
/// before 1.22 take an application of the status as the whole of what its manager owns: it would give up the finalizer.
pub(crate) const OF_STATUS: &str = "polliwog";
pub(crate) const OF_FINALIZER: &str = "polliwog-finalizer";
/// Keeps a deleted resource until the operator has deleted its deployment.
const FINALIZER: &str = "polliwog.dev/deployment";

/// A custom resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resource {
    pub name: String,
    /// Grows with each change of the spec.
    pub generation: i64,
    /// The definition of the deployment, as in the API.
    pub spec: Value,
    /// Whether it is being deleted, and waits for its finalizers.
    pub is_deleted: bool,
    pub has_finalizer: bool,
    /// The present status.
    pub status: Value,
}

impl Resource {
    /// Reads an object of the cluster; `None` if it has no name.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let about = &object["metadata"];
        let finalizers = about["finalizers"].as_array();
        Some(Self {
            name: about["name"].as_str()?.to_owned(),
            generation: about["generation"].as_i64().unwrap_or_default(),
            spec: object["spec"].clone(),
            is_deleted: about["deletionTimestamp"].is_string(),
            has_finalizer: finalizers.is_some_and(|all| all.iter().any(|name| name == FINALIZER)),
            status: object["status"].clone(),
        })
    }

    /// Whether a deployment is what the spec says.
    ///
    /// # Errors
    /// If the spec is not the definition of a deployment; one sentence that names the wrong part.
    pub(crate) fn is_defined_by(&self, known: Option<&DeploymentView>) -> Result<bool, String> {
        let read = read_deployment(&self.spec.to_string(), 1).map_err(|why| format!("spec: {why}"))?;
        Ok(known.is_some_and(|known| show_deployment(&known.definition) == show_deployment(&read)))
    }
}

/// The body that makes this program own the finalizer of a resource, or give it up.
pub(crate) fn finalizer((namespace, name): (&str, &str), is_kept: bool) -> Value {
    let mut body = object(namespace, name);
    if is_kept {
        body["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    body
}

/// The body that replaces the status of a resource.
pub(crate) fn with_status((namespace, name): (&str, &str), status: &Value) -> Value {
    let mut body = object(namespace, name);
    body["status"] = status.clone();
    body
}

fn object(namespace: &str, name: &str) -> Value {
    let version = format!("{GROUP}/{VERSION}");
    json!({ "apiVersion": version, "kind": "Deployment", "metadata": { "name": name, "namespace": namespace } })
}

/// The status of a resource, without the time of the last heartbeat: `problem` is why its spec is not in effect.
pub(crate) fn status(generation: i64, problem: Option<&str>, view: Option<&DeploymentView>) -> Value {
    let mut status = Map::new();
    status.insert("observedGeneration".to_owned(), generation.into());
    if let Some(why) = problem {
        status.insert("problem".to_owned(), why.into());
    }
    if let Some(view) = view {
        let counted = &view.aggregate;
        let mut aggregate = json!({
            "matched": counted.matched,
            "succeeded": counted.succeeded,
            "failed": counted.failed,
            "pending": counted.pending,
            "unreported": counted.unreported,
            "stale": counted.stale,
            "recentEvents": counted.recent.iter().map(happened).collect::<Vec<_>>(),
        });
        if let Some(error) = &counted.last_error {
            aggregate["lastError"] = happened(error);
        }
        if let Some((device, _)) = &counted.holder {
            aggregate["holder"] = device.as_str().into();
        }
        status.insert("phase".to_owned(), view.phase().as_str().into());
        status.insert("aggregate".to_owned(), aggregate);
    }
    status.into()
}

/// Adds the time at which a device of the deployment was heard last.
pub(crate) fn add_heard(status: &mut Value, heard: Option<Timestamp>) {
    if let (Some(heard), Some(aggregate)) = (heard, status.get_mut("aggregate").and_then(Value::as_object_mut)) {
        aggregate.insert("lastHeartbeatAt".to_owned(), time(heard).into());
    }
}

/// Whether the cluster holds each field of a status. It may hold further ones, of other managers.
pub(crate) fn covers(held: &Value, status: &Value) -> bool {
    match (held, status) {
        (Value::Object(held), Value::Object(status)) => {
            status.iter().all(|(key, value)| held.get(key).is_some_and(|held| covers(held, value)))
        }
        _ => held == status,
    }
}

fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis()).map_or_else(|_| String::new(), |time| time.to_string())
}

fn happened(change: &Happened) -> Value {
    let mut shown = json!({ "device": change.device, "phase": change.phase.as_str(), "at": time(change.at) });
    if let Some(error) = &change.error {
        shown["error"] = error.as_str().into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_read_and_compared_with_what_is_known() {
        let targets = json!([{ "id": "dns", "kind": "http", "url": "http://a/" }]);
        let spec = json!({ "selector": { "matchLabels": { "site": "a" } }, "targets": targets });
        let object = json!({
            "metadata": { "name": "dns", "generation": 3, "finalizers": ["other", FINALIZER] },
            "spec": spec, "status": { "phase": "failed" },
        });
        let read = Resource::read(&object).unwrap();
        assert_eq!((read.name.as_str(), read.generation, read.has_finalizer, read.is_deleted), ("dns", 3, true, false));
        let definition = read_deployment(&spec.to_string(), 9).unwrap();
        let mut view =
            DeploymentView { name: "dns".to_owned(), definition, aggregate: fleet::Aggregate::default(), since: None };
        assert_eq!((read.is_defined_by(None), read.is_defined_by(Some(&view))), (Ok(false), Ok(true)));
        view.definition.targets.clear();
        assert_eq!(read.is_defined_by(Some(&view)), Ok(false));
        let wrong = Resource { spec: json!({ "targets": [], "extra": 1 }), ..read };
        assert!(wrong.is_defined_by(None).unwrap_err().contains("extra"));
        assert_eq!(Resource::read(&json!({ "metadata": {} })), None);
    }

    #[test]
    fn a_status_is_covered_by_what_has_at_least_its_fields() {
        let status = json!({ "phase": "failed", "aggregate": { "failed": 1 } });
        let cases = [
            (json!({ "phase": "failed", "aggregate": { "failed": 1, "lastHeartbeatAt": "x" }, "note": "y" }), true),
            (json!({ "phase": "failed", "aggregate": { "failed": 2 } }), false),
            (json!({ "aggregate": { "failed": 1 } }), false),
            (Value::Null, false),
        ];
        for (held, expected) in cases {
            assert_eq!(covers(&held, &status), expected, "{held}");
        }
    }
}
