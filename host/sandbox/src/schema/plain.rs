//! What a schema's checker found, in words for whoever wrote the settings.

use crate::convert::clean;
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

/// How much of a value is shown, in characters.
const SHOWN: usize = 60;

/// One problem: the path of the setting that it is about, as `/a/0`, and what is wrong with it.
pub(super) fn problem(error: &ValidationError<'_>) -> (String, String) {
    let here = || error.instance_path().to_string();
    let value = error.instance().as_ref();
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind() {
        return alternatives(context, value, here());
    }
    (here(), words(error.kind(), value).unwrap_or_else(|| error.to_string()))
}

/// Of several that would do, none does.
fn alternatives(context: &[Vec<ValidationError<'static>>], value: &Value, here: String) -> (String, String) {
    let all = || context.iter().flatten();
    let is_word = |error: &ValidationError<'_>| {
        matches!(error.kind(), ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. })
    };
    let words: Vec<&Value> = all().flat_map(|error| allowed(error.kind())).collect();
    if !words.is_empty() && all().all(|error| is_word(error) || is_type(error)) {
        return (here, none_of(value, &words));
    }
    // The one whose type it has is the one that was meant.
    let meant = context.iter().find(|errors| errors.iter().all(|error| !is_type_of(error, &here)));
    if let Some(error) = meant.and_then(|errors| errors.first()) {
        return problem(error);
    }
    let types: Vec<String> = all().filter_map(|error| expected(error.kind())).collect();
    if types.is_empty() {
        return (here, format!("{} does not fit", shown(value)));
    }
    (here, format!("{} is {}, and should be {}", shown(value), named(value), either(&types)))
}

fn is_type(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Type { .. })
}

fn is_type_of(error: &ValidationError<'_>, path: &str) -> bool {
    is_type(error) && error.instance_path().to_string() == path
}

fn words(kind: &ValidationErrorKind, value: &Value) -> Option<String> {
    use ValidationErrorKind as Kind;
    let it = || shown(value);
    Some(match kind {
        Kind::Type { .. } => {
            let remedy = remedy(kind, value).map_or_else(String::new, |remedy| format!(": write {remedy}"));
            format!("{} is {}, and should be {}{remedy}", it(), named(value), expected(kind)?)
        }
        Kind::Enum { .. } | Kind::Constant { .. } => none_of(value, &allowed(kind)),
        Kind::Required { property } => format!("{property} is missing"),
        Kind::Minimum { limit } => format!("{} is below {limit}, the least that is allowed", it()),
        Kind::Maximum { limit } => format!("{} is above {limit}, the most that is allowed", it()),
        Kind::ExclusiveMinimum { limit } => format!("{} is not above {limit}", it()),
        Kind::ExclusiveMaximum { limit } => format!("{} is not below {limit}", it()),
        Kind::MinLength { limit: 1 } => "it is empty".to_owned(),
        Kind::MinLength { limit } => format!("{} is shorter than {limit} characters", it()),
        Kind::MaxLength { limit } => format!("{} is longer than {limit} characters", it()),
        Kind::MinItems { limit: 1 } => "the list is empty".to_owned(),
        Kind::MinItems { limit } => format!("the list has fewer than {limit} entries"),
        Kind::MaxItems { limit } => format!("the list has more than {limit} entries"),
        Kind::UniqueItems => "the list has something twice".to_owned(),
        Kind::Pattern { pattern } => format!("{} does not have the form {pattern}", it()),
        _ => return None,
    })
}

/// The words that would have been right.
fn allowed(kind: &ValidationErrorKind) -> Vec<&Value> {
    match kind {
        ValidationErrorKind::Constant { expected_value } => vec![expected_value],
        ValidationErrorKind::Enum { options } => options.as_array().map(|all| all.iter().collect()).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn none_of(value: &Value, words: &[&Value]) -> String {
    let all: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    let same = |word: &&&Value| match (word.as_str(), value.as_str()) {
        (Some(word), Some(value)) => word.eq_ignore_ascii_case(value),
        _ => false,
    };
    match words.iter().find(same) {
        Some(word) => format!("{} is written {word}", shown(value)),
        None => format!("{} is none of those that are allowed: {}", shown(value), all.join(", ")),
    }
}

/// What type was expected, in words.
fn expected(kind: &ValidationErrorKind) -> Option<String> {
    let ValidationErrorKind::Type { kind } = kind else { return None };
    let types: Vec<String> = match kind {
        TypeKind::Single(single) => vec![single.to_string()],
        TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect(),
    };
    // Whoever wants nothing leaves the setting out.
    let types: Vec<String> = types.iter().filter(|name| *name != "null").map(|name| word(name).to_owned()).collect();
    (!types.is_empty()).then(|| either(&types))
}

fn either(types: &[String]) -> String {
    let mut types: Vec<&str> = types.iter().map(String::as_str).collect();
    types.dedup();
    match types.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => types.concat(),
    }
}

fn word(json_type: &str) -> &str {
    match json_type {
        "array" => "a list",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "object" => "a table",
        "string" => "text",
        other => other,
    }
}

fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// How the same would be written with the type that is expected.
fn remedy(kind: &ValidationErrorKind, value: &Value) -> Option<String> {
    let ValidationErrorKind::Type { kind: TypeKind::Single(single) } = kind else { return None };
    match (single.to_string().as_str(), value) {
        ("array", Value::String(_) | Value::Number(_) | Value::Bool(_)) => Some(format!("[{}]", shown(value))),
        ("string", Value::Number(_) | Value::Bool(_)) => Some(format!("\"{}\"", shown(value))),
        ("integer" | "number", Value::String(text)) => text.trim().parse::<f64>().ok().map(|_| text.trim().to_owned()),
        ("boolean", Value::String(text)) if ["true", "false"].contains(&text.as_str()) => Some(text.clone()),
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    clean(&value.to_string(), SHOWN)
}
