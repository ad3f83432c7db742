//! The fields of a form for the settings of a kind, from its JSON Schema.
//!
//! A setting that has no simple field (an object, a list of objects) is entered as JSON. The plugin checks every
//! setting, so a field only helps to enter it.

use maud::{Markup, html};
use serde_json::{Map, Value};

/// The form in which a value is entered, and in which the script sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Text,
    Number,
    /// One of these texts.
    Choice(Vec<String>),
    Switch,
    /// Texts, one in each line.
    Lines,
    /// JSON; an object with these members, as far as the schema names them.
    Json(Vec<String>),
}

/// A field of a setting.
#[derive(Debug)]
struct Field<'a> {
    name: &'a str,
    entry: Entry,
    description: &'a str,
    default: Option<&'a Value>,
    required: bool,
}

/// The fields for the settings of a schema, with values of an existing definition.
pub(super) fn fields(schema: &Value, values: &Map<String, Value>) -> Markup {
    let all = fields_of(schema);
    html! { @for field in &all { (entry(field, values.get(field.name))) } }
}

fn fields_of(schema: &Value) -> Vec<Field<'_>> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let field = |(name, property): (&'_ String, &'_ Value)| -> (String, bool) {
        (name.clone(), required.contains(&name.as_str()) && property.get("default").is_none())
    };
    let needed: Vec<(String, bool)> = properties.clone().map(field).collect();
    let mut fields: Vec<Field<'_>> = properties
        .zip(needed)
        .map(|((name, property), (_, required))| Field {
            name,
            entry: entry_of(schema, property),
            description: property["description"].as_str().unwrap_or_default(),
            default: property.get("default").filter(|default| !default.is_null()),
            required,
        })
        .collect();
    fields.sort_by_key(|field| !field.required);
    fields
}

/// Follows references and removes the alternative null.
fn resolved<'a>(root: &'a Value, property: &'a Value) -> &'a Value {
    /// The longest chain of references. A schema may refer to itself.
    const LONGEST: usize = 8;
    let mut found = property;
    for _ in 0..LONGEST {
        let reference = found["$ref"].as_str().and_then(|place| root.pointer(place.strip_prefix('#')?));
        let alternatives = found["anyOf"].as_array().or(found["allOf"].as_array());
        let mut real = alternatives.into_iter().flatten().filter(|alternative| alternative["type"] != "null");
        found = match (reference, real.next(), real.next()) {
            (Some(target), ..) => target,
            (None, Some(only), None) => only,
            _ => return found,
        };
    }
    found
}

fn entry_of(root: &Value, property: &Value) -> Entry {
    let schema = resolved(root, property);
    if let Some(words) = words(schema) {
        return Entry::Choice(words);
    }
    let is = |schema: &Value, kind: &str| match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(several) => several.iter().all(|one| one == kind || one == "null"),
        _ => false,
    };
    match schema {
        _ if is(schema, "string") => Entry::Text,
        _ if is(schema, "integer") || is(schema, "number") => Entry::Number,
        _ if is(schema, "boolean") => Entry::Switch,
        _ if is(schema, "array") && is(resolved(root, &schema["items"]), "string") => Entry::Lines,
        _ => Entry::Json(members(schema)),
    }
}

/// The names of an object's members.
fn members(schema: &Value) -> Vec<String> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

/// The texts of an enumeration, or of alternatives that are constants.
fn words(schema: &Value) -> Option<Vec<String>> {
    let constants = || schema["oneOf"].as_array()?.iter().map(|one| one.get("const")).collect::<Option<Vec<&Value>>>();
    let values = schema["enum"].as_array().map(|all| all.iter().collect()).or_else(constants)?;
    values.into_iter().map(|value| value.as_str().map(ToOwned::to_owned)).collect()
}

fn entry(field: &Field<'_>, value: Option<&Value>) -> Markup {
    let name = format!("settings.{}", field.name);
    let shown = |value: &Value| match (&field.entry, value) {
        (Entry::Lines, Value::Array(items)) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"),
        (_, Value::String(text)) if !matches!(field.entry, Entry::Json(_)) => text.clone(),
        (_, other) => other.to_string(),
    };
    let (value, default) = (value.map(shown), field.default.map(shown).unwrap_or_default());
    let text = value.as_deref().unwrap_or_default();
    let choice = |words: &[String]| {
        html! {
            select name=(name) required[field.required] {
                option value="" { @if default.is_empty() { "–" } @else { "default: " (default) } }
                @for word in words { option value=(word) selected[text == word.as_str()] { (word) } }
            }
        }
    };
    let lines = |kind: &str| {
        html! { textarea name=(name) data-type=(kind) rows="2" placeholder=(default) required[field.required] { (text) } }
    };
    html! {
        label {
            (field.name) @if field.required { " (required)" } " "
            @match &field.entry {
                Entry::Text => input name=(name) value=(text) placeholder=(default) required[field.required];,
                Entry::Number => input name=(name) data-type="json" inputmode="decimal" value=(text) placeholder=(default) required[field.required];,
                Entry::Choice(words) => (choice(words)),
                Entry::Switch => {
                    select name=(name) data-type="json" required[field.required] {
                        option value="" { @if default.is_empty() { "–" } @else { "default: " (default) } }
                        @for word in ["true", "false"] { option value=(word) selected[text == word] { (word) } }
                    }
                }
                Entry::Lines => (lines("lines")),
                Entry::Json(_) => (lines("json")),
            }
            @if !field.description.is_empty() { small { (field.description) } }
            @match &field.entry {
                Entry::Json(members) if !members.is_empty() => small { "JSON, an object with: " (members.join(", ")) },
                Entry::Json(_) => small { "JSON" },
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_setting_has_a_field_of_its_type() {
        let schema = json!({
            "required": ["path", "depth"],
            "properties": {
                "method": { "$ref": "#/$defs/Method", "default": "GET" },
                "word": { "enum": ["a", "b"] },
                "path": { "type": "string" },
                "depth": { "type": "integer", "default": 3 },
                "limit": { "type": ["integer", "null"] },
                "on": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] },
                "texts": { "type": "array", "items": { "type": "string" } },
                "headers": { "type": "object" },
                "fields": { "type": "object", "properties": { "a": {}, "b": {} } },
                "either": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
                "loop": { "$ref": "#/properties/loop" },
            },
            "$defs": { "Method": { "oneOf": [{ "const": "GET" }, { "const": "HEAD" }] } },
        });
        let fields = fields_of(&schema);
        assert_eq!((fields[0].name, fields[0].required), ("path", true), "required settings come first");
        let entry = |name: &str| fields.iter().find(|field| field.name == name).unwrap().entry.clone();
        let words = |words: [&str; 2]| Entry::Choice(words.map(ToOwned::to_owned).to_vec());
        for (name, expected) in [
            ("method", words(["GET", "HEAD"])),
            ("word", words(["a", "b"])),
            ("path", Entry::Text),
            ("depth", Entry::Number),
            ("limit", Entry::Number),
            ("on", Entry::Switch),
            ("texts", Entry::Lines),
            ("headers", Entry::Json(Vec::new())),
            ("fields", Entry::Json(vec!["a".to_owned(), "b".to_owned()])),
            ("either", Entry::Json(Vec::new())),
            ("loop", Entry::Json(Vec::new())),
        ] {
            assert_eq!(entry(name), expected, "{name}");
        }
        assert!(!fields.iter().find(|field| field.name == "depth").unwrap().required, "it has a default");
    }

    #[test]
    fn a_value_is_shown_as_it_is_entered_and_escaped() {
        let schema = json!({ "properties": {
            "texts": { "type": "array", "items": { "type": "string" } }, "headers": { "type": "object" }, "path": { "type": "string" },
        } });
        let values = json!({ "texts": ["a", "<b>"], "headers": { "x": "1" }, "path": "\"><script>" });
        let shown = fields(&schema, values.as_object().unwrap()).into_string();
        assert!(shown.contains("a\n&lt;b&gt;</textarea>"), "{shown}");
        assert!(shown.contains("{&quot;x&quot;:&quot;1&quot;}</textarea>"), "{shown}");
        assert!(!shown.contains("<script>"), "{shown}");
    }
}
