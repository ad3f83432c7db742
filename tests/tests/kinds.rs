//! The tables of settings and secrets in `docs/kinds/` and `docs/channels/`, generated from the descriptors of the
//! built-in plugins.
//!
//! `UPDATE=1 cargo test -p tests --test kinds` writes them.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use egress::Egress;
use sandbox::{Compiler, Config, Descriptor, Role, Sandbox, resolved};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::Path;

/// The table is between these lines.
const PLACE: (&str, &str) = ("<!-- settings -->\n", "<!-- end of settings -->\n");

#[tokio::test]
async fn the_page_of_each_kind_lists_its_settings_and_secrets() {
    let compiler = Compiler::temporary(("/no/such/program", &[]), [7; 32], 1).unwrap();
    let config = Config { instance_slots: 4, lanes: NonZeroUsize::MIN, ..Config::default() };
    let sandbox = Sandbox::new(config, compiler, &Egress::new(egress::Config::default())).unwrap();
    for plugin in builtin::ALL {
        let loaded = tests::built_in(&sandbox, plugin.kind).await;
        let folder = if loaded.descriptor().role == Role::Poller { "kinds" } else { "channels" };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/{folder}/{}.md", plugin.kind));
        let page = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = page.split_once(PLACE.0).expect("the page has a place for the table");
        let (_, after) = rest.split_once(PLACE.1).unwrap_or(("", rest));
        let expected = format!("{before}{}\n{}\n{}{after}", PLACE.0, tables(loaded.descriptor()), PLACE.1);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, &expected).unwrap();
            continue;
        }
        assert!(page == expected, "{} is out of date: UPDATE=1 cargo test -p tests --test kinds", file.display());
    }
}

/// The tables of settings and secrets, as Markdown.
fn tables(descriptor: &Descriptor) -> String {
    let mut text = String::from("| setting | value | default | meaning |\n|---|---|---|---|\n");
    let schema = &descriptor.settings_schema;
    list(&mut text, schema, schema, "");
    if !descriptor.secrets.is_empty() {
        text.push_str("\n| secret | required | meaning |\n|---|---|---|\n");
    }
    for secret in &descriptor.secrets {
        let required = if secret.required { "yes" } else { "no" };
        writeln!(text, "| `{}` | {required} | {} |", secret.name, cell(&secret.description)).unwrap();
    }
    text
}

/// Lists every setting of a part of the schema, with the settings inside.
fn list(text: &mut String, schema: &Value, part: &Value, place: &str) {
    // The order of a JSON object depends on features of serde_json that other crates of a build turn on.
    let settings: BTreeMap<_, _> = part["properties"].as_object().into_iter().flatten().collect();
    for (name, setting) in settings {
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        let referred = resolved(schema, setting);
        let meaning = [setting, referred].iter().find_map(|part| part["description"].as_str()).unwrap_or_default();
        if referred["properties"].is_object() {
            list(text, schema, referred, &place);
            continue;
        }
        let required = part["required"].as_array().is_some_and(|all| all.iter().any(|key| key == name.as_str()));
        let default = match &setting["default"] {
            _ if required => "required".to_owned(),
            Value::Null => String::new(),
            default => format!("`{}`", toml_value(default)),
        };
        writeln!(text, "| `{place}` | {} | {default} | {} |", form(schema, referred), cell(meaning)).unwrap();
    }
}

/// The form of a value in words.
fn form(schema: &Value, setting: &Value) -> String {
    let setting = resolved(schema, setting);
    let choices = ["anyOf", "oneOf"].iter().find_map(|key| setting[*key].as_array());
    if let Some(choices) = choices {
        let mut forms: Vec<String> = choices.iter().map(|choice| form(schema, choice)).collect();
        forms.retain(|form| !form.is_empty());
        forms.dedup();
        return forms.join(" or ");
    }
    let constants = setting["enum"].as_array().cloned().into_iter().flatten().chain(setting.get("const").cloned());
    let constants: Vec<String> = constants.map(|value| format!("`{}`", toml_value(&value))).collect();
    if !constants.is_empty() {
        return constants.join(" or ");
    }
    let types: Vec<&str> = match &setting["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let words = types.into_iter().filter(|word| *word != "null").map(|word| match word {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => match form(schema, &setting["items"]).as_str() {
            "" => "list".to_owned(),
            items => format!("list of {items}"),
        },
        "object" => "table".to_owned(),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(" or ")
}

/// A JSON value as it is written in TOML.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::Array(items) => format!("[{}]", items.iter().map(toml_value).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A text in one cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
