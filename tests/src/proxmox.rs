//! The plugins for Proxmox products in the sandbox, against the simulated estate or another server.

use egress::{Egress, Grant, Origin, OriginGrant, Secrets, Tape, Tls};
use model::{Dependency, Outcome, Report, TargetId, Timestamp};
use sandbox::{Compiler, Config, Done, Job, Limits, Plugin, Sandbox, Target};
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// 2026-11-20 12:00:00 UTC.
pub const NOW: i64 = 1_795_176_000;

/// Returns the name and value of the secret, and the settings, for a target of a product.
pub fn needs(product: &str) -> ((&'static str, &'static str), &'static str) {
    match product {
        "pve" => (("token", demo::PVE_TOKEN), r#"{"guests": {"expected": ["tag:prod"]}}"#),
        "pbs" => (("token", demo::PBS_TOKEN), "{}"),
        _ => (("password", demo::PMG_PASSWORD), r#"{"username": "monitor@pmg"}"#),
    }
}

/// A plugin, its sandbox and the estate that it polls.
pub struct Bench {
    sandbox: Sandbox,
    plugin: Plugin,
    base: String,
    product: &'static str,
    secret: (&'static str, &'static str),
    settings: &'static str,
    polls: AtomicUsize,
}

impl Bench {
    /// Uses the simulated estate.
    pub async fn new(product: &'static str) -> Self {
        Self::with(product, demo::router(Instant::now(), || NOW)).await
    }

    /// Uses another server.
    pub async fn with(product: &'static str, router: axum::Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        tokio::spawn(async { axum::serve(listener, router).await });
        // Nothing is compiled.
        let compiler = Compiler::temporary(("/no/such/program", &[]), [7; 32], 1).expect("a temporary folder");
        let config = Config { instance_slots: 64, lanes: NonZeroUsize::MIN, ..Config::default() };
        let sandbox = Sandbox::new(config, compiler, &Egress::new(egress::Config::default())).expect("a sandbox");
        let plugin = crate::built_in(&sandbox, product).await;
        let (secret, settings) = needs(product);
        Self { sandbox, plugin, base, product, secret, settings, polls: AtomicUsize::new(0) }
    }

    /// Replaces the secret: name and value.
    #[must_use]
    pub fn with_secret(self, secret: (&'static str, &'static str)) -> Self {
        Self { secret, ..self }
    }

    /// Replaces the settings.
    #[must_use]
    pub fn with_settings(self, settings: &'static str) -> Self {
        Self { settings, ..self }
    }

    /// Polls `/PRODUCT/WISH` once. `target` is the target's id; `None` uses a target that was never polled.
    pub async fn poll(&self, wish: &str, target: Option<&str>) -> Done {
        self.poll_at(&format!("{}/{wish}", self.product), target, NOW).await
    }

    /// Polls a path once. `now` is the time of the poll, in seconds since 1970.
    pub async fn poll_at(&self, path: &str, target: Option<&str>, now: i64) -> Done {
        let url = format!("{}/{path}", self.base);
        let (base, origin) = Origin::parse(&url).expect("it is a URL");
        let fresh = format!("t{}", self.polls.fetch_add(1, Ordering::Relaxed));
        let secrets = BTreeMap::from([(self.secret.0.to_owned(), SecretString::from(self.secret.1))]);
        let target = Target {
            id: TargetId::new(target.unwrap_or(&fresh)).expect("it is an id"),
            name: "Test".to_owned(),
            url,
            also: Vec::new(),
            labels: Vec::new(),
            settings: self.settings.to_owned(),
            secrets: vec![self.secret.0.to_owned()],
        };
        let origins = vec![OriginGrant { origin, tls: Tls::system().expect("roots") }];
        let job = Job {
            plugin: self.plugin.clone(),
            target: Arc::new(target),
            grant: Arc::new(Grant::new(base, origins, Secrets::new(secrets).expect("a good secret"))),
            limits: Limits::default(),
            timeout: Duration::from_secs(30),
            now: Timestamp::from_millis(now * 1000),
            tape: Tape::Off,
            zone: None,
            stored: model::PluginValues::default(),
        };
        self.sandbox.poll(job).await
    }

    /// Polls once and returns the report. Panics if the poll fails.
    pub async fn report(&self, wish: &str) -> Report {
        match self.poll(wish, None).await.outcome {
            Outcome::Success(report) => report,
            other => panic!("{wish}: {other:?}"),
        }
    }
}

/// Returns a line for each dependency, by name: its status and error message.
pub fn lines(report: &Report) -> BTreeMap<String, String> {
    let line = |dependency: &Dependency| {
        let skipped = if dependency.skipped { " (skipped)" } else { "" };
        let why = dependency.error_message.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        (dependency.name.clone(), format!("{}{skipped}{why}", dependency.status.as_str()))
    };
    report.dependencies.iter().map(line).collect()
}

/// The line of a dependency as in [`lines`]; empty if it is missing.
pub fn status(report: &Report, name: &str) -> String {
    lines(report).remove(name).unwrap_or_default()
}

/// Returns a line for each difference from a healthy estate.
pub fn difference(healthy: &Report, found: &Report) -> Vec<String> {
    let (before, after) = (lines(healthy), lines(found));
    let mut all: Vec<String> = Vec::new();
    for (name, line) in &after {
        if before.get(name) != Some(line) {
            all.push(format!("{name} {line}"));
        }
    }
    all.extend(before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!("{name} is not there")));
    all.extend(found.kept.iter().map(|kept| format!("{kept} is kept")));
    all.extend(found.warnings.iter().map(|warning| format!("warning: {warning}")));
    all
}
