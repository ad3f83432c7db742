//! Simulated services and estates on loopback, for `run --demo` and for tests.
//!
//! They speak the formats that real services speak, and misbehave on a timetable, so that within two minutes one sees
//! transitions, a breaker that opens and closes, a dead letter, warnings and stale data. Ports are fixed, because a
//! target whose URL changes is another target, and the demo's data is to survive a restart.

#![forbid(unsafe_code)]

mod proxmox;
mod replay;
mod services;

pub use proxmox::{PBS_TOKEN, PMG_PASSWORD, PMG_USER, PVE_TOKEN};
pub use replay::{REPLAY_PORT, Replayed, replay};

use axum::Router;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};

/// Where the demo listens; the service that dies and returns has the port after it.
pub const PORT: u16 = 7412;
/// How long the dying service is up, and then down.
const UP: Duration = Duration::from_secs(45);
const DOWN: Duration = Duration::from_secs(40);

/// A target of the demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoTarget {
    /// Its id.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its URL.
    pub url: String,
    /// JSON.
    pub settings: &'static str,
    /// Names and values of the secrets that the simulated service takes.
    pub secrets: &'static [(&'static str, &'static str)],
    /// Its base interval.
    pub interval: Duration,
}

/// What tells the time, in seconds since 1970.
pub type Now = fn() -> i64;

/// The demo's ports are taken.
#[derive(Debug, thiserror::Error)]
#[error("nothing can be served on {address}: {why}")]
pub struct DemoError {
    address: SocketAddr,
    why: String,
}

impl DemoError {
    fn at(port: u16, why: String) -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), why }
    }
}

/// What the demo has to be polled, when it listens on `port` and the one after it.
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
            ..target("phoenix", "Phoenix (dies and returns)", "proactive-deps", "", 2)
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

/// Serves until the process ends. `now` tells the time, in seconds since 1970.
pub async fn start(port: u16, now: Now) -> Result<(), DemoError> {
    let listener = bind(port).await?;
    // Whether the port is free is found out now, not when the service first rises.
    let phoenix = bind(port + 1).await?;
    let start = Instant::now();
    let serving = axum::serve(listener, router(start, now));
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!("the demo's services ended: {error}");
        }
    });
    tokio::spawn(die_and_return(phoenix, port + 1));
    Ok(())
}

/// Everything but the service that dies, for a server of one's own.
pub fn router(start: Instant, now: Now) -> Router {
    services::router(start).fallback(async move |request| proxmox::answer(request, start, now()).await)
}

async fn die_and_return(mut listener: TcpListener, port: u16) {
    loop {
        let serving = axum::serve(listener, services::phoenix());
        tokio::select! {
            _ = serving => {}
            () = sleep_until(Instant::now() + UP) => {}
        }
        // The listener is dropped: connections are refused.
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

async fn bind(port: u16) -> Result<TcpListener, DemoError> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program listens there: end it, or choose another port".to_owned(),
            _ => error.to_string(),
        };
        DemoError::at(port, why)
    };
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(failed)
}
