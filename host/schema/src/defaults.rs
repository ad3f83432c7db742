//! Fills in the defaults of a schema.

use super::{SchemaPart, resolved, table_alternative};
use serde_json::Value;

/// Most bytes of defaults that are added to settings.
const MOST: usize = 1 << 20;

/// Adds the defaults of missing keys, at every depth: in tables, and in the tables of lists. A default of null is no
/// value.
///
/// # Errors
/// If the defaults have more than 1 MiB.
pub fn with_defaults(document: &Value, settings: &Value) -> Result<Value, String> {
    let (mut filled, mut left) = (settings.clone(), MOST);
    fill(SchemaPart { root: document, schema: document }, &mut filled, &mut left)?;
    Ok(filled)
}

fn fill(part: SchemaPart<'_>, settings: &mut Value, left: &mut usize) -> Result<(), String> {
    let SchemaPart { root, schema } = part;
    let schema = table_alternative(root, resolved(root, schema));
    match settings {
        Value::Array(items) => {
            let part = SchemaPart { root, schema: &schema["items"] };
            items.iter_mut().try_for_each(|item| fill(part, item, left))
        }
        Value::Object(table) => {
            for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
                if !table.contains_key(key)
                    && let Some(default) = default_of(root, schema)
                {
                    let size = key.len() + default.to_string().len();
                    *left = left.checked_sub(size).ok_or("the defaults of its schema have more than 1 MiB")?;
                    table.insert(key.clone(), default.clone());
                }
                if let Some(value) = table.get_mut(key) {
                    fill(SchemaPart { root, schema }, value, left)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The default next to a reference counts before the one that it refers to.
fn default_of<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    let default = schema.get("default").or_else(|| resolved(root, schema).get("default"));
    default.filter(|default| !default.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_filled_in_at_every_depth() {
        let schema = json!({
            "properties": {
                "warning": { "type": "number", "default": 100 },
                "name": { "type": ["string", "null"], "default": null },
                "rule": { "type": "object", "properties": { "limit": { "default": 7 } } },
                "named": { "$ref": "#/$defs/Named", "default": { "kind": "a" } },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Named" } },
                "either": { "anyOf": [{ "$ref": "#/$defs/Named" }, { "type": "null" }] },
            },
            "$defs": { "Named": { "properties": { "kind": {}, "deep": { "properties": { "on": { "default": true } }, "default": {} } } } },
        });
        for (settings, expected) in [
            (json!({}), json!({ "warning": 100, "named": { "kind": "a", "deep": { "on": true } } })),
            (
                json!({ "warning": 5, "rule": {}, "named": {}, "list": [{}, 3, { "deep": { "on": false } }], "either": {} }),
                json!({
                    "warning": 5, "rule": { "limit": 7 }, "named": { "deep": { "on": true } },
                    "list": [{ "deep": { "on": true } }, 3, { "deep": { "on": false } }], "either": { "deep": { "on": true } },
                }),
            ),
            (
                json!({ "warning": null, "rule": null, "named": 1, "list": {}, "other": {} }),
                json!({ "warning": null, "rule": null, "named": 1, "list": {}, "other": {} }),
            ),
        ] {
            assert_eq!(with_defaults(&schema, &settings), Ok(expected), "{settings}");
        }
    }

    #[test]
    fn defaults_cannot_fill_the_memory() {
        let schema = json!({ "items": {}, "properties": {
            "list": { "items": { "properties": { "text": { "default": "x".repeat(10_000) } } } }
        } });
        let items: Vec<Value> = (0..1_000).map(|_| json!({})).collect();
        assert!(with_defaults(&schema, &json!({ "list": items })).is_err());
        assert!(with_defaults(&schema, &json!({ "list": items[..10] })).is_ok());
    }
}
