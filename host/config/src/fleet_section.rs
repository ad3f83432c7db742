//! Reads `[fleet]`: the part of this host in a fleet.

use crate::reader::{Notes, Section, text};
use crate::target_config::TlsConfig;
use crate::target_parts::tls;
use crate::value::{Entry, Value};
use fleet::Labels;
use fleet::names::{RULE, is_name};
use std::path::PathBuf;
use url::Url;

/// The part of this host in a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// The tasks of the host.
    pub role: FleetRole,
    /// The URL of the broker, or those of its servers, with commas between them.
    pub url: String,
    /// The id of this host among the devices; empty if it is not one.
    pub device: String,
    /// The labels of this host.
    pub labels: Labels,
    /// A file with the user and the password for the broker.
    pub credentials: Option<PathBuf>,
    /// The number of servers that keep each record.
    pub replicas: usize,
    /// The verification of the broker's certificate.
    pub tls: TlsConfig,
    /// Whether an agent takes plugins that the operator offers.
    pub takes_plugins: bool,
    /// Kubernetes as a source of deployments; `None` if the deployments are made here.
    pub kubernetes: Option<KubernetesConfig>,
}

/// The cluster whose resources are deployments. What is missing is that of the pod in which this host runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// The URL of the API server.
    pub url: Option<Url>,
    /// The namespace of the resources.
    pub namespace: Option<String>,
    /// A file with the authorities of the server's certificate.
    pub ca_file: Option<PathBuf>,
    /// A file with the token of the account.
    pub token_file: Option<PathBuf>,
}

/// The tasks of a host in a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetRole {
    /// It polls what it is assigned, and reports.
    Agent,
    /// It assigns and counts.
    Operator,
    /// Both.
    Both,
}

/// A deployment that this host was assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignedDeployment {
    /// The term of the lease under which this host polls; 0 if the deployment needs none.
    pub term: u64,
    /// The targets.
    pub targets: Vec<AssignedTarget>,
}

/// A target of a deployment on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedTarget {
    /// The id.
    pub id: String,
    /// Why it is not polled; `None` if it is.
    pub problem: Option<String>,
}

impl FleetRole {
    const ALL: [Self; 3] = [Self::Agent, Self::Operator, Self::Both];

    /// The word in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Both => "both",
        }
    }

    /// Whether the host reports.
    pub const fn is_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Both)
    }

    /// Whether the host counts.
    pub const fn is_operator(self) -> bool {
        matches!(self, Self::Operator | Self::Both)
    }
}

pub(crate) fn fleet_section(notes: &Notes<'_>, document: &[Entry]) -> Option<FleetConfig> {
    let section = Section::top(notes, document, "fleet");
    let role = section.get("role", |value| {
        let word = text(value)?;
        let known = FleetRole::ALL;
        let unknown = || format!("unknown role {word:?}: use one of {}", known.map(FleetRole::as_str).join(", "));
        known.into_iter().find(|role| role.as_str() == word).ok_or_else(unknown)
    });
    let url = section.get("url", broker);
    let device = section.get("device", |value| {
        let device = text(value)?;
        if is_name(&device) { Ok(device) } else { Err(format!("{device:?} cannot be the id of a device: use {RULE}")) }
    });
    let labels = section.get("labels", labels).unwrap_or_default();
    let credentials = section.text("credentials").map(PathBuf::from);
    let replicas = section.get("replicas", |value| match crate::reader::count(value)? {
        replicas @ (1 | 3 | 5) => Ok(replicas as usize),
        replicas => Err(format!("{replicas} replicas: use 1, or 3 or 5 with as many servers")),
    });
    let tls = section.table("tls").map(|entries| tls(notes, entries)).unwrap_or_default();
    let tls_line = section.line("tls");
    let takes_plugins = section.boolean("plugins").unwrap_or(false);
    let kubernetes = section.table("kubernetes").map(|entries| kubernetes(notes, entries));
    let kubernetes_line = section.line("kubernetes");
    let line = section.line("role");
    let [has_role, has_url, has_device] = ["role", "url", "device"].map(|key| section.has(key));
    section.finish();
    if !has_role && !has_url && !has_device {
        return None;
    }
    if tls.insecure {
        let remedy = "write fingerprint or ca_file";
        notes.at(tls_line, format!("[fleet] tls: insecure would give the password to any server: {remedy}"));
    }
    if tls != TlsConfig::default() && url.as_ref().is_some_and(|url| !url.starts_with("tls:")) {
        notes.at(tls_line, "[fleet] tls: the URL does not use TLS: write tls://HOST:4222");
    }
    if kubernetes.is_some() && role.is_some_and(|role| !role.is_operator()) {
        notes.at(kubernetes_line, "[fleet] kubernetes: only an operator has deployments: set role to operator or both");
    }
    let missing = |key: &str, meaning: &str| notes.at(line, format!("[fleet] has no {key}: {meaning}"));
    if !has_role {
        missing("role", "use agent, operator or both");
    }
    if !has_url {
        missing("url", "write the address of the broker, as in \"nats://127.0.0.1:4222\"");
    }
    if role.is_some_and(FleetRole::is_agent) && !has_device {
        missing("device", "give this host an id that no other host of the fleet has, as in \"site-a-1\"");
    }
    Some(FleetConfig {
        role: role?,
        url: url?,
        device: device.unwrap_or_default(),
        labels,
        credentials,
        replicas: replicas.unwrap_or(1),
        tls,
        takes_plugins,
        kubernetes,
    })
}

fn kubernetes(notes: &Notes<'_>, entries: &[Entry]) -> KubernetesConfig {
    let section = Section::inner(notes, "kubernetes".to_owned(), entries);
    let url = section.get("url", |value| {
        let url = text(value)?;
        let parsed = Url::parse(&url).map_err(|error| format!("{url:?} is not a URL: {error}"))?;
        let is_known = matches!(parsed.scheme(), "http" | "https") && parsed.has_host();
        let remedy = "write https://HOST:6443, or http://127.0.0.1:8001 for `kubectl proxy`";
        if is_known { Ok(parsed) } else { Err(format!("{url:?} is not the address of an API server: {remedy}")) }
    });
    let namespace = section.get("namespace", |value| {
        let name = text(value)?;
        // RFC 1123, as Kubernetes names namespaces.
        if is_name(&name) { Ok(name) } else { Err(format!("{name:?} cannot be a namespace: use {RULE}")) }
    });
    let [ca_file, token_file] = ["ca_file", "token_file"].map(|key| section.text(key).map(PathBuf::from));
    section.finish();
    KubernetesConfig { url, namespace, ca_file, token_file }
}

/// The URL of the broker, or those of its servers, with commas between them.
fn broker(value: &Value) -> Result<String, String> {
    let urls = text(value)?;
    urls.split(',').map(str::trim).try_for_each(server)?;
    Ok(urls)
}

fn server(url: &str) -> Result<(), String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url:?} is not a URL: {error}"))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("user and password are in the file of credentials, not in the URL".to_owned());
    }
    match parsed.scheme() {
        "nats" | "tls" if parsed.host_str().is_some_and(|host| !host.is_empty()) => Ok(()),
        _ => Err(format!("{url:?} is not the address of a broker: write nats://HOST:4222 or tls://HOST:4222")),
    }
}

fn labels(value: &Value) -> Result<Labels, String> {
    let Value::Table(entries) = value else {
        return Err("this should be a table: labels = { site = \"zurich\" }".to_owned());
    };
    let label = |entry: &Entry| Ok((entry.key.clone(), text(&entry.node.value)?));
    let labels: Labels = entries.iter().map(label).collect::<Result<_, String>>()?;
    fleet::labels::check(&labels).map_err(|error| error.to_string())?;
    Ok(labels)
}
