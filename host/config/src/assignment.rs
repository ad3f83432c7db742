//! Targets that an operator of the fleet assigned. Each deployment is kept as a setting whose value is JSON: its
//! targets, with the keys of a `[[target]]`, and the term of the lease under which this host polls them, if they need
//! one.
//!
//! In the texts of a target, `${device.id}` and `${device.label.X}` stand for the id and a label of this host. Secrets
//! never travel: a target names secrets of this host's `[secrets]`.

use crate::checked::Config;
use crate::definition::{Made, made_by, read};
use crate::fleet_section::{AssignedDeployment, AssignedTarget, FleetConfig};
use crate::reader::Overrides;
use crate::shared_secret::Permitted;
use crate::written::{Environment, notes};
use model::{TargetId, TargetSource};
use scheduler::Settings;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

impl Config {
    /// Adds the targets of the deployments. A target with the id of one that this host defines is not added: its own
    /// definition takes precedence. Neither is one with the id of a target of another deployment, which is a problem.
    pub(crate) fn assign(
        &mut self,
        overrides: &Overrides,
        environment: Environment<'_>,
        misfits: &mut BTreeMap<String, String>,
    ) {
        // The deployment that each target is from; `None` for those that this host defines.
        let mut known: BTreeMap<TargetId, Option<&str>> =
            self.targets.iter().map(|target| (target.id.clone(), None)).collect();
        for (key, text) in overrides {
            let Some(Made::Assignment(deployment)) = made_by(key) else { continue };
            let Stored { term, is_standby, targets } = match serde_json::from_str(text) {
                Ok(stored) => stored,
                Err(error) => {
                    misfits.insert(key.clone(), error.to_string());
                    continue;
                }
            };
            if is_standby {
                self.standby.insert(deployment.to_owned());
                continue;
            }
            let Some(fleet) = self.fleet.clone().filter(|fleet| fleet.role.is_agent()) else {
                misfits.insert(key.clone(), "this host is no longer an agent of a fleet".to_owned());
                continue;
            };
            let (mut assigned, mut notes) = (Vec::with_capacity(targets.len()), Vec::new());
            for mut target in targets {
                let filled = fill_in(&mut target, &fleet);
                let id = target.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                let added = filled.and_then(|()| {
                    match TargetId::new(&id).ok().and_then(|id| known.get(&id)) {
                        Some(None) => return Ok(None),
                        Some(Some(other)) => {
                            return Err(format!(
                                "the deployment {other} has a target {id} too, and its name comes first: give each target another id"
                            ));
                        }
                        None => {}
                    }
                    self.defined((&id, target), TargetSource::Assignment, overrides, environment).map(Some)
                });
                let problem = match added {
                    Ok(Some(mut target)) => {
                        known.insert(target.id.clone(), Some(deployment));
                        target.shared_by = (term > 0).then(|| deployment.to_owned());
                        self.targets.push(Arc::new(target));
                        None
                    }
                    // It is polled as this host defines it.
                    Ok(None) => {
                        notes.push(format!("this host defines target {id}, and its own definition takes precedence"));
                        None
                    }
                    Err(why) => {
                        notes.push(format!("target {id} is not polled: {why}"));
                        Some(why)
                    }
                };
                assigned.push(AssignedTarget { id, problem });
            }
            if !notes.is_empty() {
                misfits.insert(key.clone(), notes.join("; "));
            }
            self.deployments.insert(deployment.to_owned(), AssignedDeployment { term, targets: assigned });
        }
    }

    /// Notes that a target of a deployment is not polled.
    pub fn note_unassigned(&mut self, id: &TargetId, why: &str) {
        let targets = self.deployments.values_mut().flat_map(|assigned| &mut assigned.targets);
        for target in targets.filter(|target| target.id == id.as_str()) {
            target.problem.get_or_insert_with(|| why.to_owned());
        }
    }
}

/// The value of the setting that keeps an assigned deployment.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    term: u64,
    #[serde(default, rename = "standby")]
    is_standby: bool,
    #[serde(default)]
    targets: Vec<Value>,
}

/// The text that keeps a deployment of which another device may poll the targets.
pub const STANDBY: &str = r#"{"standby":true}"#;

/// Returns the text that keeps an assigned deployment: its targets as JSON, and the term of the lease, or 0.
pub fn stored_assignment(term: u64, targets: &[String]) -> String {
    let term = if term == 0 { String::new() } else { format!("\"term\":{term},") };
    format!("{{{term}\"targets\":[{}]}}", targets.join(","))
}

/// Whether a setting keeps a deployment that this host polls under a lease. Another host may have the lease since this
/// one ran last.
pub fn needs_lease(key: &str, text: &str) -> bool {
    matches!(made_by(key), Some(Made::Assignment(_)))
        && serde_json::from_str(text).is_ok_and(|Stored { term, is_standby, .. }| term > 0 && !is_standby)
}

/// Checks the targets of a deployment, each as JSON, for every device at once. What depends on the device is not
/// checked: its labels, its secrets, and its shortest interval.
///
/// # Errors
/// One sentence for the first target that no device could poll.
pub fn check_assigned(targets: &[String]) -> Result<(), String> {
    let (overrides, secrets) = (Overrides::default(), BTreeMap::new());
    let scheduler = Settings { min: Duration::ZERO, ..Settings::default() };
    for target in targets {
        let mut fields: serde_json::Map<String, Value> =
            serde_json::from_str(target).map_err(|error| error.to_string())?;
        fields.remove("secrets");
        fields.retain(|key, value| {
            let sample = match key.as_str() {
                _ if !value.to_string().contains(DEVICE) => return true,
                "id" => "device",
                "kind" => "http",
                "url" => "http://device.invalid/",
                _ => return false,
            };
            *value = sample.into();
            true
        });
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let notes = notes("", &overrides, &|_| None);
        let permitted = Permitted { source: TargetSource::Assignment, secrets: &secrets, networks: &[] };
        read(notes, (&id, Value::Object(fields)), &scheduler, permitted)?;
    }
    Ok(())
}

/// The first part of what stands for a property of the device.
const DEVICE: &str = "${device.";

/// Fills in the id and the labels of this host.
fn fill_in(value: &mut Value, fleet: &FleetConfig) -> Result<(), String> {
    match value {
        Value::String(text) if text.contains("${") => *text = filled(text, fleet)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill_in(item, fleet))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|field| fill_in(field, fleet))?,
        _ => {}
    }
    Ok(())
}

fn filled(text: &str, fleet: &FleetConfig) -> Result<String, String> {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(DEVICE) {
        let (name, after) =
            after.split_once('}').ok_or_else(|| format!("{text:?} has \"${{device.\" without \"}}\""))?;
        let value = match name.strip_prefix("label.") {
            Some(label) => {
                let missing = || format!("this device has no label {label:?}, which ${{device.{name}}} needs");
                fleet.labels.get(label).ok_or_else(missing)?
            }
            None if name == "id" => &fleet.device,
            None => return Err(format!("${{device.{name}}} is unknown: use ${{device.id}} or ${{device.label.NAME}}")),
        };
        filled.push_str(before);
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet_section::FleetRole;
    use serde_json::json;

    #[test]
    fn only_an_assignment_under_a_lease_needs_one() {
        let targets = [r#"{"id":"a"}"#.to_owned(), r#"{"id":"b"}"#.to_owned()];
        let read =
            |text: &str| serde_json::from_str(text).map(|Stored { term, targets, .. }| (term, targets.len())).unwrap();
        assert_eq!(read(&stored_assignment(0, &targets)), (0, 2));
        assert_eq!(read(&stored_assignment(7, &targets)), (7, 2));
        let key = crate::definition::assignment_key("dns");
        assert!(needs_lease(&key, &stored_assignment(7, &targets)));
        assert!(!needs_lease(&key, &stored_assignment(0, &targets)) && !needs_lease(&key, "[]"));
        assert!(!needs_lease(&key, STANDBY));
        assert!(!needs_lease("cadence", &stored_assignment(7, &targets)));
    }

    #[test]
    fn a_target_that_no_device_could_poll_is_refused() {
        let with = |more: &str| format!(r#"{{"id":"a","kind":"http","url":"http://a/"{more}}}"#);
        let accepted = [
            with(""),
            with(r#","interval":"1s","secrets":{"token":"of-the-device"}"#),
            with(r#","interval":"${device.label.interval}","labels":{"site":"${device.label.site}"}"#),
            r#"{"id":"${device.id}","kind":"${device.label.kind}","url":"${device.label.url}"}"#.to_owned(),
        ];
        assert_eq!(check_assigned(&accepted), Ok(()));
        for (more, why) in [
            (r#","interval":"soon""#, "interval"),
            (r#","timeout":"1h""#, "timeout: use 100ms to 5m"),
            (r#","retries":3"#, "retries"),
            (r#","tls":{"ca_file":"/a.pem"}"#, "ca_file can only be written in the file"),
        ] {
            let found = check_assigned(&[with(""), with(more)]).unwrap_err();
            assert!(found.contains(why), "{more}: {found}");
        }
    }

    #[test]
    fn the_id_and_the_labels_of_the_device_are_filled_in_everywhere() {
        let fleet = FleetConfig {
            role: FleetRole::Agent,
            url: "nats://broker".to_owned(),
            device: "host-1".to_owned(),
            labels: [("site".to_owned(), "zurich".to_owned())].into(),
            credentials: None,
            kubernetes: None,
            replicas: 1,
            takes_plugins: false,
            tls: crate::target_config::TlsConfig::default(),
        };
        let mut value =
            json!({ "url": "http://${device.id}.${device.label.site}/", "n": 1, "list": ["${device.id}", "$x"] });
        fill_in(&mut value, &fleet).unwrap();
        assert_eq!(value, json!({ "url": "http://host-1.zurich/", "n": 1, "list": ["host-1", "$x"] }));
        for (text, why) in
            [("${device.label.rack}", "no label \"rack\""), ("${device.name}", "unknown"), ("${device.id", "without")]
        {
            assert!(fill_in(&mut json!({ "a": [text] }), &fleet).unwrap_err().contains(why), "{text}");
        }
        let mut other = json!("${other} ${}");
        fill_in(&mut other, &fleet).unwrap();
        assert_eq!(other, json!("${other} ${}"));
    }
}
