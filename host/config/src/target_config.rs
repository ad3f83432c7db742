//! A target's definition, and the settings of it that can be changed while the host runs.

use crate::reader::{LONGEST, Overrides, boolean, interval, suggestion, text};
use crate::value::{Value, show_duration};
use egress::{Fingerprint, Tls};
use model::{Cadence, Kind, Setting, SettingSource, TargetId, TargetSource};
use scheduler::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// The shortest interval of a target, unless the scheduler's is shorter.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
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
    /// Where it is defined.
    pub source: TargetSource,
    /// The origins of what can be changed while the host runs, in the order of [`CHANGEABLE`].
    pub set_by: [SettingSource; 3],
    /// The line of its id.
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
    /// A target with nothing but an id, a kind and a URL, named after its id.
    pub fn new(id: TargetId, kind: Kind, url: Url) -> Self {
        Self {
            name: id.to_string(),
            id,
            kind,
            url,
            also: Vec::new(),
            tls: TlsConfig::default(),
            host_header: None,
            interval: None,
            cadence: None,
            min_interval: None,
            max_interval: None,
            timeout: None,
            enabled: true,
            secrets: BTreeMap::new(),
            short_secrets: BTreeSet::new(),
            labels: BTreeMap::new(),
            settings: serde_json::json!({}),
            source: TargetSource::File,
            set_by: [SettingSource::Default, SettingSource::Default, SettingSource::Default],
            line: 0,
            setting_lines: Vec::new(),
        }
    }

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

/// The key under which something of a target is changed while the host runs.
pub fn setting(target: &TargetId, key: &str) -> String {
    format!("target.{target}.{key}")
}

impl TargetConfig {
    /// Applies changed settings. Returns what does not fit, each with its place if that is not the target in the file.
    pub(crate) fn apply(&mut self, overrides: &Overrides, scheduler: &Settings) -> Vec<(Option<String>, String)> {
        let mut problems = Vec::new();
        for (place, key) in CHANGEABLE.into_iter().enumerate() {
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
            self.set_by[place] = SettingSource::Setting;
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

    /// The settings that can be changed while the host runs.
    pub fn changeable(&self) -> impl Iterator<Item = Setting> {
        let values = [
            Some(self.enabled.to_string()),
            self.interval.map(show_duration),
            self.cadence.map(|cadence| cadence.as_str().to_owned()),
        ];
        CHANGEABLE.into_iter().zip(values).zip(&self.set_by).map(|((key, value), source)| Setting {
            key: setting(&self.id, key),
            value,
            source: source.clone(),
        })
    }

    /// How another definition of this target differs.
    pub fn difference(&self, other: &Self) -> Difference {
        // Every field is named, so that a new one cannot be forgotten.
        let Self {
            id,
            name,
            kind,
            url,
            also,
            tls,
            host_header,
            interval,
            cadence,
            min_interval,
            max_interval,
            timeout,
            enabled,
            secrets,
            short_secrets,
            labels,
            settings,
            source,
            set_by: _,
            line: _,
            setting_lines: _,
        } = self;
        let schedule = (interval, cadence, enabled) == (&other.interval, &other.cadence, &other.enabled);
        let rest = (id, name, kind, url, also, tls, host_header)
            == (&other.id, &other.name, &other.kind, &other.url, &other.also, &other.tls, &other.host_header)
            && (min_interval, max_interval, timeout) == (&other.min_interval, &other.max_interval, &other.timeout)
            && (secrets, short_secrets, labels) == (&other.secrets, &other.short_secrets, &other.labels)
            && (settings, source) == (&other.settings, &other.source);
        match (rest, schedule) {
            (true, true) => Difference::None,
            (true, false) => Difference::Schedule,
            (false, _) => Difference::Definition,
        }
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
}

/// How two definitions of a target differ, their places in the file aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Not at all.
    None,
    /// Only in what can be changed while the host runs.
    Schedule,
    /// In anything else.
    Definition,
}

/// The cadence that a value names.
pub(crate) fn cadence_of(value: &Value) -> Result<Cadence, String> {
    let word = text(value)?;
    Cadence::from_word(&word)
        .ok_or_else(|| format!("{word:?} is none{}", suggestion(&word, &Cadence::ALL.map(Cadence::as_str))))
}
