//! Events as JSON, with Depsera's payload fields.

use crate::wire::time;
use model::{Event, EventKind, TargetId};
use serde_json::{Value, json};

/// An event with Depsera's payload fields.
pub fn event_json(event: &Event, name_of: impl Fn(&TargetId) -> Option<String>) -> Value {
    let service = |target: &TargetId| {
        let name = name_of(target).unwrap_or_else(|| target.to_string());
        json!({ "serviceId": target.as_str(), "serviceName": name })
    };
    let (about, more) = match &event.kind {
        EventKind::StatusChange { target, dependency, previous, current } => (
            service(target),
            json!({
                "dependencyName": dependency, "previousHealthy": previous.healthy(), "currentHealthy": current.healthy(),
                "previousStatus": previous.as_str(), "currentStatus": current.as_str(),
            }),
        ),
        EventKind::DependencyMissing { target, dependency } => {
            (service(target), json!({ "dependencyName": dependency }))
        }
        EventKind::PollComplete { target, success, dependencies, transitions, latency_ms, error, warnings } => (
            service(target),
            json!({
                "success": success, "dependenciesUpdated": dependencies, "statusChanges": transitions, "error": error,
                "warnings": warnings, "latencyMs": latency_ms,
            }),
        ),
        EventKind::PollError { target, category, code, message } => {
            (service(target), json!({ "error": message, "code": code, "category": category.as_str() }))
        }
        EventKind::Unreachable { target, code, message } => {
            (service(target), json!({ "error": message, "code": code }))
        }
        EventKind::Reachable { target, failures } => (service(target), json!({ "failures": failures })),
        EventKind::CircuitOpen { target, failures } => (service(target), json!({ "failures": failures })),
        EventKind::DeadLetter { target, reason } => (service(target), json!({ "reason": reason.as_str() })),
        EventKind::ServiceStarted { target }
        | EventKind::ServiceStopped { target }
        | EventKind::CircuitClose { target }
        | EventKind::Revived { target } => (service(target), json!({})),
        EventKind::PluginLoaded { plugin, version } => {
            (json!({ "plugin": plugin.as_str() }), json!({ "version": version }))
        }
        EventKind::PluginQuarantined { plugin, targets } => {
            (json!({ "plugin": plugin.as_str() }), json!({ "targets": targets }))
        }
        EventKind::PluginReleased { plugin } => (json!({ "plugin": plugin.as_str() }), json!({})),
        EventKind::PluginRefused { file, reason } => (json!({ "file": file }), json!({ "reason": reason })),
        EventKind::SettingsChanged { what, value } => (json!({ "setting": what }), json!({ "value": value })),
    };
    let mut payload = json!({ "event": event.kind.name(), "timestamp": time(event.at) });
    if let Value::Object(members) = &mut payload {
        for part in [about, more] {
            if let Value::Object(part) = part {
                members.extend(part);
            }
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Status, Timestamp};

    #[test]
    fn events_carry_the_documented_fields() {
        let target = TargetId::new("a").unwrap();
        let kind = EventKind::StatusChange {
            target,
            dependency: "db".to_owned(),
            previous: Status::Ok,
            current: Status::Unknown,
        };
        let payload = event_json(&Event { at: Timestamp::from_millis(0), kind }, |_| Some("A".to_owned()));
        let expected = json!({
            "event": "status:change", "timestamp": "1970-01-01T00:00:00.000Z", "serviceId": "a", "serviceName": "A",
            "dependencyName": "db", "previousHealthy": true, "currentHealthy": null, "previousStatus": "ok",
            "currentStatus": "unknown",
        });
        assert_eq!(payload, expected);
    }
}
