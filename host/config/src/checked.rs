//! The complete, checked configuration.

use crate::alerts::{AlertsConfig, alerts, silence_name, silences};
use crate::channels::{channel_names, channels, route_name, routes};
use crate::fleet_section::{AssignedDeployment, FleetConfig, fleet_section};
use crate::otlp::{OtlpConfig, otlp};
use crate::proxy::{ProxyConfig, proxy};
use crate::reader::{LONGEST, Notes, Section, count, interval, suggestion, text, words};
use crate::shared_secret::SharedSecret;
use crate::status_page::status_pages;
use crate::target_config::TargetConfig;
use crate::target_parts::all_shared;
use crate::targets::{alias_of, targets};
use crate::value::{Entry, Value, show_duration};
use egress::{Cidr, Method, Narrowing};
use model::{Cadence, Kind, SettingSource, StatusPage};
use notify::{Route, Silence};
use sandbox::Zone;
use scheduler::{Profile, Settings};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The shortest interval that an operator can set; the configuration may raise it.
const SHORTEST: Duration = Duration::from_millis(100);
/// Upper bound on every cap; a higher cap would have no effect.
const HIGHEST_CAP: u64 = 100_000;
const SECTIONS: [&str; 16] = [
    "server",
    "metrics",
    "store",
    "egress",
    "plugins",
    "scheduler",
    "alerts",
    "fleet",
    "otlp",
    "secrets",
    "target",
    "alias",
    "status_page",
    "silence",
    "channel",
    "route",
];

/// The complete configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listen address of pages and API.
    pub listen: SocketAddr,
    /// The listen address of `/metrics`.
    pub metrics_listen: SocketAddr,
    /// Host names that requests may use, besides addresses and names of the local site.
    pub hosts: Vec<String>,
    /// The reverse proxy whose users are accepted.
    pub proxy: Option<ProxyConfig>,
    /// The time zone that plugins see.
    pub time_zone: Zone,
    /// The prefix of metric names.
    pub metrics_prefix: String,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The settings of the database.
    pub store: store::Config,
    /// The limit on concurrent requests per host.
    pub max_requests_per_host: usize,
    /// The limit on bytes of bodies in memory at a time.
    pub max_body_bytes_in_flight: usize,
    /// The private networks that targets made through the API may reach.
    pub api_target_cidrs: Vec<Cidr>,
    /// The secrets that targets made through the API may name.
    pub secrets: BTreeMap<String, SharedSecret>,
    /// The plugin directory.
    pub plugin_dir: PathBuf,
    /// Plugin files that may take over a kind that has targets.
    pub trusted_plugins: Vec<String>,
    /// The limit on concurrent plugin instances.
    pub instance_slots: u32,
    /// The resource limits of polls, by kind.
    pub limits: BTreeMap<Kind, Limits>,
    /// The scheduler's settings.
    pub scheduler: Settings,
    /// All targets.
    pub targets: Vec<Arc<TargetConfig>>,
    /// Aliases of dependencies: alias to canonical name.
    pub aliases: HashMap<String, String>,
    /// The public pages of chosen targets.
    pub status_pages: Vec<StatusPage>,
    /// The rules of alerts.
    pub alerts: AlertsConfig,
    /// The channels that notifications go to.
    pub channels: Vec<Arc<TargetConfig>>,
    /// The routes from alerts to channels.
    pub routes: Vec<Route>,
    /// The recurring silences.
    pub silences: Vec<Silence>,
    /// The lines of the file's routes and silences, by their names in messages.
    pub(crate) lines: BTreeMap<String, usize>,
    /// The part of this host in a fleet.
    pub fleet: Option<FleetConfig>,
    /// The collector of OpenTelemetry that takes events and metrics.
    pub otlp: Option<OtlpConfig>,
    /// The deployments that this host was assigned, by name.
    pub deployments: BTreeMap<String, AssignedDeployment>,
    /// The names of those of which another device may poll the targets.
    pub standby: BTreeSet<String>,
    /// The name of the file, for messages.
    pub file: String,
    /// The origins of values outside targets that are not the default, by key.
    pub sources: BTreeMap<String, SettingSource>,
    /// All environment variables that could set a value.
    pub variables: BTreeSet<String>,
}

/// The limits of a kind that differ from the defaults of the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The resource limits of a poll.
    pub poll: sandbox::Limits,
    /// The restrictions on its requests.
    pub narrowing: Narrowing,
}

/// Returns the line number of a place such as `polliwog.toml:12`.
pub fn line(place: &str) -> usize {
    place.rsplit(':').next().and_then(|line| line.parse().ok()).unwrap_or(0)
}

pub(crate) fn checked(notes: &Notes<'_>, document: &[Entry], data_dir: PathBuf) -> Config {
    for entry in document.iter().filter(|entry| !SECTIONS.contains(&entry.key.as_str())) {
        notes.at(entry.line, format!("unknown section {:?}{}", entry.key, suggestion(&entry.key, &SECTIONS)));
    }
    let Server { listen, metrics_listen, hosts, proxy, time_zone } =
        server(notes, Section::top(notes, document, "server"));
    let scheduler = scheduler(notes, Section::top(notes, document, "scheduler"));
    let store = store_config(notes, Section::top(notes, document, "store"), &data_dir);
    let egress = Section::top(notes, document, "egress");
    let max_requests_per_host = at_least_one(&egress, "max_requests_per_host").unwrap_or(20);
    let max_body_bytes_in_flight = at_least_one(&egress, "max_body_bytes_in_flight").unwrap_or(256 << 20);
    if max_body_bytes_in_flight < sandbox::Limits::default().body {
        let line = egress.line("max_body_bytes_in_flight");
        notes.at(
            line,
            format!(
                "max_body_bytes_in_flight: one body may have {} bytes, so use a larger value",
                sandbox::Limits::default().body
            ),
        );
    }
    let api_target_cidrs = egress.get("api_target_cidrs", cidrs).unwrap_or_default();
    egress.finish();
    let plugins = Section::top(notes, document, "plugins");
    let plugin_dir = plugins.text("dir").map_or_else(|| data_dir.join("plugins"), PathBuf::from);
    let trusted_plugins = plugins.get("trust", words).unwrap_or_default();
    let instance_slots = at_least_one(&plugins, "instance_slots").unwrap_or(512);
    let limits = plugins.table("limits").map(|entries| limits(notes, entries)).unwrap_or_default();
    plugins.finish();
    let channels = channels(notes, document);
    let names = channel_names(document);
    let (routes, silences) = (routes(notes, document, &names), silences(notes, document));
    let lines = (routes.iter().map(|(route, line)| (route_name(route), *line)))
        .chain(silences.iter().map(|(silence, line)| (silence_name(silence), *line)))
        .collect();
    Config {
        listen,
        metrics_listen,
        hosts,
        proxy,
        time_zone,
        metrics_prefix: metrics_prefix(notes, Section::top(notes, document, "metrics")),
        store,
        max_requests_per_host,
        max_body_bytes_in_flight,
        plugin_dir,
        trusted_plugins,
        api_target_cidrs,
        secrets: secrets(notes, document),
        instance_slots: u32::try_from(instance_slots).unwrap_or(u32::MAX),
        limits,
        targets: targets(notes, document, &scheduler).into_iter().map(Arc::new).collect(),
        scheduler,
        aliases: aliases(notes, document),
        status_pages: status_pages(notes, document),
        alerts: alerts(notes, document, &names),
        routes: routes.into_iter().map(|(route, _)| route).collect(),
        channels,
        silences: silences.into_iter().map(|(silence, _)| silence).collect(),
        lines,
        fleet: fleet_section(notes, document),
        otlp: otlp(notes, document),
        deployments: BTreeMap::new(),
        standby: BTreeSet::new(),
        file: notes.file.clone(),
        sources: BTreeMap::new(),
        variables: BTreeSet::new(),
        data_dir,
    }
}

/// The secrets that targets made through the API may name.
fn secrets(notes: &Notes<'_>, document: &[Entry]) -> BTreeMap<String, SharedSecret> {
    let section = document.iter().find(|entry| entry.key == "secrets").map(|entry| &entry.node.value);
    match section {
        Some(Value::Table(entries)) => all_shared(notes, entries),
        _ => BTreeMap::new(),
    }
}

/// The section `server`.
struct Server {
    listen: SocketAddr,
    metrics_listen: SocketAddr,
    hosts: Vec<String>,
    proxy: Option<ProxyConfig>,
    time_zone: Zone,
}

fn server(notes: &Notes<'_>, section: Section<'_>) -> Server {
    let address = |value: &Value| {
        let text = text(value)?;
        // The only name that needs no resolver.
        let numbers = text.strip_prefix("localhost:").map_or_else(|| text.clone(), |port| format!("127.0.0.1:{port}"));
        numbers.parse::<SocketAddr>().map_err(|_| {
            let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).unwrap_or(7411);
            format!("{text:?} is not an address with a port: write it as 127.0.0.1:{port}")
        })
    };
    let listen = section.get("listen", address);
    let metrics = section.get("metrics_listen", address);
    let hosts = section.get("hosts", words).unwrap_or_default();
    let proxy = proxy(notes, &section);
    let time_zone = section.get("time_zone", |value| {
        let name = text(value)?;
        Zone::named(&name).ok_or_else(|| format!("{name:?} is not an IANA time zone, such as \"Europe/Zurich\""))
    });
    let line = section.line("metrics_listen");
    section.finish();
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let (listen, metrics) = (listen.unwrap_or_else(|| local(7411)), metrics.unwrap_or_else(|| local(9091)));
    if listen == metrics && listen.port() != 0 {
        notes.at(line, "metrics_listen is the same as listen: choose another port");
    }
    Server { listen, metrics_listen: metrics, hosts, proxy, time_zone: time_zone.unwrap_or_else(Zone::system) }
}

fn metrics_prefix(notes: &Notes<'_>, section: Section<'_>) -> String {
    let prefix = section.text("prefix");
    let line = section.line("prefix");
    section.finish();
    let prefix = prefix.unwrap_or_else(|| "polliwog".to_owned());
    // Plugins cannot report metrics with either prefix.
    if !["polliwog", "pulse_monitor"].contains(&prefix.as_str()) {
        notes.at(line, format!("prefix: unknown prefix {prefix:?}; use polliwog or pulse_monitor"));
    }
    prefix
}

fn store_config(notes: &Notes<'_>, section: Section<'_>, data_dir: &std::path::Path) -> store::Config {
    /// Files that the host writes itself.
    const OWN: [&str; 4] = ["serving.json", "accepted-plugins", "installation.key", "polliwog.toml"];
    let line = section.line("path");
    let config = store::Config {
        path: section.text("path").map_or_else(|| data_dir.join("polliwog.db"), PathBuf::from),
        history_days: section.count("history_days").map_or(400, |days| u32::try_from(days).unwrap_or(u32::MAX)),
        history_rows: section.count("history_rows").unwrap_or(1_000_000),
        history_bytes: section.count("history_bytes").unwrap_or(2 << 30),
    };
    if config.path.file_name().is_some_and(|name| OWN.iter().any(|own| name == *own)) {
        notes.at(line, "path is the name of another file of the host: the name must end in .db");
    }
    section.finish();
    config
}

pub(crate) fn scheduler(notes: &Notes<'_>, section: Section<'_>) -> Settings {
    let defaults = Settings::default();
    let word = |value: &Value, known: &[&str]| {
        let text = text(value)?;
        if known.contains(&text.as_str()) {
            Ok(text)
        } else {
            Err(format!("unknown value {text:?}{}", suggestion(&text, known)))
        }
    };
    let profiles = Profile::ALL.map(Profile::as_str);
    let cadences = Cadence::ALL.map(Cadence::as_str);
    let profile = section.get("profile", |value| word(value, &profiles)).and_then(|word| Profile::from_word(&word));
    let mut cadence = section.get("cadence", |value| word(value, &cadences)).and_then(|word| Cadence::from_word(&word));
    // The variable of Pulse that enables the adaptive cadence.
    if let Some(enabled) = (notes.environment)("ADAPTIVE_POLLING_ENABLED") {
        match enabled.trim().to_lowercase().as_str() {
            "false" | "0" | "no" | "off" => {
                cadence = Some(Cadence::Fixed);
                let source = SettingSource::Environment("ADAPTIVE_POLLING_ENABLED".to_owned());
                notes.sources.borrow_mut().insert("scheduler.cadence".to_owned(), source);
            }
            "true" | "1" | "yes" | "on" => {}
            _ => notes.note("environment ADAPTIVE_POLLING_ENABLED".to_owned(), "this should be true or false"),
        }
    }
    let interval = |key: &'static str| section.get(key, |value| interval(value, SHORTEST));
    let cap = |key: &'static str, least: u64| {
        section.get(key, |value| match count(value)? {
            0 if least > 0 => Err("0 would stop all polls: use 1 or more".to_owned()),
            cap if cap > HIGHEST_CAP => Err(format!("{cap} is too high: use at most {HIGHEST_CAP}")),
            cap => Ok(u32::try_from(cap).unwrap_or(u32::MAX)),
        })
    };
    let settings = Settings {
        profile: profile.unwrap_or(defaults.profile),
        cadence: cadence.unwrap_or(defaults.cadence),
        base: interval("base_interval"),
        min: interval("min_interval").unwrap_or(defaults.min),
        max: interval("max_interval"),
        dead_letter_interval: interval("dead_letter_interval").unwrap_or(defaults.dead_letter_interval),
        max_in_flight: cap("max_in_flight", 1).map_or(defaults.max_in_flight, |cap| cap as usize),
        max_per_host: cap("max_per_host", 1).map_or(defaults.max_per_host, |cap| cap as usize),
        rate_per_second: cap("rate_per_second", 0).unwrap_or(defaults.rate_per_second),
    };
    // If no longest interval is set, the base is the longest.
    let longest = settings.longest().unwrap_or(LONGEST);
    let (min, max) = (show_duration(settings.min), show_duration(longest));
    if settings.min > longest {
        let message = format!("min_interval ({min}) is above max_interval ({max}): lower one or raise the other");
        section.blame(&["min_interval", "max_interval"], message);
    } else if let Some(base) = settings.base.filter(|base| *base < settings.min || *base > longest) {
        let base = show_duration(base);
        let message = format!("base_interval ({base}) lies outside min_interval ({min}) and max_interval ({max})");
        section.blame(&["base_interval", "min_interval", "max_interval"], message);
    }
    section.finish();
    settings
}

/// Returns all settings of the scheduler with their active values, in the form in which they are written.
pub fn scheduler_values(settings: &Settings) -> [(&'static str, Option<String>); 9] {
    let duration = |duration| Some(show_duration(duration));
    [
        ("scheduler.profile", Some(settings.profile.as_str().to_owned())),
        ("scheduler.cadence", Some(settings.cadence.as_str().to_owned())),
        ("scheduler.base_interval", settings.base.and_then(duration)),
        ("scheduler.min_interval", duration(settings.min)),
        ("scheduler.max_interval", settings.max.and_then(duration)),
        ("scheduler.dead_letter_interval", duration(settings.dead_letter_interval)),
        ("scheduler.max_in_flight", Some(settings.max_in_flight.to_string())),
        ("scheduler.max_per_host", Some(settings.max_per_host.to_string())),
        ("scheduler.rate_per_second", Some(settings.rate_per_second.to_string())),
    ]
}

fn at_least_one(section: &Section<'_>, key: &'static str) -> Option<usize> {
    let value = section.count(key)?;
    if value == 0 {
        section.blame(&[key], format!("{key} is 0, which would stop all polls: use 1 or more"));
    }
    Some(usize::try_from(value).unwrap_or(usize::MAX).max(1))
}

fn cidrs(value: &Value) -> Result<Vec<Cidr>, String> {
    words(value)?.iter().map(|item| item.parse()).collect()
}

/// Reads a list of texts; in the environment they are separated by commas.
fn methods(value: &Value) -> Result<Vec<Method>, String> {
    let method = |word: &String| match egress::method(&word.to_ascii_uppercase())? {
        method if egress::is_never_sent(&method) => Err(format!("{method} is never sent: leave it out")),
        method => Ok(method),
    };
    words(value)?.iter().map(method).collect()
}

fn path_prefixes(value: &Value) -> Result<Vec<String>, String> {
    let prefix = |path: String| match path.strip_prefix('/') {
        Some(_) if !path.contains(['?', '#']) => Ok(path),
        _ => Err(format!("{path:?} is not a path prefix: it must begin with / and contain neither ? nor #")),
    };
    words(value)?.into_iter().map(prefix).collect()
}

fn limits(notes: &Notes<'_>, entries: &[Entry]) -> BTreeMap<Kind, Limits> {
    let mut limits = BTreeMap::new();
    for entry in entries {
        let kind = match Kind::new(&entry.key) {
            Ok(kind) => kind,
            Err(error) => {
                notes.at(entry.line, error.to_string());
                continue;
            }
        };
        let Value::Table(entries) = &entry.node.value else {
            notes.at(entry.line, format!("limits of {kind} must be a table: [plugins.limits.{kind}]"));
            continue;
        };
        let section = Section::inner(notes, format!("plugins.limits.{kind}"), entries);
        let of = |key: &'static str, default: usize| {
            section.get(key, count).map_or(default, |n| usize::try_from(n).unwrap_or(usize::MAX))
        };
        let defaults = sandbox::Limits::default();
        let poll = sandbox::Limits {
            memory: of("memory_bytes", defaults.memory),
            cpu: section.duration("cpu").unwrap_or(defaults.cpu),
            requests: u32::try_from(of("requests", defaults.requests as usize)).unwrap_or(u32::MAX),
            body: of("body_bytes", defaults.body),
            bodies: of("bodies_bytes", defaults.bodies),
            dependencies: of("dependencies", defaults.dependencies),
            samples: of("samples", defaults.samples),
            warnings: of("warnings", defaults.warnings),
            report: of("report_bytes", defaults.report),
            log_lines: u32::try_from(of("log_lines", defaults.log_lines as usize)).unwrap_or(u32::MAX),
        };
        for (key, nothing) in [("cpu", poll.cpu.is_zero()), ("memory_bytes", poll.memory < 1 << 20)] {
            if nothing {
                notes.at(
                    section.line(key),
                    format!("{key} is too small for any plugin: use at least 1 ms of CPU and 1 MiB of memory"),
                );
            }
        }
        if poll.memory > defaults.memory {
            notes.at(
                section.line("memory_bytes"),
                format!("memory_bytes: a poll has at most {} bytes", defaults.memory),
            );
        }
        let narrowing = Narrowing {
            methods: section.get("methods", methods),
            path_prefixes: section.get("path_prefixes", path_prefixes),
        };
        section.finish();
        limits.insert(kind, Limits { poll, narrowing });
    }
    limits
}

fn aliases(notes: &Notes<'_>, document: &[Entry]) -> HashMap<String, String> {
    let Some(entry) = document.iter().find(|entry| entry.key == "alias") else { return HashMap::new() };
    let Value::Array(items) = &entry.node.value else {
        notes.at(entry.line, "an alias is written as [[alias]], with two brackets");
        return HashMap::new();
    };
    let mut aliases = HashMap::new();
    for item in items {
        let Some((name, canonical)) = alias_of(notes, item) else { continue };
        if let Some(other) = aliases.get(&name).filter(|other| **other != canonical) {
            notes.at(item.line, format!("the alias {name:?} already stands for {other:?}: keep one of the two"));
        }
        aliases.insert(name, canonical);
    }
    aliases
}
