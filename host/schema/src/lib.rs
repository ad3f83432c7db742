//! Validates the settings of a plugin against its JSON Schema. The schema comes from the plugin, so it is not trusted.
//!
//! The validator of the library is generic, so the crate that uses it compiles it. It has this small crate, because
//! nothing in it needs to be fast.

#![forbid(unsafe_code)]

mod defaults;
mod plain;

pub use defaults::with_defaults;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use model::clean;
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum length of a schema in bytes.
const LONGEST: usize = 256 << 10;
/// Maximum number of parts of a schema after all references are followed. Each part takes some kilobytes in the
/// validator.
const PARTS: usize = 4_000;
/// Maximum nesting of parts after all references are followed, because the validator recurses on the stack.
const DEPTH: usize = 64;
/// Maximum number of patterns of a schema.
const PATTERNS: usize = 100;
/// Maximum length of a pattern in bytes.
const PATTERN_BYTES: usize = 256;
/// Maximum size of a compiled pattern in bytes.
const COMPILED: usize = 64 << 10;
/// Maximum length of a shown error of the validator, in bytes.
const SHOWN: usize = 256;

/// A problem with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsProblem {
    /// The path of the setting, for example `guests.expected.0`. `None` if it is not known.
    pub setting: Option<String>,
    /// The problem in one sentence.
    pub message: String,
}

impl SettingsProblem {
    /// Creates a problem of the setting at a JSON pointer, which the message begins with. The empty pointer stands for
    /// no setting.
    pub fn at(pointer: &str, message: String) -> Self {
        match pointer.trim_start_matches('/') {
            "" => Self { setting: None, message },
            path => {
                let setting = path.replace('/', ".");
                Self { message: format!("{setting}: {message}"), setting: Some(setting) }
            }
        }
    }
}

impl fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A schema that can validate settings. It is compiled again if it is needed after [`rest`](Self::rest).
pub struct Schema(Mutex<Option<Arc<Validator>>>);

impl Schema {
    /// Parses a document and compiles it to a schema. The error completes a sentence that begins with "its settings
    /// schema".
    pub fn read(text: &str) -> Result<(Value, Self), String> {
        if text.len() > LONGEST {
            return Err("is longer than 256 KiB".to_owned());
        }
        let document: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        expand(&document, &document, &mut Vec::new(), &mut Budget { parts: PARTS, depth: DEPTH })?;
        check_patterns(&document, &mut { PATTERNS })?;
        let validator = compile(&document)?;
        Ok((document, Self(Mutex::new(Some(Arc::new(validator))))))
    }

    /// Frees the memory of the validator until it is needed.
    pub fn rest(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn validator(&self, document: &Value) -> Result<Arc<Validator>, String> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = &*held {
            return Ok(validator.clone());
        }
        Ok(held.insert(Arc::new(compile(document)?)).clone())
    }

    /// Returns a problem of the schema itself: no settings are valid, or one of its defaults is not valid.
    pub fn own_problem(&self, document: &Value) -> Option<String> {
        if *document == false {
            return Some("is false: no settings can be valid".to_owned());
        }
        let properties = document["properties"].as_object()?;
        properties.iter().find_map(|(name, schema)| {
            let default = resolved(document, schema).get("default").or_else(|| schema.get("default"))?;
            let settings = Value::Object([(name.clone(), default.clone())].into_iter().collect());
            let inside = format!("{name}.");
            let about = |problem: &SettingsProblem| {
                problem.setting.as_ref().is_some_and(|setting| setting == name || setting.starts_with(&inside))
            };
            let problem = self.problems(document, &settings).into_iter().find(about)?;
            Some(format!("has a default that is not valid: {problem}"))
        })
    }

    /// Returns the problems of settings. `document` must be the source of this schema.
    pub fn problems(&self, document: &Value, settings: &Value) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        unknown_keys(SchemaPart { root: document, schema: document }, settings, "", &mut problems);
        let has_unknown_keys = !problems.is_empty();
        let is_new = |error: &ValidationError<'_>| {
            !(has_unknown_keys && matches!(error.kind(), ValidationErrorKind::AdditionalProperties { .. }))
        };
        let problem = |error: ValidationError<'_>| {
            let (path, message) = plain::problem(&error);
            SettingsProblem::at(&path, message)
        };
        match self.validator(document) {
            Ok(validator) => problems.extend(validator.iter_errors(settings).filter(is_new).map(problem)),
            Err(why) => problems.push(SettingsProblem { setting: None, message: format!("the schema {why}") }),
        }
        problems
    }
}

/// Compiles a schema. The error completes a sentence that begins with "the schema".
fn compile(document: &Value) -> Result<Validator, String> {
    // Use a regex engine without backtracking, because neither the pattern nor the text is trusted.
    let patterns = PatternOptions::regex().size_limit(COMPILED).dfa_size_limit(COMPILED);
    let built = jsonschema::options().with_pattern_options(patterns).build(document);
    built.map_err(|error| format!("is not a JSON Schema: {}", clean(&error.to_string(), SHOWN)))
}

/// A part of a schema, with the document that its references point into.
#[derive(Clone, Copy)]
struct SchemaPart<'a> {
    root: &'a Value,
    schema: &'a Value,
}

/// Collects the unknown keys of settings, each with the most similar known key. `place` is the path of `settings`.
fn unknown_keys(part: SchemaPart<'_>, settings: &Value, place: &str, problems: &mut Vec<SettingsProblem>) {
    let SchemaPart { root, schema } = part;
    let schema = table_alternative(root, resolved(root, schema));
    let inside = |key: &str| if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
    if let Some(items) = settings.as_array() {
        for (index, item) in items.iter().enumerate() {
            unknown_keys(SchemaPart { root, schema: &schema["items"] }, item, &inside(&index.to_string()), problems);
        }
    }
    let Some(settings) = settings.as_object() else { return };
    let none = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
    known.sort_unstable();
    for (key, value) in settings {
        match properties.get(key) {
            Some(schema) => unknown_keys(SchemaPart { root, schema }, value, &inside(key), problems),
            None if schema["additionalProperties"] == false => {
                let of = if place.is_empty() { String::new() } else { format!(" in {place}") };
                let message = format!("unknown key {key:?}{of}{}", suggestion(key, &known));
                problems.push(SettingsProblem { setting: Some(inside(key)), message });
            }
            None => {}
        }
    }
}

/// Follows the `$ref` of a schema. Returns the schema itself if it has none.
pub fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    // Schemas need fewer steps. The limit ends a cycle.
    const STEPS: usize = 8;
    for _ in 0..STEPS {
        let referred = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?));
        match referred {
            Some(found) => schema = found,
            None => break,
        }
    }
    schema
}

/// Returns the alternative of a schema that is a table with properties. Returns the schema itself if there is not
/// exactly one.
fn table_alternative<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    /// Maximum nesting of alternatives, for example an optional value with several types.
    const DEPTH: usize = 3;
    let mut offered = vec![schema];
    for _ in 0..DEPTH {
        let inner =
            |schema: &'a Value| ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
        let shapes = |schema: &'a Value| match inner(schema).count() {
            0 => vec![schema],
            _ => inner(schema).map(|schema| resolved(root, schema)).collect(),
        };
        offered = offered.into_iter().flat_map(shapes).collect();
    }
    let mut tables = offered.into_iter().filter(|schema| schema["properties"].is_object());
    match (tables.next(), tables.next()) {
        (Some(table), None) => table,
        _ => schema,
    }
}

fn suggestion(key: &str, known: &[&str]) -> String {
    const NEAR: f64 = 0.8;
    let near = known.iter().map(|name| (strsim::jaro_winkler(key, name), name)).filter(|(score, _)| *score >= NEAR);
    match near.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        Some((_, name)) => format!(": did you mean {name:?}?"),
        None if known.is_empty() => "; no keys are allowed".to_owned(),
        None => format!("; use one of: {}", known.join(", ")),
    }
}

/// Follows every reference of a schema like a validator. Fails if the schema is recursive or too large, because the
/// validator itself has no limit.
fn expand<'a>(root: &'a Value, part: &'a Value, path: &mut Vec<&'a str>, budget: &mut Budget) -> Result<(), String> {
    let parts = budget.parts.checked_sub(1);
    budget.parts = parts.ok_or_else(|| format!("has more than {PARTS} parts after references are followed"))?;
    let depth = budget.depth.checked_sub(1);
    budget.depth =
        depth.ok_or_else(|| format!("is nested more than {DEPTH} levels deep after references are followed"))?;
    expand_inside(root, part, path, budget)?;
    budget.depth += 1;
    Ok(())
}

fn expand_inside<'a>(
    root: &'a Value,
    part: &'a Value,
    path: &mut Vec<&'a str>,
    budget: &mut Budget,
) -> Result<(), String> {
    match part {
        Value::Array(parts) => parts.iter().try_for_each(|part| expand(root, part, path, budget)),
        Value::Object(entries) => {
            for (key, value) in entries {
                match (key.as_str(), value) {
                    ("$dynamicRef" | "$recursiveRef", _) => {
                        return Err(format!("uses {key}, which is not supported"));
                    }
                    ("$ref", Value::String(target)) => follow(root, target, path, budget)?,
                    // Definitions are counted at their references.
                    ("$defs" | "definitions", _) => {}
                    (_, value) => expand(root, value, path, budget)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The remaining number of parts and levels.
struct Budget {
    parts: usize,
    depth: usize,
}

/// Checks the number and length of all patterns, because the time and memory to parse a pattern are not bounded
/// otherwise. The recursion is bounded: the document is not deeply nested, except for unused definitions, which stay
/// within the limit of the JSON parser.
fn check_patterns(part: &Value, left: &mut usize) -> Result<(), String> {
    let mut pattern = |text: &str| {
        *left = left.checked_sub(1).ok_or_else(|| format!("has more than {PATTERNS} patterns"))?;
        if text.len() > PATTERN_BYTES {
            Err(format!("has a pattern of more than {PATTERN_BYTES} bytes"))
        } else {
            Ok(())
        }
    };
    match part {
        Value::Array(parts) => parts.iter().try_for_each(|part| check_patterns(part, left)),
        Value::Object(entries) => {
            if let Some(Value::String(text)) = entries.get("pattern") {
                pattern(text)?;
            }
            if let Some(Value::Object(by_pattern)) = entries.get("patternProperties") {
                by_pattern.keys().try_for_each(|text| pattern(text))?;
            }
            entries.values().try_for_each(|part| check_patterns(part, left))
        }
        _ => Ok(()),
    }
}

fn follow<'a>(root: &'a Value, target: &'a str, path: &mut Vec<&'a str>, budget: &mut Budget) -> Result<(), String> {
    if path.contains(&target) {
        return Err(format!("refers to itself with {}", clean(target, 60)));
    }
    let pointer = target.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
    let found = pointer.and_then(|pointer| root.pointer(pointer));
    let found = found.ok_or_else(|| format!("refers to {}, which does not exist", clean(target, 60)))?;
    path.push(target);
    expand(root, found, path, budget)?;
    path.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_keys_are_reported_with_the_most_similar_key_at_every_depth() {
        let schema = json!({
            "additionalProperties": false,
            "properties": { "guests": { "$ref": "#/$defs/Guests" }, "free": { "type": "object" }, "loop": { "$ref": "#/properties/loop" },
                "either": { "anyOf": [{ "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/Guests" }] }, { "type": "null" }] } },
            "$defs": { "Guests": {
                "additionalProperties": false,
                "properties": { "expected": {}, "each": { "items": { "$ref": "#/$defs/Guests" } } },
            } },
        });
        for (settings, expected) in [
            (json!({ "guests": { "expected": [] }, "free": { "x": 1 }, "loop": { "x": 1 } }), vec![]),
            (json!({ "either": { "eech": [] } }), vec!["unknown key \"eech\" in either: did you mean \"each\"?"]),
            (json!({ "gests": {} }), vec!["unknown key \"gests\": did you mean \"guests\"?"]),
            (
                json!({ "guests": { "expcted": 1 } }),
                vec!["unknown key \"expcted\" in guests: did you mean \"expected\"?"],
            ),
            (
                json!({ "zzz": 1, "guests": { "each": [{}, { "qqq": 1 }] } }),
                vec![
                    "unknown key \"qqq\" in guests.each.1; use one of: each, expected",
                    "unknown key \"zzz\"; use one of: either, free, guests, loop",
                ],
            ),
        ] {
            let mut problems = Vec::new();
            unknown_keys(SchemaPart { root: &schema, schema: &schema }, &settings, "", &mut problems);
            let mut problems: Vec<String> = problems.iter().map(SettingsProblem::to_string).collect();
            problems.sort_unstable();
            assert_eq!(problems, expected, "{settings}");
        }
        let mut problems = Vec::new();
        let nothing = json!({ "additionalProperties": false });
        unknown_keys(SchemaPart { root: &nothing, schema: &nothing }, &json!({ "a": 1 }), "", &mut problems);
        let expected = "unknown key \"a\"; no keys are allowed".to_owned();
        assert_eq!(problems, [SettingsProblem { setting: Some("a".to_owned()), message: expected }]);
        for (pointer, setting, message) in [
            ("/a/b/0", Some("a.b.0"), "a.b.0: it is empty"),
            ("a", Some("a"), "a: it is empty"),
            ("", None, "it is empty"),
            ("/", None, "it is empty"),
        ] {
            let problem = SettingsProblem::at(pointer, "it is empty".to_owned());
            assert_eq!((problem.setting.as_deref(), problem.message.as_str()), (setting, message), "{pointer:?}");
        }
    }

    #[test]
    fn problems_are_reported_in_plain_language() {
        let schema = json!({
            "properties": {
                "list": { "type": "array", "items": { "$ref": "#/$defs/Expected" } },
                "word": { "oneOf": [{ "type": "string", "const": "GET" }, { "type": "string", "const": "HEAD" }] },
                "one": { "enum": ["a", "b"] },
                "count": { "type": ["integer", "null"], "minimum": 0 },
                "text": { "type": "string", "minLength": 1 },
                "flag": { "type": "boolean" },
                "table": { "type": "object" },
                "either": { "anyOf": [{ "type": "string" }, { "type": "object", "required": ["field"] }] },
            },
            "$defs": { "Expected": { "anyOf": [{ "type": "integer", "maximum": 999 }, { "type": "string" }] } },
        });
        let (document, read) = Schema::read(&schema.to_string()).map_err(|why| panic!("{why}")).unwrap();
        for (settings, expected) in [
            (json!({ "list": 200 }), "list: 200 is a number, expected a list: write [200]"),
            (json!({ "list": [true] }), "list.0: true is a boolean, expected a whole number or text"),
            (json!({ "list": [1000] }), "list.0: 1000 is above the maximum of 999"),
            (json!({ "word": "get" }), "word: \"get\" must be written \"GET\""),
            (json!({ "word": "POST" }), "word: \"POST\" is not allowed; use one of: \"GET\", \"HEAD\""),
            (json!({ "one": "c" }), "one: \"c\" is not allowed; use one of: \"a\", \"b\""),
            (json!({ "count": -1 }), "count: -1 is below the minimum of 0"),
            (json!({ "count": 1.5 }), "count: 1.5 is a number with a fraction, expected a whole number"),
            (json!({ "text": 5 }), "text: 5 is a number, expected text: write \"5\""),
            (json!({ "text": "" }), "text: it is empty"),
            (json!({ "flag": "true" }), "flag: \"true\" is text, expected true or false: write true"),
            (json!({ "table": [] }), "table: [] is a list, expected a table"),
            (json!({ "either": {} }), "either: \"field\" is missing"),
            (json!({ "either": 1 }), "either: 1 is a number, expected text or a table"),
        ] {
            let problems: Vec<String> = read.problems(&document, &settings).iter().map(ToString::to_string).collect();
            assert_eq!(problems, [expected], "{settings}");
        }
    }

    #[test]
    fn schemas_that_would_exhaust_the_host_are_refused() {
        let chain = |length: usize| {
            let link = |n: usize| (format!("d{n}"), json!({ "not": { "$ref": format!("#/$defs/d{}", n + 1) } }));
            let mut links: serde_json::Map<String, Value> = (0..length).map(link).collect();
            links.insert(format!("d{length}"), json!(true));
            json!({ "$ref": "#/$defs/d0", "$defs": links })
        };
        let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "not": inner }));
        let patterns = |count: usize, pattern: &str| {
            let one = |n: usize| (format!("p{n}"), json!({ "pattern": pattern }));
            json!({ "properties": (0..count).map(one).collect::<serde_json::Map<_, _>>() })
        };
        for (schema, why) in [
            (chain(5_800), "nested"),
            (nested(100), "nested"),
            (json!({ "allOf": vec![json!({}); 5_000] }), "parts"),
            (patterns(101, "a"), "patterns"),
            (patterns(1, &"\\w".repeat(200)), "pattern"),
            (patterns(1, "\\pL{100}"), "not a JSON Schema"),
            (patterns(1, "(?=a)b"), "not a JSON Schema"),
            (json!({ "patternProperties": { "x".repeat(300): {} } }), "pattern"),
        ] {
            let refused = Schema::read(&schema.to_string()).err().unwrap_or_default();
            assert!(refused.contains(why), "{refused:?} should say {why:?}");
        }
        let good = patterns(50, "^[a-z]+(-[0-9]{1,3})?$").to_string();
        let (document, schema) = Schema::read(&good).map_err(|why| panic!("{why}")).unwrap();
        assert!(schema.problems(&document, &json!({ "p1": "ab-12" })).is_empty());
        assert_eq!(schema.problems(&document, &json!({ "p1": "AB" })).len(), 1);
    }
}
