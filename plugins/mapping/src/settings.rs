//! The settings of a target of kind `mapping`.

use polliwog_sdk::prelude::*;
use polliwog_sdk::serde_json::Value;
use std::collections::BTreeMap;

/// A mapping from JSON to dependencies.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Dot-separated path to the array or object whose elements are the dependencies, or to a single value. If it is
    /// absent or empty, the body itself is used.
    #[serde(default)]
    pub root: String,
    /// The fields of each element.
    pub fields: Fields,
    /// Headers of the request. `${secret.NAME}` is replaced by a secret of the target.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// The fields of an element. Paths are dot-separated, array indexes start at 0. "$value" is an element that is not an
/// object.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Fields {
    /// The dependency's name. "$key" is the key of the member if the root is an object, and the last step of the root
    /// if the root is a single value.
    pub name: Field,
    /// Whether the dependency is healthy: true or false, one of the words of `severity`, or a comparison.
    pub healthy: Option<Field>,
    /// The severity, case-insensitive. Ok: ok, up, healthy, pass, passing, green, true, 0. Warning: warn, warning,
    /// degraded, yellow, 1. Critical: error, critical, crit, down, unhealthy, fail, failed, failing, failure, fatal,
    /// red, out_of_service, false, 2. Every other value is unknown.
    pub severity: Option<String>,
    /// The latency in milliseconds, as a number.
    pub latency: Option<Field>,
    /// The impact of a failure.
    pub impact: Option<Field>,
    /// A description of the dependency.
    pub description: Option<Field>,
    /// The kind of the dependency, for example "database".
    #[serde(rename = "type")]
    pub kind: Option<Field>,
    /// If true, the check was skipped on purpose, and the dependency counts as ok.
    pub skipped: Option<Field>,
    /// Path to an object with further details.
    pub check_details: Option<String>,
    /// Path to an object with the contact.
    pub contact: Option<String>,
    /// Path to the error of the source, any JSON value.
    pub error: Option<String>,
    /// Path to the error message of the source, a text.
    pub error_message: Option<String>,
}

/// A path, or a comparison of the value at a path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Field {
    /// A dot-separated path.
    Path(String),
    /// True if the value at `field` equals `equals`, compared as text without regard to case.
    Comparison {
        /// A dot-separated path.
        field: String,
        /// A text, a number or a boolean.
        equals: Scalar,
    },
}

/// A text, a number or a boolean.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

impl Scalar {
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Number(number) => Value::from(*number),
            Self::Boolean(boolean) => Value::from(*boolean),
        }
    }
}

impl Fields {
    /// Returns whether the mapping is for elements that are not objects.
    pub(crate) fn use_values(&self) -> bool {
        let of_healthy = self.healthy.as_ref().map(|field| match field {
            Field::Path(path) | Field::Comparison { field: path, .. } => path.as_str(),
        });
        of_healthy.into_iter().chain(self.severity.as_deref()).any(|path| path == "$value")
    }
}

impl Mapping {
    /// Returns all problems of the mapping.
    pub(crate) fn problems(&self) -> Vec<SettingsProblem> {
        let fields = &self.fields;
        let mut problems = Vec::new();
        if fields.healthy.is_none() && fields.severity.is_none() {
            problems.push(SettingsProblem::at("/fields", "it needs healthy or severity, which determine the status"));
        }
        problems.extend(foreign("/root", &self.root));
        let mappings = [
            ("name", Some(&fields.name)),
            ("healthy", fields.healthy.as_ref()),
            ("latency", fields.latency.as_ref()),
            ("impact", fields.impact.as_ref()),
            ("description", fields.description.as_ref()),
            ("type", fields.kind.as_ref()),
            ("skipped", fields.skipped.as_ref()),
        ];
        for (name, field) in mappings.into_iter().filter_map(|(name, field)| Some((name, field?))) {
            let (path, comparison) = match field {
                Field::Path(path) => (path, None),
                Field::Comparison { field, equals } => (field, Some(equals)),
            };
            problems.extend(path_problem(
                name,
                path,
                if name == "name" && comparison.is_none() { KeyPath::Allowed } else { KeyPath::Refused },
            ));
            if matches!(comparison, Some(Scalar::Text(text)) if text.is_empty()) {
                let place = format!("/fields/{name}/equals");
                problems.push(SettingsProblem::at(place, "it is empty: write the text for true"));
            }
        }
        let paths = [
            ("severity", &fields.severity),
            ("checkDetails", &fields.check_details),
            ("contact", &fields.contact),
            ("error", &fields.error),
            ("errorMessage", &fields.error_message),
        ];
        problems.extend(paths.iter().filter_map(|(name, path)| path_problem(name, path.as_deref()?, KeyPath::Refused)));
        problems
    }
}

/// Whether a field may have the path "$key".
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyPath {
    Allowed,
    Refused,
}

fn path_problem(name: &str, path: &str, key_path: KeyPath) -> Option<SettingsProblem> {
    let place = format!("/fields/{name}");
    match path {
        "" => Some(SettingsProblem::at(place, "it is an empty path: write a path or remove the field")),
        "$key" if key_path == KeyPath::Refused => {
            Some(SettingsProblem::at(place, "it cannot be \"$key\": only the field name can"))
        }
        "$key" | "$value" => None,
        _ => foreign(&place, path),
    }
}

/// Returns a problem if the path is a JSON pointer or JSONPath, which would never find a value.
fn foreign(place: &str, path: &str) -> Option<SettingsProblem> {
    let is_pointer = path.starts_with('/');
    let is_json_path = path.starts_with("$.") || path.starts_with("$[") || path.contains('[');
    if !is_pointer && !is_json_path {
        return None;
    }
    let syntax = if is_pointer { "a JSON pointer" } else { "JSONPath" };
    let steps = path.trim_start_matches('$').replace(['/', '[', ']'], ".").replace("*", "");
    let steps: Vec<&str> =
        steps.split('.').map(|step| step.trim_matches(['"', '\''])).filter(|step| !step.is_empty()).collect();
    let message = format!("it is {syntax}, {path:?}: paths are written with dots, as {:?}", steps.join("."));
    Some(SettingsProblem::at(place, message))
}
