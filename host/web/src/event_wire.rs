//! Events as JSON, with Depsera's payload fields, and as text.

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
        EventKind::FleetDeployment { deployment, previous, current, error } => (
            json!({ "deployment": deployment }),
            json!({ "previousPhase": previous.as_str(), "currentPhase": current.as_str(), "error": error }),
        ),
        EventKind::FleetDeviceStale { device } | EventKind::FleetDeviceHeard { device } => {
            (json!({ "device": device }), json!({}))
        }
        EventKind::AlertFiring { alert, status, message } => {
            (json!({ "alert": alert }), json!({ "status": status.as_str(), "error": message }))
        }
        EventKind::AlertResolved { alert } => (json!({ "alert": alert }), json!({})),
        EventKind::AlertSuppressed { alert, by } => (json!({ "alert": alert }), json!({ "by": by })),
        EventKind::DeliveryFailed { channel, number, is_over, message } => {
            (json!({ "channel": channel }), json!({ "number": number, "givenUp": is_over, "error": message }))
        }
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

/// The event as text, without its name and target.
pub fn event_text(kind: &EventKind) -> String {
    match kind {
        EventKind::StatusChange { dependency, previous, current, .. } => {
            format!("{dependency}: {} → {}", previous.as_str(), current.as_str())
        }
        EventKind::DependencyMissing { dependency, .. } => format!("{dependency} is no longer reported"),
        EventKind::PollComplete { .. } => String::new(),
        EventKind::PollError { category, code, message, .. } => format!("{code} ({}): {message}", category.as_str()),
        EventKind::Unreachable { code, message, .. } => format!("{code}: {message}"),
        EventKind::Reachable { failures, .. } => format!("after {failures} failures"),
        EventKind::CircuitOpen { failures, .. } => format!("after {failures} failures in a row"),
        EventKind::DeadLetter { reason, .. } => reason.as_str().replace('_', " "),
        EventKind::ServiceStarted { .. } => "is polled from now on".to_owned(),
        EventKind::ServiceStopped { .. } => "is no longer polled".to_owned(),
        EventKind::CircuitClose { .. } => "is polled as usual again".to_owned(),
        EventKind::Revived { .. } => "answers again".to_owned(),
        EventKind::PluginLoaded { plugin, version } => format!("{plugin} {version}"),
        EventKind::PluginQuarantined { plugin, targets } => {
            format!("{plugin} failed for {targets} targets: it is probed until it works")
        }
        EventKind::PluginReleased { plugin } => format!("{plugin} works again"),
        EventKind::PluginRefused { file, reason } => format!("{file}: {reason}"),
        EventKind::FleetDeployment { deployment, previous, current, error } => {
            let why = error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
            format!("deployment {deployment}: {} → {}{why}", previous.as_str(), current.as_str())
        }
        EventKind::FleetDeviceStale { device } => format!("device {device} was not heard for 5 minutes"),
        EventKind::FleetDeviceHeard { device } => format!("device {device} is heard again"),
        EventKind::AlertFiring { alert, status, message } => {
            let why = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{alert} is {}{why}", status.as_str())
        }
        EventKind::AlertResolved { alert } => format!("{alert} is over"),
        EventKind::AlertSuppressed { alert, by } => format!("{alert} is explained by {by}"),
        EventKind::DeliveryFailed { channel, number, is_over, message } => {
            let then = if *is_over { "is given up" } else { "is tried again" };
            format!("notification {number} for channel {channel} {then}: {message}")
        }
        EventKind::SettingsChanged { what, value } => match value {
            Some(value) => format!("{what} = {value}"),
            None => format!("{what} is no longer set"),
        },
    }
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
