//! `plugin inspect`: shows a plugin file's description and whether this host accepts it.

use super::list::bytes;
use super::project::{Project, built_in, usual_sandbox};
use crate::output::{print, print_json};
use catalog::read;
use model::hex;
use sandbox::{Backtrace, Plugin, Refusal, Role};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// Prints the description. Returns exit code 0 if this host accepts the file, else 1.
pub(crate) async fn inspect(file: &Path, as_json: bool) -> anyhow::Result<u8> {
    let sandbox = usual_sandbox(Backtrace::default())?;
    // A project's folder names the component that was built in it.
    let project = if file.is_dir() { Some(Project::find(file)?) } else { None };
    let file = project.as_ref().map_or(file, |project| project.component.as_path());
    let name = file.display().to_string();
    let facts_of = |size: usize, digest: &[u8]| json!({ "size": size, "sha256": hex(digest) });
    let refused = |refusal: Refusal| (refusal.code, refusal.message);
    let (of_file, loaded) = match (built_in(file), read(file)) {
        (Some(plugin), _) => (
            facts_of(plugin.size, &plugin.digest),
            sandbox.load_built_in(*plugin, &Arc::default()).await.map_err(refused),
        ),
        (None, Ok(content)) => {
            (facts_of(content.len(), &Sha256::digest(&content)), sandbox.load(&content).await.map_err(refused))
        }
        (None, Err(why)) => (json!({}), Err(("unreadable", why))),
    };
    match loaded {
        Ok(plugin) => {
            let facts = facts(&name, &of_file, &plugin);
            if as_json {
                print_json(&facts)?;
            } else {
                print(&readable(&facts))?;
            }
            Ok(0)
        }
        Err((code, message)) => {
            if as_json {
                let mut refused =
                    json!({ "file": name, "verdict": "refused", "error": { "code": code, "message": message } });
                (refused["size"], refused["sha256"]) = (of_file["size"].clone(), of_file["sha256"].clone());
                print_json(&refused)?;
            } else {
                print(&format!("{name}: refused ({code}): {message}"))?;
            }
            Ok(1)
        }
    }
}

fn facts(name: &str, of_file: &Value, plugin: &Plugin) -> Value {
    let descriptor = plugin.descriptor();
    let secret = |secret: &sandbox::SecretSpec| {
        json!({
            "name": secret.name, "description": secret.description, "required": secret.required,
            "privateKey": secret.private_key, "pattern": secret.pattern.as_ref().map(regex_text), "hint": secret.hint,
        })
    };
    json!({
        "file": name, "verdict": "accepted", "kind": descriptor.kind.as_str(), "title": descriptor.title,
        "version": descriptor.version, "summary": descriptor.summary, "homepage": descriptor.homepage,
        "license": descriptor.license, "schemes": descriptor.schemes,
        "contract": format!("polliwog:plugin@{}", plugin.contract_version()),
        "size": of_file["size"], "sha256": of_file["sha256"], "builtIn": built_in(Path::new(name)).is_some(),
        "compileMs": plugin.compile_time().map(|time| (time.as_secs_f64() * 1e4).round() / 10.0),
        "imports": plugin.imports(), "secrets": descriptor.secrets.iter().map(secret).collect::<Vec<_>>(),
        "role": if descriptor.role == Role::Poller { "polls targets" } else { "sends notifications" },
        "defaultIntervalMs": u64::try_from(descriptor.default_interval.as_millis()).unwrap_or(u64::MAX),
        "defaultTimeoutMs": u64::try_from(descriptor.default_timeout.as_millis()).unwrap_or(u64::MAX),
        "settingsSchema": descriptor.settings_schema,
        "settingsVersion": descriptor.settings_version,
    })
}

/// Returns the pattern as its author wrote it, without the anchors that the host adds.
fn regex_text(pattern: &impl ToString) -> String {
    let text = pattern.to_string();
    text.strip_prefix("^(?:").and_then(|rest| rest.strip_suffix(")$")).unwrap_or(&text).to_owned()
}

fn readable(facts: &Value) -> String {
    let text = |key: &str| facts[key].as_str().map_or_else(|| facts[key].to_string(), str::to_owned);
    let seconds = |key: &str| format!("{} s", facts[key].as_f64().unwrap_or_default() / 1000.0);
    let mut lines = vec![format!("{}: accepted", text("file"))];
    let mut line = |key: &str, value: String| lines.push(format!("  {key:<17} {value}"));
    for key in ["kind", "role", "title", "version", "summary", "homepage", "license", "contract", "sha256"] {
        if !facts[key].is_null() {
            line(key, text(key));
        }
    }
    let schemes: Vec<&str> = facts["schemes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !schemes.is_empty() {
        line("URLs", schemes.join(", "));
    }
    line("size", bytes(facts["size"].as_u64().unwrap_or_default()));
    let earlier = || if facts["builtIn"] == true { "the build of Polliwog" } else { "an earlier run" }.to_owned();
    let compiled = facts["compileMs"].as_f64().map_or_else(earlier, |ms| format!("{ms} ms"));
    line("compiled in", compiled);
    if facts["defaultIntervalMs"] != 0 {
        line("default interval", seconds("defaultIntervalMs"));
    }
    line("default timeout", seconds("defaultTimeoutMs"));
    for import in facts["imports"].as_array().into_iter().flatten() {
        line("import", import.as_str().unwrap_or_default().to_owned());
    }
    for secret in facts["secrets"].as_array().into_iter().flatten() {
        let required = if secret["required"] == true { ", required" } else { "" };
        let form = if secret["privateKey"] == true { ", a private key in PEM" } else { "" };
        let (name, description) = (secret["name"].as_str(), secret["description"].as_str());
        line("secret", format!("{}{required}{form}: {}", name.unwrap_or_default(), description.unwrap_or_default()));
    }
    if facts["settingsVersion"] != 1 {
        line("settings version", text("settingsVersion"));
    }
    let schema = &facts["settingsSchema"];
    let mut settings = Vec::new();
    list_settings((schema, schema), "", &mut settings);
    for setting in settings {
        line("setting", setting);
    }
    lines.push("  (the whole settings schema: --json)".to_owned());
    lines.join("\n")
}

/// Lists every setting that is not an object: its path, description and default.
fn list_settings((root, part): (&Value, &Value), place: &str, lines: &mut Vec<String>) {
    for (name, schema) in part["properties"].as_object().into_iter().flatten() {
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        let referred = sandbox::resolved(root, schema);
        if referred["properties"].is_object() {
            list_settings((root, referred), &place, lines);
            continue;
        }
        let required = part["required"].as_array().is_some_and(|all| all.iter().any(|key| key == name.as_str()));
        let required = if required { ", required" } else { "" };
        let described = [schema, referred].iter().find_map(|part| part["description"].as_str()).unwrap_or_default();
        let default = schema.get("default").filter(|default| !default.is_null());
        let default = default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
        lines.push(format!("{place}{required}: {}{default}", described.replace('\n', " ")));
    }
}
