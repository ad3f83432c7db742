//! A process of simulated devices, which the simulator starts: each device has a database and an agent.
//!
//! The process prints [`JOINED`] once all its agents run. Then each line of its input is a device's number and the
//! phase of its next report. It ends with its input.

use crate::cli::FleetDevices;
use crate::fleet_host::AgentStore;
use crate::means;
use crate::output::print;
use anyhow::{Context, bail};
use broker::{Agent, AgentHost, Description, Link};
use engine::{Clock, random_bytes};
use fleet::Labels;
use model::{DeploymentReport, FleetChange, FleetRecord, Phase};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use store::Store;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;

/// The line that the process prints when all devices have joined.
pub(super) const JOINED: &str = "joined";

/// Runs the devices until the input ends.
pub(crate) async fn devices(of: &FleetDevices) -> anyhow::Result<u8> {
    means::raise_descriptors()?;
    let clock = Clock::start();
    let mut all = Vec::new();
    for number in of.from..of.to {
        all.push(join(of, number, clock).await?);
    }
    print(JOINED)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (number, phase) = read(&line).with_context(|| format!("{line:?} is not a device's number and a phase"))?;
        let Some(device) = number.checked_sub(of.from).and_then(|place| all.get(place as usize)) else {
            bail!("{line:?}: this process has the devices {} to {}", of.from, of.to);
        };
        device.report(number % of.deployments, phase, clock);
    }
    for device in &all {
        device.task.abort();
    }
    for device in all {
        let _ = device.task.await;
    }
    Ok(0)
}

/// The name of a simulated deployment.
pub(super) fn deployment_name(number: usize) -> String {
    format!("deployment-{number}")
}

/// The connection of a part of the simulation.
pub(super) fn link(url: &str, name: &str, local: Option<IpAddr>) -> Link {
    Link {
        url: url.to_owned(),
        credentials: None,
        keys: broker::Keys::None,
        tls: None,
        local,
        name: name.to_owned(),
        seed: u64::from_le_bytes(random_bytes()),
    }
}

/// The address of a device. If thousands of connections to one server come from one address, Linux searches most of its
/// ports for each new one, which takes more time than all else; real devices have addresses of their own.
fn address(number: u32) -> Option<IpAddr> {
    /// Devices with the same address.
    const SHARED: u32 = 500;
    // Other systems have one address of this kind only, unless more are set up.
    cfg!(target_os = "linux").then(|| IpAddr::V4((u32::from(Ipv4Addr::LOCALHOST) + 1 + number / SHARED).into()))
}

/// A line of the input.
pub(super) fn line(number: usize, phase: Phase) -> String {
    format!("{number} {}\n", phase.as_str())
}

fn read(line: &str) -> Option<(u32, Phase)> {
    let (number, phase) = line.split_once(' ')?;
    let phase = [Phase::Succeeded, Phase::Failed].into_iter().find(|known| known.as_str() == phase)?;
    Some((number.parse().ok()?, phase))
}

/// A device: an agent and its database.
struct Device {
    task: JoinHandle<()>,
    host: Arc<AgentStore>,
}

/// Starts a device, whose first report is that its deployment succeeded.
async fn join(of: &FleetDevices, number: u32, clock: Clock) -> anyhow::Result<Device> {
    let device = format!("device-{number}");
    let path = of.folder.join(format!("{device}.db"));
    let config = store::Config { path, history_days: 400, history_rows: 1000, history_bytes: 1 << 20 };
    let opened = Store::lock(&config)?.open(clock.wall(), Box::new(drop))?;
    let host = Arc::new(AgentStore::new(Arc::new(opened.store), clock));
    let labels = Labels::from([("group".to_owned(), (number % of.deployments).to_string())]);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let description = Description { device: device.clone(), labels, inventory: BTreeMap::new(), version };
    let begun = u32::try_from(engine::seconds())?;
    host.change(FleetChange::Begin(begun)).map_err(anyhow::Error::msg)?;
    let described = FleetRecord::Description(description.text());
    host.change(FleetChange::Record(described)).map_err(anyhow::Error::msg)?;
    let link = link(&of.url, &device, address(number));
    let agent = Agent::connect(host.clone(), description, link).await.map_err(anyhow::Error::msg)?;
    let device = Device { task: tokio::spawn(agent.run()), host };
    device.report(number % of.deployments, Phase::Succeeded, clock);
    Ok(device)
}

impl Device {
    /// Stores a report, as the transaction of a poll would.
    fn report(&self, deployment: u32, phase: Phase, clock: Clock) {
        let error = (phase == Phase::Failed).then(|| "connect: refused".to_owned());
        let deployment = deployment_name(deployment as usize);
        let report = DeploymentReport { deployment, phase, counts: [1, 0, 0, 0], at: clock.wall(), error, term: 0 };
        self.host.record(FleetRecord::Report(report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for phase in [Phase::Succeeded, Phase::Failed] {
            assert_eq!(read(line(7, phase).trim_end()), Some((7, phase)));
        }
        for other in ["", "7", "x failed", "7 well", "-1 failed"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
