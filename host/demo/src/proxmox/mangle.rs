//! Damaged bodies, as other versions, proxies and faults produce them.

use super::api::Scenario;
use serde_json::{Map, Value, json};

/// Twice the largest integer that a JavaScript number represents exactly.
const HUGE: u64 = 1 << 54;

/// The scenarios of all products, with descriptions.
pub(super) const SCENARIOS: &[(&str, &str)] = &[
    ("healthy", "no faults"),
    ("timetable", "healthy for 40 seconds, then a node is offline for 20 seconds"),
    ("silent", "no request is answered"),
    ("login-page", "every answer is a web page"),
    ("redirect", "every answer is a redirect"),
    ("plain-text", "bodies are not JSON"),
    ("truncated", "bodies are truncated"),
    ("unwrapped", "bodies have no envelope"),
    ("alien", "types and states are unknown"),
    ("strings", "numbers are strings"),
    ("nulls", "numbers are null"),
    ("minus", "numbers are -1"),
    ("huge", "numbers are beyond 2^53"),
    ("lists", "numbers are empty lists"),
    ("without-numbers", "fields with numbers are omitted"),
    ("twins", "lists have each item a second time, failed"),
    ("twins-first", "lists have each item a second time, failed, before the other"),
];

/// Returns the body of an answer, damaged by the scenario.
pub(super) fn body(scenario: &Scenario, data: Value, total: Option<usize>) -> String {
    let data = numbers(scenario, data);
    let data = if scenario.has("alien") { alien(data) } else { data };
    let data = match (scenario.has("twins"), scenario.has("twins-first")) {
        (false, false) => data,
        (_, is_first) => twins(data, is_first),
    };
    let text = match total {
        _ if scenario.has("unwrapped") => data.to_string(),
        None => json!({ "data": data }).to_string(),
        Some(total) => json!({ "data": data, "total": numbers(scenario, total.into()) }).to_string(),
    };
    if scenario.has("truncated") {
        // Bodies are ASCII.
        return text[..text.len() * 2 / 3].to_owned();
    }
    if scenario.has("plain-text") { "it works!".to_owned() } else { text }
}

/// Rewrites every number as older versions, other tools or faulty tools do.
fn numbers(scenario: &Scenario, value: Value) -> Value {
    let written: &dyn Fn(&Value) -> Option<Value> = if scenario.has("strings") {
        &|number| Some(Value::from(number.to_string()))
    } else if scenario.has("nulls") {
        &|_| Some(Value::Null)
    } else if scenario.has("minus") {
        &|_| Some(Value::from(-1))
    } else if scenario.has("huge") {
        &|_| Some(Value::from(HUGE))
    } else if scenario.has("lists") {
        &|_| Some(json!([]))
    } else if scenario.has("without-numbers") {
        &|_| None
    } else {
        return value;
    };
    each_number(value, written).unwrap_or(Value::Null)
}

fn each_number(value: Value, written: &dyn Fn(&Value) -> Option<Value>) -> Option<Value> {
    match value {
        Value::Number(_) => written(&value),
        Value::Array(items) => Some(items.into_iter().filter_map(|item| each_number(item, written)).collect()),
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(name, field)| Some((name, each_number(field, written)?)));
            Some(Value::Object(kept.collect()))
        }
        other => Some(other),
    }
}

/// Adds a failed copy of each object to its list.
fn twins(value: Value, is_first: bool) -> Value {
    let Value::Array(items) = value else { return value };
    let pair = |item: Value| match failed(&item) {
        Some(failed) if is_first => vec![failed, item],
        Some(failed) => vec![item, failed],
        None => vec![item],
    };
    items.into_iter().flat_map(pair).collect()
}

/// A copy of an object with the words and flags of a failure; `None` if it has none.
fn failed(item: &Value) -> Option<Value> {
    let mut copy = item.clone();
    let fields = copy.as_object_mut()?;
    if fields.contains_key("store") && fields.contains_key("total") {
        fields.insert("error".to_owned(), json!("the disk does not answer"));
    }
    for (name, value) in fields {
        let bad = match (name.as_str(), value.as_str()) {
            ("status", Some("online")) => json!("offline"),
            ("status", Some("running")) => json!("stopped"),
            ("status", Some("available")) => json!("unknown"),
            ("state", Some("running")) => json!("failed"),
            ("state", Some("started")) => json!("error"),
            ("online" | "active", None) => json!(0),
            _ => continue,
        };
        *value = bad;
    }
    Some(copy).filter(|copy| copy != item)
}

/// Replaces states by unknown ones, and adds items of unknown types to lists.
fn alien(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(alien).collect();
            items.push(json!({ "type": "quantum", "id": "quantum/1", "status": "entangled", "state": "entangled" }));
            items.push(json!("a text"));
            items.push(Value::Null);
            Value::Array(items)
        }
        Value::Object(fields) => Value::Object(fields.into_iter().map(alien_field).collect::<Map<_, _>>()),
        other => other,
    }
}

fn alien_field((name, value): (String, Value)) -> (String, Value) {
    match (name.as_str(), value) {
        ("status" | "state" | "crm_state" | "hastate" | "last-run-state", Value::String(_)) => {
            (name, json!("entangled"))
        }
        (_, value) => (name, alien(value)),
    }
}
