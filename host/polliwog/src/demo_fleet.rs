//! `run --demo --fleet`: a broker, and five hosts as agents in this process. This host is their operator.

use crate::cli::{Common, RunArguments};
use crate::local_broker::LocalBroker;
use anyhow::Context;
use config::{FleetConfig, FleetRole, TlsConfig};
use fleet::Labels;
use fleet::wire::Deployment;
use serde_json::json;
use std::path::Path;

/// The agents with their sites.
const DEVICES: [(&str, &str); 5] =
    [("zurich-1", "zurich"), ("zurich-2", "zurich"), ("basel-1", "basel"), ("basel-2", "basel"), ("bern-1", "bern")];
/// The program of the broker.
const SERVER: &str = "nats-server";

/// The broker of the demo.
pub(crate) fn broker() -> anyhow::Result<LocalBroker> {
    LocalBroker::start(Path::new(SERVER)).context("the demo of a fleet needs a broker")
}

/// The part of this host in the fleet.
pub(crate) fn operator(url: String) -> FleetConfig {
    let (device, labels) = (String::new(), Labels::new());
    FleetConfig {
        role: FleetRole::Operator,
        url,
        device,
        labels,
        credentials: None,
        replicas: 1,
        takes_plugins: false,
        tls: TlsConfig::default(),
        kubernetes: None,
    }
}

/// The deployments at the first start.
pub(crate) fn deployments(port: u16) -> Vec<(&'static str, Deployment)> {
    let target = |id: &str, path: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        json!({ "id": id, "kind": "http", "url": url, "interval": "5s" })
    };
    let uplink = "/sites/${device.id}/uplink";
    let all = [
        ("uplink", json!({ "targets": [target("uplink", uplink)] })),
        // The same check with another question: is it down, or is it the line of one device?
        ("provider", json!({ "quorum": 2, "targets": [target("provider", uplink)] })),
        ("shop", json!({ "once": true, "targets": [target("shop", "/")] })),
        (
            "printers",
            json!({
                "selector": { "matchLabels": { "site": "zurich" } },
                "targets": [target("printers", "/sites/${device.label.site}/printers")],
            }),
        ),
    ];
    let read = |text: String| fleet::read_deployment(&text, 1).expect("the demo's deployments are valid");
    all.map(|(name, definition)| (name, read(definition.to_string()))).into()
}

/// Returns the arguments of the agents, each with a data directory in that of this host.
///
/// # Errors
/// If their configurations cannot be written.
pub(crate) fn agents(broker: &LocalBroker, data_dir: &Path) -> anyhow::Result<Vec<RunArguments>> {
    let url = broker.url();
    let arguments = |(device, site): &(&str, &str)| {
        let dir = data_dir.join("fleet").join(device);
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let file = dir.join("polliwog.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n[egress]\napi_target_cidrs = \
             [\"127.0.0.0/8\"]\n[fleet]\nrole = \"agent\"\nurl = \"{url}\"\ndevice = \"{device}\"\nlabels = {{ site = \
             \"{site}\" }}\n"
        );
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let common = Common { config: Some(file), data_dir: Some(dir) };
        Ok(RunArguments { common, is_embedded: true, ..RunArguments::default() })
    };
    DEVICES.iter().map(arguments).collect()
}
