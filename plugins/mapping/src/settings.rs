//! What an operator writes.

use polliwog_sdk::prelude::*;
use polliwog_sdk::serde_json::Value;
use std::collections::BTreeMap;

/// A mapping from JSON to dependencies.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Dot-separated path to the array or object whose elements are the dependencies, or to a single word; absent or empty:
    /// the body itself.
    #[serde(default)]
    pub root: String,
    /// Where each element holds what.
    pub fields: Fields,
    /// Headers of the request; `${secret.NAME}` stands for a secret of the target.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// Where an element holds what. Paths are dot-separated; array indices count from 0. "$value" is an element that is no object.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Fields {
    /// The dependency's name; "$key" is the member's own key where the root is an object, and the last step of the root where
    /// it is a single word.
    pub name: Field,
    /// Where it says how it is: true or false, or one of the words of `severity`; or a comparison.
    pub healthy: Option<Field>,
    /// Where it says how bad it is. Ok: ok, up, healthy, pass, passing, green, true, 0. Warning: warn, warning, degraded,
    /// yellow, 1. Critical: error, critical, crit, down, unhealthy, fail, failed, failing, failure, fatal, red, out_of_service,
    /// false, 2. In any case; every other word is unknown.
    pub severity: Option<String>,
    /// Milliseconds, as a number.
    pub latency: Option<Field>,
    /// What happens when it fails.
    pub impact: Option<Field>,
    /// What it is.
    pub description: Option<Field>,
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: Option<Field>,
    /// Where true, the check was not run on purpose, and the dependency counts as ok.
    pub skipped: Option<Field>,
    /// Path to an object.
    pub check_details: Option<String>,
    /// Path to an object.
    pub contact: Option<String>,
    /// Path to whatever the source says went wrong.
    pub error: Option<String>,
    /// Path to the same as text.
    pub error_message: Option<String>,
}

/// A path, or a comparison of what is found there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Field {
    /// A path.
    Path(String),
    /// True where the value at `field` equals `equals`, as text and in any case.
    Comparison {
        /// A path.
        field: String,
        /// Text, a number or a boolean.
        equals: Scalar,
    },
}

/// Text, a number or a boolean.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// Text.
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
    /// Whether it is meant for elements that are no objects.
    pub(crate) fn use_values(&self) -> bool {
        let of_healthy = self.healthy.as_ref().map(|field| match field {
            Field::Path(path) | Field::Comparison { field: path, .. } => path.as_str(),
        });
        of_healthy.into_iter().chain(self.severity.as_deref()).any(|path| path == "$value")
    }
}

impl Mapping {
    /// Everything that is wrong with it.
    pub(crate) fn problems(&self) -> Vec<String> {
        let fields = &self.fields;
        let mut problems = Vec::new();
        if fields.healthy.is_none() && fields.severity.is_none() {
            problems
                .push("\"fields\" needs \"healthy\" or \"severity\": without either nothing can be told".to_owned());
        }
        problems.extend(foreign("root", &self.root));
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
            problems.extend(path_problem(name, path, name == "name" && comparison.is_none()));
            if matches!(comparison, Some(Scalar::Text(text)) if text.is_empty()) {
                problems.push(format!("\"equals\" of \"{name}\" is empty: write the text that means yes"));
            }
        }
        let paths = [
            ("severity", &fields.severity),
            ("checkDetails", &fields.check_details),
            ("contact", &fields.contact),
            ("error", &fields.error),
            ("errorMessage", &fields.error_message),
        ];
        problems.extend(paths.iter().filter_map(|(name, path)| path_problem(name, path.as_deref()?, false)));
        problems
    }
}

fn path_problem(name: &str, path: &str, key_allowed: bool) -> Option<String> {
    match path {
        "" => Some(format!("\"{name}\" is an empty path: write one, or leave the field out")),
        "$key" if !key_allowed => Some(format!("\"{name}\" cannot be \"$key\": only \"name\" can")),
        "$key" | "$value" => None,
        _ => foreign(name, path),
    }
}

/// A JSON pointer or a JSONPath would find nothing, for ever.
fn foreign(name: &str, path: &str) -> Option<String> {
    let is_pointer = path.starts_with('/');
    let is_json_path = path.starts_with("$.") || path.starts_with("$[") || path.contains('[');
    if !is_pointer && !is_json_path {
        return None;
    }
    let what = if is_pointer { "a JSON pointer" } else { "JSONPath" };
    let steps = path.trim_start_matches('$').replace(['/', '[', ']'], ".").replace("*", "");
    let steps: Vec<&str> =
        steps.split('.').map(|step| step.trim_matches(['"', '\''])).filter(|step| !step.is_empty()).collect();
    Some(format!("\"{name}\" is {what}, {path:?}: paths are written with dots, as {:?}", steps.join(".")))
}
