//! The parts of a target that are separate tables: further origins, TLS, secrets.

use crate::reader::{Notes, Section, suggestion, text};
use crate::shared_secret::SharedSecret;
use crate::target_config::{AlsoConfig, SecretSource, TlsConfig};
use crate::value::{Entry, Node, Value};
use egress::{Fingerprint, Origin};
use model::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

pub(crate) fn also(notes: &Notes<'_>, value: &Value) -> Result<Vec<AlsoConfig>, String> {
    let Value::Array(items) = value else {
        return Err("this should be a list: also = [{ url = \"…\" }]".to_owned());
    };
    let mut origins = Vec::new();
    for item in items {
        let Value::Table(entries) = &item.value else {
            return Err("each entry of also must be a table: { url = \"…\" }".to_owned());
        };
        let section = Section::inner(notes, "also".to_owned(), entries);
        let url = section.get("url", |value| Origin::parse(&text(value)?).map_err(|error| error.to_string()));
        let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
        section.finish();
        origins.extend(url.map(|(url, _)| AlsoConfig { url, tls }));
    }
    Ok(origins)
}

pub(crate) fn tls(notes: &Notes<'_>, entries: &[Entry]) -> TlsConfig {
    let section = Section::inner(notes, "tls".to_owned(), entries);
    let parse = |text: &str| Fingerprint::parse(text).map_err(|error| error.to_string());
    let fingerprints = section.get("fingerprint", |value| match value {
        Value::Text(text) => Ok(BTreeSet::from([parse(text)?])),
        Value::Array(items) => items.iter().map(|item| parse(&text(&item.value)?)).collect(),
        other => Err(format!("this is {}, but should be text or a list of texts", other.kind())),
    });
    let tls = TlsConfig {
        fingerprints: fingerprints.unwrap_or_default(),
        ca_file: section.text("ca_file").map(PathBuf::from),
        insecure: section.boolean("insecure").unwrap_or(false),
        http2: section.boolean("http2").unwrap_or(false),
    };
    let line = section.line("fingerprint");
    section.finish();
    let ways =
        [!tls.fingerprints.is_empty(), tls.ca_file.is_some(), tls.insecure].into_iter().filter(|way| *way).count();
    if ways > 1 {
        notes.at(line, "tls: fingerprint, ca_file and insecure exclude one another: keep one");
    }
    tls
}

/// The sources of a target's secrets, and the names of those that say `short = true`.
pub(crate) fn secrets(notes: &Notes<'_>, entries: &[Entry]) -> (BTreeMap<String, SecretSource>, BTreeSet<String>) {
    let source = |entry: &Entry| Some((entry.key.clone(), secret_source(notes, entry, false)?));
    let is_short = |entry: &&Entry| {
        let Value::Table(entries) = &entry.node.value else { return false };
        // `secret_source` reports what is wrong with the other keys.
        let silent = Section::inner(notes, String::new(), entries);
        silent.boolean("short").unwrap_or(false)
    };
    let short = entries.iter().filter(is_short).map(|entry| entry.key.clone()).collect();
    (entries.iter().filter_map(source).collect(), short)
}

/// Reads the names of `[secrets]` that a target with this kind and these origins uses, by the names that its kind uses.
pub(crate) fn shared_secrets(
    notes: &Notes<'_>,
    entries: &[Entry],
    (known, kind, origins): (&BTreeMap<String, SharedSecret>, Option<&Kind>, &[Origin]),
) -> (BTreeMap<String, SecretSource>, BTreeSet<String>) {
    let (mut sources, mut short) = (BTreeMap::new(), BTreeSet::new());
    for entry in entries {
        let found = text(&entry.node.value).and_then(|name| {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            let near = if names.is_empty() { String::new() } else { suggestion(&name, &names) };
            let secret = known.get(&name).ok_or_else(|| format!("[secrets] in the file has no {name:?}{near}"))?;
            kind.map_or(Ok(()), |kind| secret.permits(&name, kind, origins))?;
            Ok(secret)
        });
        match found {
            Ok(secret) => {
                sources.insert(entry.key.clone(), secret.source.clone());
                if secret.short {
                    short.insert(entry.key.clone());
                }
            }
            Err(why) => notes.at(entry.line, format!("the secret {:?}: {why}", entry.key)),
        }
    }
    (sources, short)
}

/// Reads the section `[secrets]`: `NAME = { env | file, kinds, origins }`.
pub(crate) fn all_shared(notes: &Notes<'_>, entries: &[Entry]) -> BTreeMap<String, SharedSecret> {
    entries.iter().filter_map(|entry| Some((entry.key.clone(), shared_secret(notes, entry)?))).collect()
}

fn shared_secret(notes: &Notes<'_>, entry: &Entry) -> Option<SharedSecret> {
    let source = secret_source(notes, entry, true);
    let Value::Table(entries) = &entry.node.value else { return None };
    // `secret_source` reports what is wrong with the other keys.
    let section = Section::inner(notes, format!("the secret {:?}", entry.key), entries);
    let kinds = section.get("kinds", |value| {
        list(value)?.iter().map(|item| Kind::new(&text(&item.value)?).map_err(|error| error.to_string())).collect()
    });
    let origin =
        |item: &Node| Ok::<_, String>(Origin::parse(&text(&item.value)?).map_err(|error| error.to_string())?.1);
    let origins = section.get("origins", |value| list(value)?.iter().map(origin).collect());
    let short = entries.iter().any(|entry| entry.key == "short" && matches!(entry.node.value, Value::Boolean(true)));
    if kinds.is_none() || origins.is_none() {
        let message =
            "needs kinds and origins: the kinds of targets that may use it, and the URLs that it may be sent to";
        notes.at(entry.line, format!("the secret {:?} {message}", entry.key));
    }
    Some(SharedSecret { source: source?, short, kinds: kinds?, origins: origins? })
}

fn list(value: &Value) -> Result<&[Node], String> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err("this should be a list".to_owned()),
    }
}

/// Reads `{ env = "…" }` or `{ file = "…" }`. Secrets of `[secrets]` have more keys, which [`shared_secret`] reads.
fn secret_source(notes: &Notes<'_>, entry: &Entry, shared: bool) -> Option<SecretSource> {
    let Value::Table(entries) = &entry.node.value else {
        let message = format!(
            "the secret {:?} is written as {{ env = \"VARIABLE\" }} or {{ file = \"PATH\" }}, never as a value",
            entry.key
        );
        notes.at(entry.line, message);
        return None;
    };
    let section = Section::inner(notes, format!("the secret {:?}", entry.key), entries);
    let (variable, file) = (section.text("env"), section.text("file"));
    section.boolean("short");
    if shared {
        let any = |_: &Value| Ok(());
        section.get("kinds", any);
        section.get("origins", any);
    }
    section.finish();
    match (variable, file) {
        (Some(variable), None) => Some(SecretSource::Variable(variable)),
        (None, Some(file)) => Some(SecretSource::File(file.into())),
        _ => {
            notes.at(entry.line, format!("the secret {:?} needs either env or file", entry.key));
            None
        }
    }
}
