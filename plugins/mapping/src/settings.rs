//! The settings of a target of kind `mapping`.

use crate::comparison::{Bounds, Comparison, Field, Severity};
use crate::path::Path;
use polliwog_sdk::http::ExpectedStatus;
use polliwog_sdk::prelude::*;
use std::collections::BTreeMap;

/// A mapping from JSON to dependencies.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Path to the array or object whose elements are the dependencies, or to a single value. If it is absent or empty,
    /// the body itself is used.
    #[serde(default)]
    pub root: Path,
    /// The fields of each element.
    pub fields: Fields,
    /// Path to the status of the whole, one of the words of `severity`. It becomes a dependency with the last key as
    /// name.
    pub overall: Option<Path>,
    /// Further parts of the body, each with another root and its fields.
    #[serde(default)]
    pub more: Vec<Part>,
    /// Headers of the request. `${secret.NAME}` is replaced by a secret of the target.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The expected statuses of the answer: numbers or classes such as "2xx". With another one, the target is critical
    /// even if every part is ok.
    #[serde(default = "ExpectedStatus::success")]
    pub expected_status: Vec<ExpectedStatus>,
}

/// One more part of the body.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Path to its array, object or value.
    #[serde(default)]
    pub root: Path,
    /// The fields of each element.
    pub fields: Fields,
}

/// The fields of an element. A path has keys with dots between them; array indexes start at 0; a key with dots is
/// written in quotes. "$value" is an element that is not an object.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Fields {
    /// The dependency's name: a text, a number, true or false. "$key" is the key of the member if the root is an
    /// object, and the last step of the root if the root is a single value.
    pub name: Field,
    /// Whether the dependency is healthy: true or false, one of the words of `severity`, or a comparison.
    pub healthy: Option<Field>,
    /// The severity, case-insensitive. Ok: ok, up, healthy, pass, passing, green, true, 0. Warning: warn, warning,
    /// degraded, yellow, 1. Critical: error, critical, crit, down, unhealthy, fail, failed, failing, failure, fatal,
    /// red, out_of_service, false, 2. Every other value is unknown. Or a table with the comparisons `warning` and
    /// `critical`.
    pub severity: Option<Severity>,
    /// The latency in milliseconds, as a number; or a time span (00:00:00.012).
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
    pub check_details: Option<Path>,
    /// Path to an object with the contact.
    pub contact: Option<Path>,
    /// Path to the error of the source, any JSON value.
    pub error: Option<Path>,
    /// Path to the error message of the source, a text.
    pub error_message: Option<Path>,
}

impl Fields {
    /// Returns the paths and comparisons that determine the status, with their places.
    pub(crate) fn of_status(&self) -> impl Iterator<Item = &Path> {
        let healthy = self.healthy.iter().map(Field::path);
        healthy.chain(self.severity.iter().flat_map(Severity::paths))
    }

    /// Returns whether the mapping is for elements that are not objects.
    pub(crate) fn use_values(&self) -> bool {
        self.of_status().any(|path| path.is_step("$value"))
    }

    /// Returns whether a path to the status begins with an index: the elements are lists.
    pub(crate) fn use_lists(&self) -> bool {
        self.of_status().any(|path| path.steps.first().is_some_and(|step| step.parse::<usize>().is_ok()))
    }

    /// Adds the problems of the fields at a place.
    fn add_problems(&self, at: &str, problems: &mut Vec<SettingsProblem>) {
        if self.healthy.is_none() && self.severity.is_none() {
            problems.push(SettingsProblem::at(at, "it needs healthy or severity, which determine the status"));
        }
        let fields = [
            ("name", Some(&self.name)),
            ("healthy", self.healthy.as_ref()),
            ("latency", self.latency.as_ref()),
            ("impact", self.impact.as_ref()),
            ("description", self.description.as_ref()),
            ("type", self.kind.as_ref()),
            ("skipped", self.skipped.as_ref()),
        ];
        for (name, field) in fields.into_iter().filter_map(|(name, field)| Some((name, field?))) {
            let place = format!("{at}/{name}");
            match field {
                Field::Path(path) if name == "name" && path.is_step("$key") => {}
                Field::Path(path) => problems.extend(path_problem(&place, path)),
                Field::Comparison(comparison) => add_comparison(&place, comparison, problems),
            }
        }
        let place = format!("{at}/severity");
        match &self.severity {
            Some(Severity::Path(path)) => problems.extend(path_problem(&place, path)),
            Some(Severity::Bounds(bounds)) => {
                let Bounds { warning, critical } = &**bounds;
                if warning.is_none() && critical.is_none() {
                    problems.push(SettingsProblem::at(place.as_str(), "it is empty: add warning or critical"));
                }
                for (name, bound) in [("warning", warning), ("critical", critical)] {
                    bound.iter().for_each(|bound| add_comparison(&format!("{place}/{name}"), bound, problems));
                }
            }
            None => {}
        }
        let paths = [
            ("checkDetails", &self.check_details),
            ("contact", &self.contact),
            ("error", &self.error),
            ("errorMessage", &self.error_message),
        ];
        let found = paths.iter().filter_map(|(name, path)| path_problem(&format!("{at}/{name}"), path.as_ref()?));
        problems.extend(found);
    }
}

impl Mapping {
    /// Returns the parts of the body: roots with their fields.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Path, &Fields)> {
        [(&self.root, &self.fields)].into_iter().chain(self.more.iter().map(|part| (&part.root, &part.fields)))
    }

    /// Returns all problems of the mapping.
    pub(crate) fn problems(&self) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        let place = |at: usize| if at == 0 { String::new() } else { format!("/more/{}", at - 1) };
        for (at, (root, fields)) in self.parts().enumerate() {
            let problem = root.problem.as_ref().map(|why| SettingsProblem::at(place(at) + "/root", why.as_str()));
            problems.extend(problem);
            fields.add_problems(&(place(at) + "/fields"), &mut problems);
        }
        problems.extend(self.overall.as_ref().and_then(|path| path_problem("/overall", path)));
        problems.extend(ExpectedStatus::problems(&self.expected_status));
        problems.extend(http::header_problems(&self.headers));
        problems
    }
}

fn add_comparison(place: &str, comparison: &Comparison, problems: &mut Vec<SettingsProblem>) {
    problems.extend(path_problem(&format!("{place}/field"), &comparison.field));
    problems.extend(comparison.problem().map(|(key, why)| SettingsProblem::at(format!("{place}{key}"), why)));
}

fn path_problem(place: &str, path: &Path) -> Option<SettingsProblem> {
    let why = match &path.problem {
        Some(why) => why.as_str(),
        None if path.is_empty() => "it is an empty path: write a path or remove the field",
        None if path.is_step("$key") => "it cannot be \"$key\": only the field name can",
        None => return None,
    };
    Some(SettingsProblem::at(place, why))
}
