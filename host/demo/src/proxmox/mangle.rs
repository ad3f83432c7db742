//! Bodies that are not what they should be: what other versions, proxies and faults make of them.

use super::Wish;
use serde_json::{Map, Value, json};

/// Twice as much as a number in JavaScript holds exactly.
const HUGE: u64 = 1 << 54;

/// What can be wished of any product, and what it is.
pub(super) const WISHES: &[(&str, &str)] = &[
    ("healthy", "nothing is wrong"),
    ("timetable", "it is well for forty seconds, and then lacks a node for twenty"),
    ("silent", "nothing is ever answered"),
    ("login-page", "everything is answered with a web page"),
    ("redirect", "everything is elsewhere"),
    ("plain-text", "bodies are no JSON"),
    ("truncated", "bodies end in the middle"),
    ("unwrapped", "bodies come without their envelope"),
    ("alien", "texts are of a kind that nobody knows"),
    ("strings", "numbers are texts"),
    ("nulls", "numbers are null"),
    ("minus", "numbers are -1"),
    ("huge", "numbers are beyond 2^53"),
    ("lists", "numbers are empty lists"),
    ("without-numbers", "fields with numbers are left out"),
];

/// A body with what was wished done to it.
pub(super) fn body(wish: &Wish, data: Value, total: Option<usize>) -> String {
    let data = numbers(wish, data);
    let data = if wish.has("alien") { alien(data) } else { data };
    let text = match total {
        _ if wish.has("unwrapped") => data.to_string(),
        None => json!({ "data": data }).to_string(),
        Some(total) => json!({ "data": data, "total": numbers(wish, total.into()) }).to_string(),
    };
    if wish.has("truncated") {
        // Bodies are ASCII.
        return text[..text.len() * 2 / 3].to_owned();
    }
    if wish.has("plain-text") { "it works!".to_owned() } else { text }
}

/// Every number as older versions, other tools and broken ones write it.
fn numbers(wish: &Wish, value: Value) -> Value {
    let written: &dyn Fn(&Value) -> Option<Value> = if wish.has("strings") {
        &|number| Some(Value::from(number.to_string()))
    } else if wish.has("nulls") {
        &|_| Some(Value::Null)
    } else if wish.has("minus") {
        &|_| Some(Value::from(-1))
    } else if wish.has("huge") {
        &|_| Some(Value::from(HUGE))
    } else if wish.has("lists") {
        &|_| Some(json!([]))
    } else if wish.has("without-numbers") {
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

/// Types and states that nobody has heard of, and items that are none.
fn alien(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(alien).collect();
            items.push(json!({ "type": "quantum", "id": "quantum/1", "status": "entangled", "state": "entangled" }));
            items.push(json!("a text"));
            items.push(Value::Null);
            Value::Array(items)
        }
        Value::Object(fields) => Value::Object(fields.into_iter().map(stranger).collect::<Map<_, _>>()),
        other => other,
    }
}

fn stranger((name, value): (String, Value)) -> (String, Value) {
    match (name.as_str(), value) {
        ("status" | "state" | "crm_state" | "hastate" | "last-run-state", Value::String(_)) => {
            (name, json!("entangled"))
        }
        (_, value) => (name, alien(value)),
    }
}
