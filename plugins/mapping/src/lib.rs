//! Kind `mapping`: converts any JSON to dependencies, with a mapping in the target's settings. The format extends
//! Depsera's SchemaMapping.
//!
//! `{"root": "dot.path", "fields": {"name": ..., "healthy": ..., ...}}`: each element of the array, or each member of
//! the object, at `root` becomes a dependency. A single text, number or boolean at `root` becomes one dependency.
//! Upstream's mappings keep their meaning. These are additions:
//!
//! - If the root is absent or empty, it is the body itself.
//! - `$value` is the value of an element that is not an object.
//! - `equals` may be a number or a boolean.
//! - The field `severity` distinguishes ok, warning and critical. `healthy` is optional then. If both are present, the
//!   worse status counts. Both accept the same words.
//! - A comparison may use other operators than `equals`, and `severity` may be a table of two comparisons.
//! - Keys with dots are written in quotes, or a path is a list of keys.
//! - `overall` is the status of the whole, and `more` are further roots with their fields.
//!
//! These are differences: an element with an unknown word is reported as unknown and not omitted, one without a name
//! gets one from its place, of a key that is repeated the worst value counts, and no code is invented. The body is
//! parsed for any status of the response.

#![deny(unsafe_code)]

mod comparison;
mod evaluate;
mod path;
mod settings;
mod tree;
mod words;

use polliwog_sdk::prelude::*;
use settings::Mapping;
use tree::Node;

/// The plugin for kind `mapping`.
pub struct MappingPoller;

impl Poller for MappingPoller {
    type Settings = Mapping;
    const INFO: Info = Info {
        kind: "mapping",
        title: "JSON mapping",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Dependencies from any JSON, by a mapping of its fields",
        ..Info::SERVICE
    };

    fn check(mapping: &Mapping) -> Vec<SettingsProblem> {
        mapping.problems()
    }

    fn poll(_: &Endpoint, mapping: Mapping) -> Result<Report, CallError> {
        if let Some(problem) = mapping.problems().into_iter().next() {
            return Err(problem.into());
        }
        let response = http::Request::get_json("", &mapping.headers).send()?;
        response.report_expecting(&mapping.expected_status, |response| {
            let text = response.text();
            let body = response.json().or_else(|why| word(&mapping, &text).ok_or(why))?;
            evaluate::report(&mapping, &body)
        })
    }
}

/// The longest status that a body can be, in bytes.
const LONGEST: usize = 64;

/// Returns a body that is a word, as ASP.NET answers. `None` if it has other characters, or the mapping has no use for
/// a single value.
fn word<'a>(mapping: &Mapping, body: &'a str) -> Option<Node<'a>> {
    let body = body.trim();
    let is_word =
        !body.is_empty() && body.len() <= LONGEST && body.chars().all(|c| c.is_alphanumeric() || "_- ".contains(c));
    let mut parts = mapping.parts();
    let is_used = is_word && parts.any(|(root, fields)| root.is_empty() && fields.use_values());
    is_used.then(|| Node::Text(body.into()))
}

polliwog_sdk::register!(MappingPoller);

#[cfg(test)]
mod tests;
