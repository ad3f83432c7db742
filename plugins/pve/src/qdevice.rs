//! The QDevice: an external vote. A cluster of two nodes depends on it for its quorum.

use crate::cluster::Cluster;
use crate::context::PollContext;
use crate::samples;
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Text};
use proxmox::{ErrorClass, Part, evaluated};
use serde::Deserialize;
use std::time::Duration;

const PART: Part<'_> = ("cluster/qdevice", &[]);
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// `/cluster/config/qdevice`: empty without a QDevice, otherwise the output of corosync-qdevice-tool.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Device {
    #[serde(rename = "Model")]
    model: Field<Text>,
    #[serde(rename = "State")]
    state: Field<Text>,
    #[serde(rename = "QNetd host")]
    host: Field<Text>,
    #[serde(rename = "Algorithm")]
    algorithm: Field<Text>,
    #[serde(rename = "Tie-breaker")]
    tie_breaker: Field<Text>,
}

impl Device {
    /// The labels that prometheus-pve-exporter uses.
    fn labels(&self) -> [(&'static str, &Field<Text>); 5] {
        [
            ("model", &self.model),
            ("algorithm", &self.algorithm),
            ("qnetd_host", &self.host),
            ("tie_breaker", &self.tie_breaker),
            ("state", &self.state),
        ]
    }
}

pub(crate) fn report(context: &mut PollContext, cluster: &Cluster) {
    // A standalone node has no votes. If the cluster could not be read, the QDevice is a part of it.
    let Some(name) = cluster.name() else { return };
    if !context.is_due(PART.0) {
        return context.report.keep(PART.0);
    }
    let [answer] = context.api.ask(["/cluster/config/qdevice"]);
    let device = match answer.read::<Device>() {
        // The quorum needs the same privilege and reports that it is missing.
        Err(error) if error.class == ErrorClass::Forbidden => return,
        read => context.part(PART, read),
    };
    let Some(device) = device else { return };
    let there = !matches!((&device.state, &device.model), (Field::Absent, Field::Absent));
    let connected = device.state.get().is_some_and(|Text(state)| state == "Connected");
    if there && context.settings.samples {
        samples::qdevice(context, name, connected, device.labels());
    }
    context.checked(PART.0, PERIOD);
    if !there {
        return;
    }
    let verdict = match &device.state {
        Field::Is(_) if connected => (Status::Ok, None),
        Field::Is(Text(state)) => {
            let why = format!(
                "its state is {state:?}: the cluster lacks its vote; check \"corosync-qdevice-tool -s\" on the nodes, \
                 and corosync-qnetd on its host"
            );
            (Status::Warning, Some(why))
        }
        _ => (Status::Unknown, Some("it does not report its state".to_owned())),
    };
    let dependency = evaluated(PART.0, "pve-qdevice", verdict);
    context.add(match device.host.get() {
        Some(Text(host)) => dependency.with_description(format!("QDevice at {host}")),
        None => dependency,
    });
}
