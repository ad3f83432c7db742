//! Reads `[[target]]` tables and aliases.

use crate::alerts::target_alerts;
use crate::reader::{Notes, Section, count, interval, text};
use crate::secret_references;
use crate::shared_secret::Permitted;
use crate::target_config::{
    CHANGEABLE, SHORTEST_INTERVAL, SecretPermissions, SecretSource, TargetConfig, TlsConfig, cadence_of,
};
use crate::target_parts::{also, secrets, shared_secrets, tls};
use crate::value::{Entry, Node, Value};
use egress::{Origin, Reach};
use model::{Kind, SettingSource, TargetId, TargetSource};
use scheduler::Settings;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use url::Url;

pub(crate) const TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));

pub(crate) fn targets(notes: &Notes<'_>, document: &[Entry], scheduler: &Settings) -> Vec<TargetConfig> {
    let Some(entry) = document.iter().find(|entry| entry.key == "target") else { return Vec::new() };
    let Value::Array(items) = &entry.node.value else {
        notes.at(entry.line, "a target is written as [[target]], with two brackets");
        return Vec::new();
    };
    let mut lines: HashMap<TargetId, usize> = HashMap::new();
    let mut targets: Vec<TargetConfig> = Vec::with_capacity(items.len());
    for item in items {
        let Some(target) = target(notes, item, scheduler, None) else { continue };
        match lines.get(&target.id) {
            Some(earlier) => {
                let message = format!(
                    "there are two targets {:?} (the other is on line {earlier}): choose another id for one of them",
                    target.id
                );
                notes.at(target.line, message);
            }
            None => drop(lines.insert(target.id.clone(), target.line)),
        }
        // Keep the target, so that its other problems are reported too.
        targets.push(target);
    }
    targets
}

/// Parses an id. The page that adds a target has the address of a target with the id "new".
fn id_of(value: &Value) -> Result<TargetId, String> {
    match TargetId::new(&text(value)?) {
        Ok(id) if id.as_str() == "new" => Err("the id \"new\" is reserved: choose another".to_owned()),
        id => id.map_err(|error| error.to_string()),
    }
}

/// Reads a target. `permitted` has the permissions of a target that is not in the file; without, everything is
/// permitted.
pub(crate) fn target(
    notes: &Notes<'_>,
    item: &Node,
    scheduler: &Settings,
    permitted: Option<Permitted<'_>>,
) -> Option<TargetConfig> {
    let entries = table_of(notes, item)?;
    let written = entries.iter().find(|entry| entry.key == "id").map(|entry| &entry.node.value);
    let name = if let Some(Value::Text(id)) = written { format!("target {id:?}") } else { "target".to_owned() };
    let section = Section::inner(notes, name.clone(), entries);
    let has = |key: &str| entries.iter().any(|entry| entry.key == key);
    let missing = ["id", "kind", "url"].into_iter().filter(|key| !has(key));
    missing.for_each(|key| notes.at(item.line, format!("{name} has no {key}")));
    let id = section.get("id", id_of);
    let kind = section.get("kind", |value| Kind::new(&text(value)?).map_err(|error| error.to_string()));
    let url = section.get("url", |value| Origin::parse(&text(value)?).map_err(|error| error.to_string()));
    let also = section.get("also", |value| also(notes, value)).unwrap_or_default();
    let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
    let host_header = section.get("host_header", host_header);
    let shortest = SHORTEST_INTERVAL.min(scheduler.min);
    let own = |key: &'static str| section.get(key, |value| interval(value, shortest));
    let (base, min_interval, max_interval) = (own("interval"), own("min_interval"), own("max_interval"));
    let cadence = section.get("cadence", cadence_of);
    let timeout = section.duration("timeout");
    if timeout.is_some_and(|timeout| timeout < TIMEOUT.0 || timeout > TIMEOUT.1) {
        notes.at(section.line("timeout"), "timeout: use 100ms to 5m");
    }
    let enabled = section.boolean("enabled").unwrap_or(true);
    let places = || also.iter().map(|also| (&also.url, &also.tls)).chain(url.iter().map(|(url, _)| (url, &tls)));
    let (secrets, short_secrets) =
        target_secrets(notes, &section, permitted, (kind.as_ref(), &places().collect::<Vec<_>>()));
    let permissions = permissions(notes, &section, permitted);
    let (labels, alerts) = (section.get("labels", labels).unwrap_or_default(), target_alerts(&section));
    let PluginSettings { settings, settings_version, setting_lines } = settings(&section, entries);
    let shown = section.text("name");
    let line = section.line("id");
    section.finish();
    let (source, reach, set_by) = sources(permitted, has);
    // A missing URL is a problem that prevents a start. The other problems of the target are reported too.
    let plain = TargetConfig::new(id?, kind?, url.map_or_else(nowhere, |(url, _)| url));
    let mut target = TargetConfig {
        name: shown.unwrap_or_else(|| plain.id.to_string()),
        also,
        tls,
        host_header,
        interval: base,
        cadence,
        min_interval,
        max_interval,
        timeout,
        enabled,
        secrets,
        short_secrets,
        permissions,
        labels,
        alerts,
        settings,
        settings_version,
        source,
        reach,
        set_by,
        line,
        setting_lines,
        ..plain
    };
    note_references(notes, &target);
    for (place, why) in target.apply(notes.overrides, scheduler) {
        notes.note(place.unwrap_or_else(|| format!("{}:{line}", notes.file)), why);
    }
    Some(target)
}

/// Reads the sources of a target's secrets, and the names of those that may be short. `places` has its URLs.
fn target_secrets(
    notes: &Notes<'_>,
    section: &Section<'_>,
    permitted: Option<Permitted<'_>>,
    (kind, places): (Option<&Kind>, &[(&Url, &TlsConfig)]),
) -> (BTreeMap<String, SecretSource>, BTreeSet<String>) {
    let named = section.table("secrets").unwrap_or_default();
    let Some(permitted) = permitted else { return secrets(notes, named) };
    if places.iter().any(|(_, tls)| tls.ca_file.is_some()) {
        notes.at(0, "tls: ca_file can only be written in the file: pin the certificate's fingerprint instead");
    }
    let origins: Vec<Origin> = places.iter().filter_map(|(url, _)| Origin::of(url).ok()).collect();
    shared_secrets(notes, named, (permitted.secrets, kind, &origins))
}

/// Reads the permissions of a target's plugin.
fn permissions(notes: &Notes<'_>, section: &Section<'_>, permitted: Option<Permitted<'_>>) -> SecretPermissions {
    let given = |key: &'static str| {
        let given = section.boolean(key).unwrap_or(false);
        if given && permitted.is_some() {
            notes.at(0, format!("{key} can only be written in the file: it weakens the protection of secrets"));
        }
        given
    };
    SecretPermissions { in_path: given("secrets_in_path"), short_captures: given("short_captures") }
}

/// Notes the problems of references to secrets.
pub(crate) fn note_references(notes: &Notes<'_>, target: &TargetConfig) {
    for (setting, why) in secret_references::problems(target) {
        let line = target.line_of(setting.as_deref());
        let of = setting.map_or_else(|| "url".to_owned(), |setting| format!("settings: {setting}"));
        notes.at(line, format!("{} {:?}: {of}: {why}", target.noun(), target.id));
    }
}

fn host_header(value: &Value) -> Result<String, String> {
    let host = text(value)?;
    egress::host_header(&host).map(|()| host)
}

fn table_of<'a>(notes: &Notes<'_>, item: &'a Node) -> Option<&'a [Entry]> {
    let Value::Table(entries) = &item.value else {
        notes.at(item.line, "a target is written as [[target]], with two brackets");
        return None;
    };
    Some(entries)
}

/// The source of a definition, the networks that it may reach, and the sources of its settings.
fn sources(
    permitted: Option<Permitted<'_>>,
    has: impl Fn(&str) -> bool,
) -> (TargetSource, Reach, [SettingSource; CHANGEABLE.len()]) {
    let (source, reach, own) = match permitted {
        None => (TargetSource::File, Reach::Everywhere, SettingSource::File),
        Some(permitted) => {
            let set_by = match permitted.source {
                TargetSource::Assignment => SettingSource::Assignment,
                TargetSource::File | TargetSource::Api => SettingSource::Api,
            };
            (permitted.source, Reach::Public { except: permitted.networks.to_vec() }, set_by)
        }
    };
    (source, reach, CHANGEABLE.map(|key| if has(key) { own.clone() } else { SettingSource::Default }))
}

/// The settings of a plugin, as an operator wrote them.
pub(crate) struct PluginSettings {
    pub settings: serde_json::Value,
    pub settings_version: Option<u32>,
    /// The line of each setting, by path.
    pub setting_lines: Vec<(String, usize)>,
}

/// Reads the plugin settings of a target or channel.
pub(crate) fn settings(section: &Section<'_>, entries: &[Entry]) -> PluginSettings {
    let settings = section.get("settings", |value| match value {
        Value::Table(_) => Ok(value.to_json()),
        other => Err(format!("this is {}, but should be a table: [target.settings]", other.kind())),
    });
    let lines = match entries.iter().find(|entry| entry.key == "settings") {
        Some(Entry { node: Node { value: Value::Table(entries), .. }, .. }) => lines_of(entries, ""),
        _ => Vec::new(),
    };
    let settings_version = section.get("settings_version", |value| {
        let version = u32::try_from(count(value)?).ok().filter(|version| *version > 0);
        version.ok_or_else(|| "use the number of a version, from 1".to_owned())
    });
    PluginSettings {
        settings: settings.unwrap_or_else(|| serde_json::json!({})),
        settings_version,
        setting_lines: lines,
    }
}

/// Returns the URL of a target whose own is missing or invalid. It is never requested: that problem prevents a start.
fn nowhere() -> Url {
    Url::parse("http://nowhere.invalid/").expect("the constant is a valid URL")
}

/// Returns the line of each key of a table and of its inner tables, by path.
fn lines_of(entries: &[Entry], outer: &str) -> Vec<(String, usize)> {
    let of = |entry: &Entry| {
        let path = if outer.is_empty() { entry.key.clone() } else { format!("{outer}.{}", entry.key) };
        let inner = match &entry.node.value {
            Value::Table(entries) => lines_of(entries, &path),
            _ => Vec::new(),
        };
        [(path, entry.line)].into_iter().chain(inner).collect::<Vec<_>>()
    };
    entries.iter().flat_map(of).collect()
}

fn labels(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Value::Table(entries) = value else {
        return Err("this should be a table: labels = { site = \"zurich\" }".to_owned());
    };
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let label = |entry: &Entry| {
        if entry.key.is_empty() || !is_name(&entry.key) {
            return Err(format!("{:?} is not a label name: use letters, digits and _, as in site_name", entry.key));
        }
        Ok((entry.key.clone(), text(&entry.node.value)?))
    };
    entries.iter().map(label).collect()
}

pub(crate) fn alias_of(notes: &Notes<'_>, item: &Node) -> Option<(String, String)> {
    let Value::Table(entries) = &item.value else {
        notes.at(item.line, "an alias is written as [[alias]], with two brackets");
        return None;
    };
    let section = Section::inner(notes, "alias".to_owned(), entries);
    let (name, canonical) = (section.text("name"), section.text("canonical"));
    section.finish();
    if name.is_none() || canonical.is_none() {
        notes.at(item.line, "an alias has a name and a canonical name");
    }
    Some((name?, canonical?))
}
