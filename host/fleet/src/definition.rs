//! The text form of a deployment, in files and in the API: JSON with the selectors of Kubernetes.

use crate::wire::{Deployment, ModeWire, RequirementWire, encode};
use crate::{Labels, Requirement};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object with selector and targets")]
struct Written {
    #[serde(default)]
    selector: WrittenSelector,
    #[serde(default)]
    quorum: Option<u32>,
    #[serde(default)]
    once: bool,
    targets: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object with matchLabels and matchExpressions")]
struct WrittenSelector {
    #[serde(default)]
    match_labels: Labels,
    #[serde(default)]
    match_expressions: Vec<WrittenRequirement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object with key, operator and values")]
struct WrittenRequirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

/// Reads a deployment. A later version replaces an earlier one.
///
/// # Errors
/// One sentence that names the wrong part.
pub fn read_deployment(text: &str, version: u64) -> Result<Deployment, String> {
    let Written { selector, quorum, once, targets } = parse(text)?;
    let WrittenSelector { match_labels: labels, match_expressions } = selector;
    let requirements = match_expressions.into_iter().map(requirement).collect::<Result<_, String>>()?;
    let mode = match quorum {
        None if once => ModeWire::Once,
        None => ModeWire::Each,
        Some(_) if once => return Err("once and quorum: use one of them".to_owned()),
        Some(0) => return Err("quorum: use 1 or more, or leave it out".to_owned()),
        Some(needed) => ModeWire::Quorum(needed),
    };
    if targets.is_empty() {
        return Err("targets: a deployment has at least one target".to_owned());
    }
    let mut ids = BTreeSet::new();
    for (place, target) in targets.iter().enumerate() {
        let part = |key: &str| {
            let text = target.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.ok_or_else(|| format!("target {}: {key} is missing or not a text", place + 1))
        };
        let id = part("id")?;
        part("kind")?;
        part("url")?;
        if !ids.insert(id) {
            return Err(format!("target {}: another target has the id {id:?} too", place + 1));
        }
    }
    let targets = targets.iter().map(Value::to_string).collect();
    let deployment = Deployment { version, labels, requirements, targets, mode };
    encode(&deployment).map_err(|error| error.to_string())?;
    Ok(deployment)
}

/// Parses the text. The place of a wrong part is its path, because the text may have been made from another format.
fn parse(text: &str) -> Result<Written, String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let written = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner().to_string());
        match why.rsplit_once(" at line ") {
            Some((why, _)) if error.inner().is_data() && path == "." => why.to_owned(),
            Some((why, _)) if error.inner().is_data() => format!("{path}: {why}"),
            _ => why,
        }
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(written)
}

fn requirement(written: WrittenRequirement) -> Result<RequirementWire, String> {
    let WrittenRequirement { key, operator, values } = written;
    let without_values = |made: fn(String) -> RequirementWire, key: String| match values.is_empty() {
        true => Ok(made(key)),
        false => Err(format!("{key}: {operator} takes no values")),
    };
    match operator.as_str() {
        "In" => Ok(RequirementWire::In(key, values)),
        "NotIn" => Ok(RequirementWire::NotIn(key, values)),
        "Exists" => without_values(RequirementWire::Exists, key),
        "DoesNotExist" => without_values(RequirementWire::DoesNotExist, key),
        _ => Err(format!("{key}: unknown operator {operator:?}: use In, NotIn, Exists or DoesNotExist")),
    }
}

/// Returns the text form of a deployment.
pub fn show_deployment(deployment: &Deployment) -> Value {
    let selector = deployment.selector();
    let expressions: Vec<Value> = (selector.requirements.iter())
        .map(|requirement| match requirement {
            Requirement::In(key, values) => json!({ "key": key, "operator": "In", "values": values }),
            Requirement::NotIn(key, values) => json!({ "key": key, "operator": "NotIn", "values": values }),
            Requirement::Exists(key) => json!({ "key": key, "operator": "Exists" }),
            Requirement::DoesNotExist(key) => json!({ "key": key, "operator": "DoesNotExist" }),
        })
        .collect();
    let targets: Vec<Value> =
        deployment.targets.iter().map(|target| serde_json::from_str(target).unwrap_or_default()).collect();
    let mut shown = json!({
        "selector": { "matchLabels": selector.labels, "matchExpressions": expressions },
        "targets": targets,
    });
    match deployment.mode {
        ModeWire::Each => {}
        ModeWire::Once => shown["once"] = true.into(),
        ModeWire::Quorum(needed) => shown["quorum"] = needed.into(),
    }
    shown
}

/// A deployment with its version, as an operator stores it.
#[derive(Deserialize)]
struct Stored {
    version: u64,
    definition: Value,
}

/// Returns the text that an operator stores.
pub fn stored(deployment: &Deployment) -> String {
    json!({ "version": deployment.version, "definition": show_deployment(deployment) }).to_string()
}

/// Reads the text that an operator stored.
///
/// # Errors
/// As [`read_deployment`].
pub fn read_stored(text: &str) -> Result<Deployment, String> {
    let Stored { version, definition } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    read_deployment(&definition.to_string(), version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_again() {
        let text = r#"{"quorum":2,"selector":{"matchExpressions":[{"key":"env","operator":"In","values":["prod"]},
            {"key":"old","operator":"DoesNotExist"}],"matchLabels":{"site":"a"}},
            "targets":[{"id":"dns","kind":"http","url":"http://${device.id}/"}]}"#;
        let read = read_deployment(text, 7).unwrap();
        assert_eq!((read.version, read.mode), (7, ModeWire::Quorum(2)));
        assert_eq!(read_stored(&stored(&read)).as_ref(), Ok(&read));
        assert_eq!(show_deployment(&read), serde_json::from_str::<Value>(text).unwrap());
        let once =
            read_deployment(r#"{"once":true,"targets":[{"id":"a","kind":"http","url":"http://a"}]}"#, 1).unwrap();
        assert_eq!((once.mode, read_stored(&stored(&once)).as_ref()), (ModeWire::Once, Ok(&once)));
        let everywhere = read_deployment(r#"{"targets":[{"id":"a","kind":"http","url":"http://a"}]}"#, 1).unwrap();
        assert!(everywhere.selector().matches(&Labels::new()));
    }

    #[test]
    fn errors_name_the_wrong_part() {
        let target = r#"{"id":"a","kind":"http","url":"http://a"}"#;
        let with = |selector: &str| format!(r#"{{"selector":{selector},"targets":[{target}]}}"#);
        let cases = [
            ("[]".to_owned(), "an object with selector"),
            ("{}".to_owned(), "missing field `targets`"),
            (r#"{"targets":[]}"#.to_owned(), "at least one target"),
            (r#"{"targets":[{"id":"a","kind":"http"}]}"#.to_owned(), "target 1: url is missing"),
            (r#"{"targets":[7]}"#.to_owned(), "target 1: id is missing"),
            (format!(r#"{{"targets":[{target},{target}]}}"#), "another target has the id \"a\""),
            (format!(r#"{{"quorum":0,"targets":[{target}]}}"#), "quorum: use 1"),
            (with(r#"{"matchLabels":{"a b":"c"}}"#), "the key of a label"),
            (with(r#"{"matchExpressions":[{"key":"a","operator":"Like"}]}"#), "unknown operator \"Like\""),
            (with(r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#), "at least one value"),
            (with(r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}"#), "takes no values"),
            (with(r#"{"labels":{}}"#), "selector.labels: unknown field `labels`"),
            (with(r#"{"matchLabels":{"site":5}}"#), "selector.matchLabels.site: invalid type: integer `5`"),
            (with(r#"{"matchExpressions":[{"key":"a"}]}"#), "selector.matchExpressions[0]: missing field `operator`"),
        ];
        for (text, expected) in cases {
            let found = read_deployment(&text, 1).unwrap_err();
            assert!(found.contains(expected) && !found.contains(" at line "), "{text}: {found}");
        }
        for text in ["{", r#"{"targets":[]} {}"#] {
            let found = read_deployment(text, 1).unwrap_err();
            assert!(found.contains("line 1 column "), "a place helps where it is not JSON: {text}: {found}");
        }
    }
}
