//! Simulated services and Proxmox installations on loopback, for `run --demo` and for tests.
//!
//! They use the formats of real services and fail on a timetable, so that transitions, a breaker that opens and closes,
//! a dead letter, warnings and stale data occur within two minutes. The ports are fixed, because a target with a
//! changed URL is a different target, and the demo's data must survive a restart.

#![forbid(unsafe_code)]

mod listen;
mod proxmox;
mod receiver;
mod replay;
mod services;

pub use listen::{DemoError, Now};
pub use proxmox::{PBS_TOKEN, PMG_PASSWORD, PMG_USER, PVE_TOKEN};
pub use receiver::RECEIVER;
pub use replay::{REPLAY_PORT, Replayed, replay};

use axum::Router;
use listen::bind;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};

/// The port of the demo. The service that stops and restarts uses the next port.
pub const PORT: u16 = 7412;
/// How long the restarting service is up.
const UP: Duration = Duration::from_secs(45);
/// How long the restarting service is down.
const DOWN: Duration = Duration::from_secs(40);

/// Names of dependencies in the demo, and their canonical names: services that several targets use, and targets.
pub const ALIASES: [(&str, &str); 6] = [
    ("postgres", "PostgreSQL main"),
    ("db", "PostgreSQL main"),
    ("sqlserver", "SQL Server"),
    ("redis", "Redis"),
    ("upstream", "shop"),
    ("Payment gateway", "flaky"),
];

/// A target of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoTarget {
    /// The id of the target.
    pub id: &'static str,
    /// The display name.
    pub name: &'static str,
    /// The plugin kind.
    pub kind: &'static str,
    /// The URL of the simulated service.
    pub url: String,
    /// The settings as JSON.
    pub settings: &'static str,
    /// Names and values of the secrets that the simulated service accepts.
    pub secrets: &'static [(&'static str, &'static str)],
    /// The base interval.
    pub interval: Duration,
    /// The value of the label `site`.
    pub site: &'static str,
}

/// Returns the targets of a demo that listens on `port` and the next port.
pub fn targets(port: u16) -> Vec<DemoTarget> {
    let at = |port: u16, path: &str| format!("http://127.0.0.1:{port}{path}");
    let target = |id, name, kind, path: &str, seconds| DemoTarget {
        id,
        name,
        kind,
        url: at(port, path),
        settings: "{}",
        secrets: &[],
        interval: Duration::from_secs(seconds),
        site: if matches!(kind, "pve" | "pbs" | "pmg") { "bern" } else { "zurich" },
    };
    vec![
        target("shop", "Web shop", "proactive-deps", "/shop/dependencies", 2),
        target("legacy", "Legacy billing", "proactive-deps", "/legacy/health", 5),
        DemoTarget {
            settings: r#"{"root":"components","fields":{"name":"$key","healthy":"status"}}"#,
            ..target("spring", "Orders (Spring Actuator)", "mapping", "/actuator/health", 3)
        },
        DemoTarget {
            settings: r#"{"root":"entries","fields":{"name":"$key","severity":"status","description":"description"}}"#,
            ..target("aspnet", "Payroll (ASP.NET)", "mapping", "/aspnet/health", 4)
        },
        DemoTarget {
            settings: r#"{"root":"data.services","fields":{"name":"serviceName","healthy":"isActive","latency":"metrics.latencyMs","impact":"severity","description":"label"}}"#,
            ..target("status-page", "Supplier's status page", "mapping", "/status", 10)
        },
        target("flaky", "Flaky gateway", "proactive-deps", "/flaky", 1),
        DemoTarget {
            settings: r#"{"latency_warning_ms":1000,"latency_critical_ms":5000}"#,
            ..target("slow", "Slow report server", "http", "/slow", 5)
        },
        DemoTarget {
            url: at(port + 1, "/dependencies"),
            ..target("phoenix", "Phoenix (stops and restarts)", "proactive-deps", "", 2)
        },
        target("vault", "Vault (wants a token)", "proactive-deps", "/vault", 5),
        DemoTarget { settings: r#"{"body_contains":["Welcome"]}"#, ..target("website", "Website", "http", "/", 5) },
        DemoTarget {
            settings: r#"{"guests":{"expected":["tag:prod"]}}"#,
            secrets: &[("token", PVE_TOKEN)],
            ..target("pve-lab", "Proxmox VE (loses a node)", "pve", "/pve/timetable", 5)
        },
        DemoTarget {
            secrets: &[("token", PBS_TOKEN)],
            ..target("pbs-lab", "Proxmox Backup Server", "pbs", "/pbs/full-soon", 10)
        },
        DemoTarget {
            settings: r#"{"username":"monitor@pmg"}"#,
            secrets: &[("password", PMG_PASSWORD)],
            ..target("pmg-lab", "Proxmox Mail Gateway", "pmg", "/pmg/deferred", 10)
        },
    ]
}

/// Starts the demo's servers, which run until the process ends. Fails if a port is in use.
pub async fn start(port: u16, now: Now) -> Result<(), DemoError> {
    let listener = bind(port).await?;
    // Bind the port now, so that an error is reported at the start.
    let phoenix = bind(port + 1).await?;
    let start = Instant::now();
    let serving = axum::serve(listener, router(start, now));
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!("the demo's services ended: {error}");
        }
    });
    tokio::spawn(restart_repeatedly(phoenix, port + 1));
    Ok(())
}

/// Returns a router with all services except the one that restarts, for a server of the caller.
pub fn router(start: Instant, now: Now) -> Router {
    services::router(start)
        .merge(receiver::router())
        .fallback(async move |request| proxmox::answer(request, start, now()).await)
}

async fn restart_repeatedly(mut listener: TcpListener, port: u16) {
    loop {
        let serving = axum::serve(listener, services::phoenix());
        tokio::select! {
            _ = serving => {}
            () = sleep_until(Instant::now() + UP) => {}
        }
        // The listener is dropped now, so connections are refused.
        sleep_until(Instant::now() + DOWN).await;
        listener = loop {
            match bind(port).await {
                Ok(listener) => break listener,
                Err(error) => tracing::warn!("{error}; trying again"),
            }
            sleep_until(Instant::now() + Duration::from_secs(1)).await;
        };
    }
}
