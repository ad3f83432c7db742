//! The definition of a target, and its settings that can be changed at run time.

use crate::alerts::TargetAlerts;
use crate::reader::{LONGEST, Overrides, boolean, interval, suggestion, text};
use crate::value::{Value, show_duration};
use egress::{Fingerprint, Reach, Tls};
use model::{Cadence, Kind, Setting, SettingSource, TargetId, TargetSource, TargetTraits};
use scheduler::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// The shortest interval of a target, unless the scheduler's is shorter.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_secs(5);
/// The settings of a target that can be changed at run time. All other settings are changed in the file.
pub const CHANGEABLE: [&str; 3] = ["enabled", "interval", "cadence"];

/// The permissions of an operator for secrets of a target. Only the file can give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecretPermissions {
    /// Whether paths and queries of requests may contain secrets. Servers and proxies log them.
    pub in_path: bool,
    /// Whether values of answers that are kept as secrets may have less than 8 bytes. Those cannot be masked in other
    /// answers.
    pub short_captures: bool,
}

/// The definition of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetConfig {
    /// The id of the target.
    pub id: TargetId,
    /// The display name.
    pub name: String,
    /// The kind, which selects the plugin.
    pub kind: Kind,
    /// The URL of the target.
    pub url: Url,
    /// Further origins of the same service.
    pub also: Vec<AlsoConfig>,
    /// The verification of the certificate.
    pub tls: TlsConfig,
    /// The `Host` header; `None` to derive it from the URL.
    pub host_header: Option<String>,
    /// The base interval; `None` for the default.
    pub interval: Option<Duration>,
    /// The cadence; `None` for the default.
    pub cadence: Option<Cadence>,
    /// The shortest interval; `None` for the default.
    pub min_interval: Option<Duration>,
    /// The longest interval; `None` for the default.
    pub max_interval: Option<Duration>,
    /// The time limit of a poll.
    pub timeout: Option<Duration>,
    /// Whether the target is polled.
    pub enabled: bool,
    /// The sources of the secrets, by name.
    pub secrets: BTreeMap<String, SecretSource>,
    /// The names of secrets that may be too short to be masked.
    pub short_secrets: BTreeSet<String>,
    /// The permissions of its plugin for secrets.
    pub permissions: SecretPermissions,
    /// The labels: names and values.
    pub labels: BTreeMap<String, String>,
    /// The rules of its alerts.
    pub alerts: TargetAlerts,
    /// The settings of the plugin, as its schema defines them.
    pub settings: serde_json::Value,
    /// The version of the plugin's settings that they are written for; `None` if it is not written.
    pub settings_version: Option<u32>,
    /// The source of the definition.
    pub source: TargetSource,
    /// The networks that its requests may reach.
    pub reach: Reach,
    /// The sources of the settings that can be changed at run time, in the order of [`CHANGEABLE`].
    pub set_by: [SettingSource; 3],
    /// The line of the id.
    pub line: usize,
    /// The line of each plugin setting, by path such as `guests.expected`.
    pub setting_lines: Vec<(String, usize)>,
    /// Whether it is a channel: notifications are sent there, and it is not polled.
    pub is_channel: bool,
    /// The deployment of the fleet of which one device polls the target at a time.
    pub shared_by: Option<String>,
}

/// A further origin of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct AlsoConfig {
    /// The URL of the origin.
    pub url: Url,
    /// The verification of its certificate.
    pub tls: TlsConfig,
}

/// The configured verification of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The accepted fingerprints of leaf certificates.
    pub fingerprints: BTreeSet<Fingerprint>,
    /// A PEM file of accepted authorities.
    pub ca_file: Option<PathBuf>,
    /// Whether the certificate is not verified.
    pub insecure: bool,
    /// Whether HTTP/2 is used if the server offers it.
    pub http2: bool,
}

impl TlsConfig {
    /// Builds the TLS policy. Reads the PEM file, if any.
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
    /// Creates a target with an id, a kind and a URL. The display name is the id.
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
            permissions: SecretPermissions::default(),
            labels: BTreeMap::new(),
            alerts: TargetAlerts::default(),
            settings: serde_json::json!({}),
            settings_version: None,
            source: TargetSource::File,
            reach: Reach::Everywhere,
            set_by: [SettingSource::Default, SettingSource::Default, SettingSource::Default],
            line: 0,
            setting_lines: Vec::new(),
            is_channel: false,
            shared_by: None,
        }
    }

    /// Returns the properties that routes and messages use.
    pub fn traits(&self) -> TargetTraits {
        let labels = self.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let (name, kind) = (self.name.clone(), self.kind.to_string());
        TargetTraits { name, kind, labels, shared_by: self.shared_by.clone() }
    }

    /// Returns the word for it in messages.
    pub const fn noun(&self) -> &'static str {
        if self.is_channel { "channel" } else { "target" }
    }

    /// Whether it is a channel that the host serves itself, without a plugin.
    pub fn is_email(&self) -> bool {
        self.is_channel && self.kind.is_email()
    }

    /// Returns the URL as it was written: the parser has replaced the braces of references to secrets in its path.
    pub fn shown_url(&self) -> String {
        let may_refer = self.is_channel || self.permissions.in_path;
        if may_refer { self.written_url() } else { self.url.to_string() }
    }

    /// Returns the URL with the braces of references, whether it may have some or not.
    pub(crate) fn written_url(&self) -> String {
        egress::with_written_references(self.url.as_str())
    }

    /// Returns the same target at other lines of the file.
    pub(crate) fn moved(&self, moved: impl Fn(usize) -> usize) -> Self {
        let setting_lines = self.setting_lines.iter().map(|(path, line)| (path.clone(), moved(*line))).collect();
        Self { line: moved(self.line), setting_lines, ..self.clone() }
    }

    /// Returns the files that the target names: secrets and authorities.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let secrets = self.secrets.values().filter_map(|source| match source {
            SecretSource::File(path) => Some(path.as_path()),
            SecretSource::Variable(_) | SecretSource::Simulated(_) => None,
        });
        let tls = std::iter::once(&self.tls).chain(self.also.iter().map(|also| &also.tls));
        secrets.chain(tls.filter_map(|tls| tls.ca_file.as_deref()))
    }
}

/// The source of a secret. The configuration never contains the value itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// An environment variable.
    Variable(String),
    /// A file; one line break at its end is not part of the value.
    File(PathBuf),
    /// The fixed value that a simulated service accepts; it is not confidential.
    Simulated(&'static str),
}

/// Returns the key of a target's setting that can be changed at run time.
pub fn setting(target: &TargetId, key: &str) -> String {
    format!("target.{target}.{key}")
}

impl TargetConfig {
    /// Applies changed settings. Returns the problems, each with its place; `None` for a problem at the target in the
    /// file.
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

    /// Returns the settings that can be changed at run time.
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

    /// Compares with another definition of this target.
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
            permissions,
            labels,
            alerts,
            settings,
            settings_version,
            source,
            reach,
            set_by: _,
            line: _,
            setting_lines: _,
            is_channel,
            shared_by,
        } = self;
        let schedule = (interval, cadence, enabled) == (&other.interval, &other.cadence, &other.enabled);
        let rest = (id, name, kind, url, also, tls, host_header)
            == (&other.id, &other.name, &other.kind, &other.url, &other.also, &other.tls, &other.host_header)
            && (min_interval, max_interval, timeout) == (&other.min_interval, &other.max_interval, &other.timeout)
            && (secrets, short_secrets, permissions, labels)
                == (&other.secrets, &other.short_secrets, &other.permissions, &other.labels)
            && (alerts, source, reach) == (&other.alerts, &other.source, &other.reach)
            && (settings, settings_version) == (&other.settings, &other.settings_version)
            && (is_channel, shared_by) == (&other.is_channel, &other.shared_by);
        match (rest, schedule) {
            (true, true) => Difference::None,
            (true, false) => Difference::Schedule,
            (false, _) => Difference::Definition,
        }
    }

    /// Returns the line of a setting or of its enclosing table; without a setting, the line of the target.
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

/// The difference between two definitions of a target, regardless of their lines in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The definitions are equal.
    None,
    /// Only settings that can be changed at run time differ.
    Schedule,
    /// Other fields differ.
    Definition,
}

/// Reads a cadence.
pub(crate) fn cadence_of(value: &Value) -> Result<Cadence, String> {
    let word = text(value)?;
    Cadence::from_word(&word)
        .ok_or_else(|| format!("unknown cadence {word:?}{}", suggestion(&word, &Cadence::ALL.map(Cadence::as_str))))
}
