//! Converts errors of the validator to plain language for operators.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use model::clean;
use serde_json::Value;

/// Maximum length of a shown value in bytes.
const SHOWN: usize = 60;

/// Returns the path of the setting, for example `/a/0`, and a description of the problem.
pub(super) fn problem(error: &ValidationError<'_>) -> (String, String) {
    let here = || error.instance_path().to_string();
    let value = error.instance().as_ref();
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind() {
        return alternatives(context, value, here());
    }
    (here(), description(error.kind(), value).unwrap_or_else(|| error.to_string()))
}

/// Describes a value that matches none of several alternatives.
fn alternatives(context: &[Vec<ValidationError<'static>>], value: &Value, here: String) -> (String, String) {
    let all = || context.iter().flatten();
    let is_constant = |error: &ValidationError<'_>| {
        matches!(error.kind(), ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. })
    };
    let constants: Vec<&Value> = all().flat_map(|error| allowed(error.kind())).collect();
    if !constants.is_empty() && all().all(|error| is_constant(error) || is_type(error)) {
        return (here, none_of(value, &constants));
    }
    // The alternative with the type of the value is probably the intended one.
    let intended = context.iter().find(|errors| errors.iter().all(|error| !is_type_of(error, &here)));
    if let Some(error) = intended.and_then(|errors| errors.first()) {
        return problem(error);
    }
    let types: Vec<String> = all().filter_map(|error| expected(error.kind())).collect();
    if types.is_empty() {
        return (here, format!("{} is not valid", shown(value)));
    }
    (here, format!("{} is {}, expected {}", shown(value), named(value), either(&types)))
}

fn is_type(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Type { .. })
}

fn is_type_of(error: &ValidationError<'_>, path: &str) -> bool {
    is_type(error) && error.instance_path().to_string() == path
}

fn description(kind: &ValidationErrorKind, value: &Value) -> Option<String> {
    use ValidationErrorKind as Kind;
    let it = || shown(value);
    Some(match kind {
        Kind::Type { .. } => {
            let remedy = remedy(kind, value).map_or_else(String::new, |remedy| format!(": write {remedy}"));
            format!("{} is {}, expected {}{remedy}", it(), named(value), expected(kind)?)
        }
        Kind::Enum { .. } | Kind::Constant { .. } => none_of(value, &allowed(kind)),
        Kind::Required { property } => format!("{property} is missing"),
        Kind::Minimum { limit } => format!("{} is below the minimum of {limit}", it()),
        Kind::Maximum { limit } => format!("{} is above the maximum of {limit}", it()),
        Kind::ExclusiveMinimum { limit } => format!("{} must be above {limit}", it()),
        Kind::ExclusiveMaximum { limit } => format!("{} must be below {limit}", it()),
        Kind::MinLength { limit: 1 } => "it is empty".to_owned(),
        Kind::MinLength { limit } => format!("{} is shorter than {limit} characters", it()),
        Kind::MaxLength { limit } => format!("{} is longer than {limit} characters", it()),
        Kind::MinItems { limit: 1 } => "the list is empty".to_owned(),
        Kind::MinItems { limit } => format!("the list has fewer than {limit} entries"),
        Kind::MaxItems { limit } => format!("the list has more than {limit} entries"),
        Kind::UniqueItems => "the list contains an entry twice".to_owned(),
        Kind::Pattern { pattern } => format!("{} does not match the pattern {pattern}", it()),
        _ => return None,
    })
}

/// Returns the allowed constants.
fn allowed(kind: &ValidationErrorKind) -> Vec<&Value> {
    match kind {
        ValidationErrorKind::Constant { expected_value } => vec![expected_value],
        ValidationErrorKind::Enum { options } => options.as_array().map(|all| all.iter().collect()).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn none_of(value: &Value, constants: &[&Value]) -> String {
    let all: Vec<String> = constants.iter().map(|constant| constant.to_string()).collect();
    let same = |constant: &&&Value| match (constant.as_str(), value.as_str()) {
        (Some(constant), Some(value)) => constant.eq_ignore_ascii_case(value),
        _ => false,
    };
    match constants.iter().find(same) {
        Some(constant) => format!("{} must be written {constant}", shown(value)),
        None => format!("{} is not allowed; use one of: {}", shown(value), all.join(", ")),
    }
}

/// Describes the expected type. `None` if the error is not about the type.
fn expected(kind: &ValidationErrorKind) -> Option<String> {
    let ValidationErrorKind::Type { kind } = kind else { return None };
    let types: Vec<String> = match kind {
        TypeKind::Single(single) => vec![single.to_string()],
        TypeKind::Multiple(several) => several.iter().map(|one| one.to_string()).collect(),
    };
    // Settings without a value are omitted, so null is not suggested.
    let types: Vec<String> =
        types.iter().filter(|name| *name != "null").map(|name| type_name(name).to_owned()).collect();
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

fn type_name(json_type: &str) -> &str {
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

/// Returns the value written with the expected type. `None` if there is no obvious way.
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
