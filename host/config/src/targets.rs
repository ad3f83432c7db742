//! `[[target]]` and what is in it.

use crate::reader::{LONGEST, Notes, Overrides, Section, Source, boolean, interval, suggestion, text};
use crate::value::{Entry, Node, Value, show_duration};
use egress::{Fingerprint, Origin, Tls};
use model::{Kind, TargetId};
use scheduler::{Cadence, Settings};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));

/// What of a target can be changed while the host runs, beside its URL and the like in the file.
pub const CHANGEABLE: [&str; 3] = ["enabled", "interval", "cadence"];

/// One target, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetConfig {
    /// Its id.
    pub id: TargetId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its URL.
    pub url: Url,
    /// Other origins of the same thing.
    pub also: Vec<AlsoConfig>,
    /// How its certificate is judged.
    pub tls: TlsConfig,
    /// What is sent as `Host` instead of its URL's.
    pub host_header: Option<String>,
    /// Its base interval.
    pub interval: Option<Duration>,
    /// Its cadence.
    pub cadence: Option<Cadence>,
    /// Its shortest interval.
    pub min_interval: Option<Duration>,
    /// Its longest interval.
    pub max_interval: Option<Duration>,
    /// How long a poll may take.
    pub timeout: Option<Duration>,
    /// Whether it is polled.
    pub enabled: bool,
    /// Where its secrets come from.
    pub secrets: BTreeMap<String, SecretSource>,
    /// Those of them that may be too short to be masked.
    pub short_secrets: BTreeSet<String>,
    /// Names and values.
    pub labels: BTreeMap<String, String>,
    /// What its kind's schema says.
    pub settings: serde_json::Value,
    /// The line its id stands on.
    pub line: usize,
    /// The line of each of its settings, as `guests.expected`.
    pub setting_lines: Vec<(String, usize)>,
}

/// Another origin of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct AlsoConfig {
    /// Where.
    pub url: Url,
    /// How its certificate is judged.
    pub tls: TlsConfig,
}

/// How a certificate is judged, as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// Any of these leaves.
    pub fingerprints: BTreeSet<Fingerprint>,
    /// Authorities in a PEM file.
    pub ca_file: Option<PathBuf>,
    /// Not at all.
    pub insecure: bool,
    /// HTTP/2 where it is offered.
    pub http2: bool,
}

impl TlsConfig {
    /// The policy itself; a file is read.
    pub fn build(&self) -> Result<Tls, egress::TlsError> {
        let tls = match self {
            Self { insecure: true, .. } => Tls::insecure(),
            Self { ca_file: Some(file), .. } => Tls::ca_file(file),
            Self { fingerprints, .. } if !fingerprints.is_empty() => Tls::pinned(fingerprints.clone()),
            Self { .. } => Tls::system(),
        }?;
        Ok(if self.http2 { tls.with_http2() } else { tls })
    }
}

impl TargetConfig {
    /// The files that it names: secrets, and authorities.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let secrets = self.secrets.values().filter_map(|source| match source {
            SecretSource::File(path) => Some(path.as_path()),
            SecretSource::Variable(_) | SecretSource::Simulated(_) => None,
        });
        let tls = std::iter::once(&self.tls).chain(self.also.iter().map(|also| &also.tls));
        secrets.chain(tls.filter_map(|tls| tls.ca_file.as_deref()))
    }
}

/// Where a secret's value comes from; never a literal that somebody wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// An environment variable.
    Variable(String),
    /// A file; one line break at its end is not part of the value.
    File(PathBuf),
    /// What a simulated service takes, which keeps nothing from anybody.
    Simulated(&'static str),
}

pub(crate) fn targets(notes: &Notes<'_>, document: &[Entry], scheduler: &Settings) -> Vec<TargetConfig> {
    let Some(entry) = document.iter().find(|entry| entry.key == "target") else { return Vec::new() };
    let Value::Array(items) = &entry.node.value else {
        notes.at(entry.line, "a target is written as [[target]], with two brackets");
        return Vec::new();
    };
    let mut lines: HashMap<TargetId, usize> = HashMap::new();
    let mut targets: Vec<TargetConfig> = Vec::with_capacity(items.len());
    for item in items {
        let Some(target) = target(notes, item, scheduler) else { continue };
        match lines.get(&target.id) {
            Some(earlier) => {
                let message = format!(
                    "there are two targets {:?} (the other is on line {earlier}): give one another id",
                    target.id
                );
                notes.at(target.line, message);
            }
            None => drop(lines.insert(target.id.clone(), target.line)),
        }
        // What else is wrong with it is looked at as well.
        targets.push(target);
    }
    targets
}

fn target(notes: &Notes<'_>, item: &Node, scheduler: &Settings) -> Option<TargetConfig> {
    let Value::Table(entries) = &item.value else {
        notes.at(item.line, "a target is written as [[target]], with two brackets");
        return None;
    };
    let written = entries.iter().find(|entry| entry.key == "id").map(|entry| &entry.node.value);
    let name = match written {
        Some(Value::Text(id)) => format!("target {id:?}"),
        _ => "target".to_owned(),
    };
    let section = Section::inner(notes, name.clone(), entries);
    let required = |key: &'static str| {
        if !entries.iter().any(|entry| entry.key == key) {
            notes.at(item.line, format!("{name} has no {key}"));
        }
    };
    ["id", "kind", "url"].into_iter().for_each(required);
    let id = section.get("id", |value| TargetId::new(&text(value)?).map_err(|error| error.to_string()));
    let kind = section.get("kind", |value| Kind::new(&text(value)?).map_err(|error| error.to_string()));
    let url = section.get("url", |value| Origin::parse(&text(value)?).map_err(|error| error.to_string()));
    let also = section.get("also", |value| also(notes, value)).unwrap_or_default();
    let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
    let host_header = section.get("host_header", |value| {
        let host = text(value)?;
        egress::host_header(&host).map(|()| host)
    });
    let shortest = SHORTEST_INTERVAL.min(scheduler.min);
    let own = |key: &'static str| section.get(key, |value| interval(value, shortest));
    let (base, min_interval, max_interval) = (own("interval"), own("min_interval"), own("max_interval"));
    let cadence = section.get("cadence", cadence_of);
    let timeout = section.duration("timeout");
    if timeout.is_some_and(|timeout| timeout < TIMEOUT.0 || timeout > TIMEOUT.1) {
        notes.at(section.line("timeout"), "timeout: use 100ms to 5m");
    }
    let enabled = section.boolean("enabled").unwrap_or(true);
    let written_secrets = section.table("secrets").unwrap_or_default();
    let secrets = secrets(notes, written_secrets);
    let short_secrets = short_secrets(notes, written_secrets);
    let labels = section.get("labels", labels).unwrap_or_default();
    let settings = section.get("settings", |value| match value {
        Value::Table(_) => Ok(value.to_json()),
        other => Err(format!("this is {}, and should be a table: [target.settings]", other.kind())),
    });
    let setting_lines = match entries.iter().find(|entry| entry.key == "settings") {
        Some(Entry { node: Node { value: Value::Table(entries), .. }, .. }) => lines_of(entries, ""),
        _ => Vec::new(),
    };
    let shown = section.text("name");
    let line = section.line("id");
    section.finish();
    let id = id?;
    let mut target = TargetConfig {
        name: shown.unwrap_or_else(|| id.to_string()),
        id,
        kind: kind?,
        // Without one nothing runs; what else is wrong with it is looked at as well.
        url: url.map_or_else(nowhere, |(url, _)| url),
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
        labels,
        settings: settings.unwrap_or_else(|| serde_json::json!({})),
        line,
        setting_lines,
    };
    for key in CHANGEABLE.into_iter().filter(|key| entries.iter().any(|entry| entry.key == *key)) {
        notes.sources.borrow_mut().insert(setting(&target.id, key), Source::File);
    }
    let problems = target.override_with(notes.overrides, scheduler, &mut notes.sources.borrow_mut());
    for (place, why) in problems {
        notes.note(place.unwrap_or_else(|| format!("{}:{line}", notes.file)), why);
    }
    Some(target)
}

/// Stands for a URL that is none.
fn nowhere() -> Url {
    Url::parse("http://nowhere.invalid/").expect("it is a URL")
}

/// The key under which something of a target is changed while the host runs.
pub fn setting(target: &TargetId, key: &str) -> String {
    format!("target.{target}.{key}")
}

impl TargetConfig {
    /// Takes up what was changed while the host ran, and says what does not fit, and where when not in the file.
    pub fn override_with(
        &mut self,
        overrides: &Overrides,
        scheduler: &Settings,
        sources: &mut BTreeMap<String, Source>,
    ) -> Vec<(Option<String>, String)> {
        let mut problems = Vec::new();
        for key in CHANGEABLE {
            let name = setting(&self.id, key);
            let Some(value) = overrides.get(&name).map(|text| Value::Text(text.clone())) else { continue };
            let taken = match key {
                "enabled" => boolean(&value).map(|enabled| self.enabled = enabled),
                "interval" => {
                    interval(&value, SHORTEST_INTERVAL.min(scheduler.min)).map(|own| self.interval = Some(own))
                }
                _ => cadence_of(&value).map(|cadence| self.cadence = Some(cadence)),
            };
            problems.extend(taken.err().map(|why| (Some(format!("setting {name}")), why)));
            sources.insert(name, Source::Setting);
        }
        let min = self.min_interval.unwrap_or(scheduler.min);
        let cadence = self.cadence.unwrap_or(scheduler.cadence);
        let longest = Settings { cadence, max: self.max_interval.or(scheduler.max), ..scheduler.clone() }.longest();
        let max = longest.unwrap_or(LONGEST);
        let bounds = format!("{} to {}", show_duration(min), show_duration(max));
        if min > max {
            let why = format!("target {:?}: its shortest interval is above its longest: {bounds}", self.id);
            problems.push((None, why));
        } else if self.interval.is_some_and(|own| own < min || own > max) {
            let name = setting(&self.id, "interval");
            let place = overrides.contains_key(&name).then(|| format!("setting {name}"));
            let remedy = "choose one within, or set min_interval or max_interval in the file";
            let why = format!("target {:?}: its interval lies outside its bounds, {bounds}: {remedy}", self.id);
            problems.push((place, why));
        }
        problems
    }

    /// What can be changed while the host runs: each setting's key, with its value where it has one.
    pub fn changeable(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let values = [
            Some(self.enabled.to_string()),
            self.interval.map(show_duration),
            self.cadence.map(|cadence| cadence.as_str().to_owned()),
        ];
        CHANGEABLE.into_iter().zip(values).map(|(key, value)| (setting(&self.id, key), value))
    }

    /// Whether nothing but its place in the file is different.
    pub fn is_same(&self, other: &Self) -> bool {
        *self == Self { line: self.line, setting_lines: self.setting_lines.clone(), ..other.clone() }
    }

    /// The line of a setting, or of what it stands in; without one that of the target.
    pub fn line_of(&self, setting: Option<&str>) -> usize {
        let mut setting = setting.unwrap_or_default();
        loop {
            if let Some((_, line)) = self.setting_lines.iter().find(|(path, _)| path == setting) {
                return *line;
            }
            match setting.rsplit_once('.') {
                Some((outer, _)) => setting = outer,
                None => return self.line,
            }
        }
    }

    /// Whether only what can be changed while the host runs is different.
    pub fn is_scheduled_otherwise(&self, other: &Self) -> bool {
        let Self { enabled, interval, cadence, .. } = other.clone();
        Self { enabled, interval, cadence, ..self.clone() }.is_same(other)
    }
}

/// The line of each key of a table, and of those in it, by their paths.
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

fn cadence_of(value: &Value) -> Result<Cadence, String> {
    let word = text(value)?;
    Cadence::from_word(&word)
        .ok_or_else(|| format!("{word:?} is none{}", suggestion(&word, &Cadence::ALL.map(Cadence::as_str))))
}

fn also(notes: &Notes<'_>, value: &Value) -> Result<Vec<AlsoConfig>, String> {
    let Value::Array(items) = value else {
        return Err("this should be a list: also = [{ url = \"…\" }]".to_owned());
    };
    let mut origins = Vec::new();
    for item in items {
        let Value::Table(entries) = &item.value else {
            return Err("each of also is a table: { url = \"…\" }".to_owned());
        };
        let section = Section::inner(notes, "also".to_owned(), entries);
        let url = section.get("url", |value| Origin::parse(&text(value)?).map_err(|error| error.to_string()));
        let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
        section.finish();
        origins.extend(url.map(|(url, _)| AlsoConfig { url, tls }));
    }
    Ok(origins)
}

fn tls(notes: &Notes<'_>, entries: &[Entry]) -> TlsConfig {
    let section = Section::inner(notes, "tls".to_owned(), entries);
    let parse = |text: &str| Fingerprint::parse(text).map_err(|error| error.to_string());
    let fingerprints = section.get("fingerprint", |value| match value {
        Value::Text(text) => Ok(BTreeSet::from([parse(text)?])),
        Value::Array(items) => items.iter().map(|item| parse(&text(&item.value)?)).collect(),
        other => Err(format!("this is {}, and should be text or a list of texts", other.kind())),
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

fn secrets(notes: &Notes<'_>, entries: &[Entry]) -> BTreeMap<String, SecretSource> {
    let source = |entry: &Entry| Some((entry.key.clone(), secret_source(notes, entry, false)?));
    entries.iter().filter_map(source).collect()
}

/// Those that say `short = true`.
fn short_secrets(notes: &Notes<'_>, entries: &[Entry]) -> BTreeSet<String> {
    let is_short = |entry: &&Entry| {
        let Value::Table(entries) = &entry.node.value else { return false };
        // What else is in it is looked at elsewhere.
        let silent = Section::inner(notes, String::new(), entries);
        silent.boolean("short").unwrap_or(false)
    };
    entries.iter().filter(is_short).map(|entry| entry.key.clone()).collect()
}

/// `{ env = "…" }` or `{ file = "…" }`; those of `[secrets]` also say for whom they are.
pub(crate) fn secret_source(notes: &Notes<'_>, entry: &Entry, shared: bool) -> Option<SecretSource> {
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
        let list = |value: &Value| {
            if matches!(value, Value::Array(_)) { Ok(()) } else { Err("this should be a list".to_owned()) }
        };
        section.get("kinds", list);
        section.get("origins", list);
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

fn labels(value: &Value) -> Result<BTreeMap<String, String>, String> {
    let Value::Table(entries) = value else {
        return Err("this should be a table: labels = { site = \"zurich\" }".to_owned());
    };
    let is_name = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let label = |entry: &Entry| {
        if entry.key.is_empty() || !is_name(&entry.key) {
            return Err(format!("{:?} is no name of a label: use letters, digits and _, as in site_name", entry.key));
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
