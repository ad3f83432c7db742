//! What a plugin says its settings are: a JSON Schema, which is a stranger's, and which settings are held against.

mod plain;

use crate::convert::clean;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use std::fmt;

/// The longest schema, in bytes.
const LONGEST: usize = 256 << 10;
/// Parts of a schema, with every reference followed. Each takes some kilobytes once it is made ready.
const PARTS: usize = 4_000;
/// Parts inside one another, with every reference followed: the validator descends as deep on the stack.
const DEPTH: usize = 64;
/// Patterns of a schema, and bytes of one.
const PATTERNS: (usize, usize) = (100, 256);
/// Bytes that a pattern may take once it is compiled.
const COMPILED: usize = 64 << 10;
/// How much of what a schema's checker says is shown, in characters.
const SHOWN: usize = 256;

/// Something wrong with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsProblem {
    /// Which setting it is about, as `guests.expected.0`, where that is known.
    pub setting: Option<String>,
    /// What, in one sentence.
    pub message: String,
}

impl SettingsProblem {
    /// What a plugin says: one that begins with a name in quotes is about that setting.
    pub(crate) fn said(message: String) -> Self {
        let quoted = message.strip_prefix('"').and_then(|rest| rest.split_once('"'));
        Self { setting: quoted.map(|(name, _)| name.to_owned()), message }
    }
}

impl fmt::Display for SettingsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A schema, ready to be held against settings.
pub(crate) struct Schema(Validator);

impl Schema {
    /// Reads the document, and makes a schema of it; in half a sentence, why that cannot be.
    pub(crate) fn read(text: &str) -> Result<(Value, Self), String> {
        if text.len() > LONGEST {
            return Err("is longer than 256 KiB".to_owned());
        }
        let document: Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
        expand(&document, &document, &mut Vec::new(), &mut Budget { parts: PARTS, depth: DEPTH })?;
        check_patterns(&document, &mut { PATTERNS.0 })?;
        // Without backtracking: a pattern is a stranger's, and so may be what it is held against.
        let patterns = PatternOptions::regex().size_limit(COMPILED).dfa_size_limit(COMPILED);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(&document)
            .map_err(|error| format!("is no JSON Schema: {}", clean(&error.to_string(), SHOWN)))?;
        Ok((document, Self(validator)))
    }

    /// What is wrong with the schema itself: nothing fits it, or a default of its own does not.
    pub(crate) fn own_problem(&self, document: &Value) -> Option<String> {
        if *document == false {
            return Some("is false: no settings could ever fit it".to_owned());
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
            Some(format!("has a default that does not fit it: {problem}"))
        })
    }

    /// Where settings do not fit it; `document` is the one that it was read from.
    pub(crate) fn problems(&self, document: &Value, settings: &Value) -> Vec<SettingsProblem> {
        let mut problems = Vec::new();
        unknown_keys((document, document), settings, "", &mut problems);
        let told = !problems.is_empty();
        let untold = |error: &ValidationError<'_>| {
            !(told && matches!(error.kind(), ValidationErrorKind::AdditionalProperties { .. }))
        };
        let problem = |error: ValidationError<'_>| match plain::problem(&error) {
            (path, message) if path.is_empty() => SettingsProblem { setting: None, message },
            (path, message) => {
                let setting = path.trim_start_matches('/').replace('/', ".");
                SettingsProblem { message: format!("{setting}: {message}"), setting: Some(setting) }
            }
        };
        problems.extend(self.0.iter_errors(settings).filter(untold).map(problem));
        problems
    }
}

/// Keys that a schema does not have, each with the near one that it has; `place` is where these settings stand in all of them.
fn unknown_keys((root, schema): (&Value, &Value), settings: &Value, place: &str, problems: &mut Vec<SettingsProblem>) {
    let schema = a_table(root, resolved(root, schema));
    let inside = |key: &str| if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
    if let Some(items) = settings.as_array() {
        for (index, item) in items.iter().enumerate() {
            unknown_keys((root, &schema["items"]), item, &inside(&index.to_string()), problems);
        }
    }
    let Some(settings) = settings.as_object() else { return };
    let none = serde_json::Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
    known.sort_unstable();
    for (key, value) in settings {
        match properties.get(key) {
            Some(schema) => unknown_keys((root, schema), value, &inside(key), problems),
            None if schema["additionalProperties"] == false => {
                let of = if place.is_empty() { String::new() } else { format!(" in {place}") };
                let message = format!("unknown key {key:?}{of}{}", suggestion(key, &known));
                problems.push(SettingsProblem { setting: Some(inside(key)), message });
            }
            None => {}
        }
    }
}

/// What a schema that only refers to another one means.
pub fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    // More than anybody writes; a circle ends here.
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

/// Where a schema offers alternatives, the one that is a table with keys of its own, if there is one alone.
fn a_table<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    /// Alternatives within alternatives: an optional value of several shapes is one.
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
        None if known.is_empty() => ": there are none".to_owned(),
        None => format!(": there are {}", known.join(", ")),
    }
}

/// Follows every reference of a schema, as a validator would, and fails where there is no end to that, or none in sight:
/// the validator has no limit of its own.
fn expand<'a>(root: &'a Value, part: &'a Value, path: &mut Vec<&'a str>, budget: &mut Budget) -> Result<(), String> {
    let parts = budget.parts.checked_sub(1);
    budget.parts = parts.ok_or_else(|| format!("has more than {PARTS} parts, references followed"))?;
    let depth = budget.depth.checked_sub(1);
    budget.depth = depth.ok_or_else(|| format!("is nested more than {DEPTH} deep, references followed"))?;
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
                        return Err(format!("uses {key}, which is not followed here"));
                    }
                    ("$ref", Value::String(target)) => follow(root, target, path, budget)?,
                    // Only what stands here is a part; definitions count where they are referred to.
                    ("$defs" | "definitions", _) => {}
                    (_, value) => expand(root, value, path, budget)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What a schema may still have.
struct Budget {
    parts: usize,
    depth: usize,
}

/// Patterns, wherever they stand, are few and short: the time and memory to parse one are not bounded otherwise. The document
/// is not deeply nested any more, but for definitions that nothing refers to; those stay within what the JSON parser allows.
fn check_patterns(part: &Value, left: &mut usize) -> Result<(), String> {
    let (most, longest) = PATTERNS;
    let mut pattern = |text: &str| {
        *left = left.checked_sub(1).ok_or_else(|| format!("has more than {most} patterns"))?;
        if text.len() > longest { Err(format!("has a pattern of more than {longest} bytes")) } else { Ok(()) }
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
        return Err(format!("refers to itself by {}", clean(target, 60)));
    }
    let pointer = target.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
    let found = pointer.and_then(|pointer| root.pointer(pointer));
    let found = found.ok_or_else(|| format!("refers to {}, which is not in it", clean(target, 60)))?;
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
    fn unknown_keys_are_named_with_the_near_one_at_every_depth() {
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
                    "unknown key \"qqq\" in guests.each.1: there are each, expected",
                    "unknown key \"zzz\": there are either, free, guests, loop",
                ],
            ),
        ] {
            let mut problems = Vec::new();
            unknown_keys((&schema, &schema), &settings, "", &mut problems);
            let mut problems: Vec<String> = problems.iter().map(SettingsProblem::to_string).collect();
            problems.sort_unstable();
            assert_eq!(problems, expected, "{settings}");
        }
        let mut problems = Vec::new();
        let nothing = json!({ "additionalProperties": false });
        unknown_keys((&nothing, &nothing), &json!({ "a": 1 }), "", &mut problems);
        let expected = "unknown key \"a\": there are none".to_owned();
        assert_eq!(problems, [SettingsProblem { setting: Some("a".to_owned()), message: expected }]);
        for (said, setting) in
            [("\"a.b\" is -1: write 0", Some("a.b")), ("a is \"b\"", None), ("\"a", None), ("", None)]
        {
            assert_eq!(SettingsProblem::said(said.to_owned()).setting.as_deref(), setting, "{said}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said_in_plain_words() {
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
            (json!({ "list": 200 }), "list: 200 is a number, and should be a list: write [200]"),
            (json!({ "list": [true] }), "list.0: true is a boolean, and should be a whole number or text"),
            (json!({ "list": [1000] }), "list.0: 1000 is above 999, the most that is allowed"),
            (json!({ "word": "get" }), "word: \"get\" is written \"GET\""),
            (json!({ "word": "POST" }), "word: \"POST\" is none of those that are allowed: \"GET\", \"HEAD\""),
            (json!({ "one": "c" }), "one: \"c\" is none of those that are allowed: \"a\", \"b\""),
            (json!({ "count": -1 }), "count: -1 is below 0, the least that is allowed"),
            (json!({ "count": 1.5 }), "count: 1.5 is a number with a fraction, and should be a whole number"),
            (json!({ "text": 5 }), "text: 5 is a number, and should be text: write \"5\""),
            (json!({ "text": "" }), "text: it is empty"),
            (json!({ "flag": "true" }), "flag: \"true\" is text, and should be true or false: write true"),
            (json!({ "table": [] }), "table: [] is a list, and should be a table"),
            (json!({ "either": {} }), "either: \"field\" is missing"),
            (json!({ "either": 1 }), "either: 1 is a number, and should be text or a table"),
        ] {
            let problems: Vec<String> = read.problems(&document, &settings).iter().map(ToString::to_string).collect();
            assert_eq!(problems, [expected], "{settings}");
        }
    }

    #[test]
    fn a_schema_that_would_take_the_host_down_is_refused_at_once() {
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
            (patterns(1, "\\pL{100}"), "no JSON Schema"),
            (patterns(1, "(?=a)b"), "no JSON Schema"),
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
