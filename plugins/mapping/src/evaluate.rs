//! Applies a mapping to a body. Pure.

use crate::settings::{Field, Fields, Mapping};
use polliwog_sdk::prelude::*;
use polliwog_sdk::serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;

pub(crate) fn report(mapping: &Mapping, body: &Value) -> Result<Report, CallError> {
    if !body.is_array() && !body.is_object() {
        return Err(shape("the body is neither a JSON array nor an object".to_owned()));
    }
    let root = if mapping.root.is_empty() { Some(Cow::Borrowed(body)) } else { resolve(body, &mapping.root) };
    let mut warnings = BTreeSet::new();
    let mut dependencies = Vec::new();
    let mut take = |item: Item<'_>| match dependency(&mapping.fields, &item, &mut warnings) {
        Ok(dependency) => dependencies.push(dependency),
        Err(warning) => drop(warnings.insert(warning)),
    };
    match root.as_deref() {
        Some(Value::Array(items)) => {
            items.iter().enumerate().for_each(|(index, value)| take(Item { place: Place::Index(index), value }));
        }
        Some(Value::Object(members)) => {
            in_js_order(members).into_iter().for_each(|(key, value)| take(Item { place: Place::Key(key), value }));
        }
        Some(value) if !value.is_null() && mapping.fields.use_values() => {
            let (_, key) = mapping.root.rsplit_once('.').unwrap_or(("", &mapping.root));
            take(Item { place: Place::Key(key), value });
        }
        _ => {
            let root = &mapping.root;
            return Err(shape(format!(
                "there is no array or object at the mapping's root {root:?} in the body (if it is a single value, use \
                 \"$value\" for healthy or severity)"
            )));
        }
    }
    Ok(Report { warnings: warnings.into_iter().collect(), ..dependencies.into_iter().collect() })
}

fn shape(message: String) -> CallError {
    CallError::transient("unexpected_shape", message)
}

struct Item<'a> {
    place: Place<'a>,
    value: &'a Value,
}

enum Place<'a> {
    Index(usize),
    Key(&'a str),
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "item {index}"),
            Self::Key(key) => write!(f, "member {key:?}"),
        }
    }
}

fn dependency(fields: &Fields, item: &Item<'_>, warnings: &mut BTreeSet<String>) -> Result<Dependency, String> {
    let Item { place, value } = item;
    if !value.is_object() && !fields.use_values() {
        return Err(format!("{place} is skipped: it is not a JSON object"));
    }
    let name = match (&fields.name, place) {
        (Field::Path(path), Place::Key(key)) if path == "$key" => Some((*key).to_owned()),
        (field, _) => string(Some(field), value),
    };
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| format!("{place} is skipped: its \"name\" is missing or not a text"))?;
    let skipped = fields.skipped.as_ref().and_then(|field| healthy(field, value)) == Some(Status::Ok);
    let status = if skipped { Status::Ok } else { status(fields, &name, value, warnings) };
    Ok(Dependency {
        kind: string(fields.kind.as_ref(), value).filter(|kind| !kind.trim().is_empty()),
        latency_ms: found(fields.latency.as_ref(), value).and_then(|latency| latency.as_f64()),
        description: string(fields.description.as_ref(), value),
        impact: string(fields.impact.as_ref(), value),
        error: at(fields.error.as_deref(), value).filter(|error| !error.is_null()).map(|error| error.to_string()),
        error_message: at(fields.error_message.as_deref(), value).and_then(|message| text(&message)),
        contact: object(fields.contact.as_deref(), value),
        check_details: object(fields.check_details.as_deref(), value),
        ..Dependency::new(name, status).with_skipped(skipped)
    })
}

/// Returns the worse of `healthy` and `severity` if both are mapped, and unknown if neither can be read.
fn status(fields: &Fields, name: &str, item: &Value, warnings: &mut BTreeSet<String>) -> Status {
    let mut unknown = |field: &str, path: &str| {
        let found = resolve(item, path).map_or_else(|| "missing".to_owned(), |value| value.to_string());
        warnings.insert(format!("the {field:?} of {name:?} is {found}, which is not a known word"));
        Status::Unknown
    };
    let plain = fields.healthy.as_ref().map(|field| {
        let (Field::Path(path) | Field::Comparison { field: path, .. }) = field;
        healthy(field, item).unwrap_or_else(|| unknown("healthy", path))
    });
    let graded = fields.severity.as_deref().and_then(|path| {
        let value = at(Some(path), item).filter(|value| !value.is_null());
        match value {
            // One of the two fields is sufficient.
            None if plain.is_some() => None,
            value => Some(value.and_then(|value| severity(&value)).unwrap_or_else(|| unknown("severity", path))),
        }
    });
    plain.into_iter().chain(graded).reduce(Status::worse).unwrap_or(Status::Unknown)
}

fn severity(value: &Value) -> Option<Status> {
    match js_string(value)?.as_str() {
        "0" => Some(Status::Ok),
        "1" => Some(Status::Warning),
        "2" => Some(Status::Critical),
        text => word(text),
    }
}

/// Converts a word of a health endpoint: those of Depsera, Spring Boot, ASP.NET, and the draft
/// draft-inadarei-api-health-check-06 (pass, warn, fail).
fn word(text: &str) -> Option<Status> {
    match text.trim().to_lowercase().as_str() {
        "ok" | "up" | "healthy" | "pass" | "passing" | "green" | "true" => Some(Status::Ok),
        "warn" | "warning" | "degraded" | "yellow" => Some(Status::Warning),
        "error" | "critical" | "crit" | "down" | "unhealthy" | "fail" | "failed" | "failing" | "failure" | "fatal"
        | "red" | "out_of_service" | "false" => Some(Status::Critical),
        _ => None,
    }
}

/// Evaluates the field `healthy` or `skipped`. `None` if the value is missing or not known.
fn healthy(field: &Field, item: &Value) -> Option<Status> {
    let plain = |healthy: bool| if healthy { Status::Ok } else { Status::Critical };
    match field {
        Field::Path(path) => match resolve(item, path)?.as_ref() {
            Value::Bool(healthy) => Some(plain(*healthy)),
            Value::String(text) => word(text),
            _ => None,
        },
        Field::Comparison { field, equals } => {
            let value = resolve(item, field).filter(|value| !value.is_null())?;
            let lower = |value: &Value| js_string(value).map(|text| text.to_lowercase());
            Some(plain(lower(&value).is_some_and(|text| Some(text) == lower(&equals.to_value()))))
        }
    }
}

/// Returns the value of a field. A comparison yields a boolean, which is neither text nor number. Like upstream, it is
/// ignored except in `healthy` and `skipped`.
fn found<'a>(field: Option<&Field>, item: &'a Value) -> Option<Cow<'a, Value>> {
    match field? {
        Field::Path(path) => resolve(item, path),
        Field::Comparison { .. } => None,
    }
}

fn string(field: Option<&Field>, item: &Value) -> Option<String> {
    text(found(field, item)?.as_ref())
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn at<'a>(path: Option<&str>, item: &'a Value) -> Option<Cow<'a, Value>> {
    resolve(item, path?)
}

fn object(path: Option<&str>, item: &Value) -> Option<String> {
    at(path, item).filter(|value| value.is_object()).map(|value| value.to_string())
}

/// Follows a path through members, array indexes and the `length` of arrays. Dots cannot be escaped. `$value` is an
/// element that is not an object.
fn resolve<'a>(value: &'a Value, path: &str) -> Option<Cow<'a, Value>> {
    if path == "$value" && !value.is_object() {
        return Some(Cow::Borrowed(value));
    }
    let (parent, step) = match path.rsplit_once('.') {
        Some((parent, step)) => (resolve(value, parent)?, step),
        None => (Cow::Borrowed(value), path),
    };
    match parent {
        Cow::Borrowed(Value::Object(members)) => members.get(step).map(Cow::Borrowed),
        Cow::Borrowed(Value::Array(items)) if step == "length" => Some(Cow::Owned(Value::from(items.len()))),
        Cow::Borrowed(Value::Array(items)) => {
            let index = step.parse::<usize>().ok().filter(|index| index.to_string() == step)?;
            items.get(index).map(Cow::Borrowed)
        }
        _ => None,
    }
}

/// Returns the members of an object in the order of JavaScript: array-index keys ascending, then the others in their
/// original order.
fn in_js_order(members: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let index = |key: &str| key.parse::<u32>().ok().filter(|&n| n < u32::MAX && n.to_string() == key);
    let mut ordered: Vec<_> = members.iter().map(|(key, value)| (key.as_str(), value)).collect();
    ordered.sort_by_key(|(key, _)| index(key).map_or((1, 0), |n| (0, n)));
    ordered
}

/// Implements JavaScript's `String(value)`. `None` for null, which equals nothing.
fn js_string(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        Value::Number(number) => number.as_f64().map(js_number),
        Value::Array(items) => {
            Some(items.iter().map(|item| js_string(item).unwrap_or_default()).collect::<Vec<_>>().join(","))
        }
        Value::Object(_) => Some("[object Object]".to_owned()),
        Value::Null => None,
    }
}

/// Implements ECMAScript's Number::toString: an exponent from 1e21 and below 1e-6, otherwise plain digits without a
/// trailing `.0`.
fn js_number(number: f64) -> String {
    let size = number.abs();
    if number == 0.0 {
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    if size >= 1.0 { text.replace('e', "e+") } else { text }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_like_in_javascript() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (200.0, "200"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (1.5e-7, "1.5e-7"),
        ] {
            assert_eq!(js_number(number), text);
        }
    }
}
