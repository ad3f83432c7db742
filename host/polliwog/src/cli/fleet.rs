//! The arguments of `fleet`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The actions on a fleet.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show the broker, the deployments that failed, the devices that are not heard, and this host's own reports
    ///
    /// Exit code: 0 if everything works, 1 if deployments failed, devices are not heard, several hosts report as one,
    /// records are still being read, plugins are not stored or Kubernetes cannot be followed, 2 if this host has a
    /// problem with the broker.
    Status,
    /// List the devices
    Devices {
        /// A part of the id or of a label's value
        text: Option<String>,
        /// Only devices that were not heard for 5 minutes
        #[arg(long)]
        stale: bool,
        /// Only devices with a deployment that failed
        #[arg(long)]
        failed: bool,
    },
    /// Show one device with what it reports
    Device {
        /// The device's id
        id: String,
    },
    /// List the targets of a device, or show one of them, as the device answers
    Targets {
        /// The device's id
        id: String,
        /// The target's id
        target: Option<String>,
        /// Show the target's past instead: a duration such as 24h or 30d
        #[arg(long, value_name = "RANGE", requires = "target")]
        history: Option<String>,
    },
    /// Print the latest lines of a device's log
    Logs {
        /// The device's id
        id: String,
        /// The number of lines
        #[arg(long, value_name = "LINES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        last: u32,
        /// Print further lines as they come, until the command is ended
        #[arg(long, short)]
        follow: bool,
    },
    /// List the deployments with their counters
    Deployments,
    /// Make or change the deployments of a TOML file
    Apply {
        /// The file, with `[[deployment]]` and `[[deployment.target]]`
        file: PathBuf,
    },
    /// Make or renew the credentials of a device, and write the broker's configuration of all accounts
    ///
    /// Each device has a separate account at the broker, so that it reaches its own records only.
    Credentials {
        /// The device's id
        device: String,
        /// The directory of the files
        #[arg(long, default_value = "fleet-credentials")]
        dir: PathBuf,
        /// Remove the device instead
        #[arg(long)]
        revoke: bool,
    },
    /// Measure a fleet: many simulated devices, a broker, and an operator, on loopback
    ///
    /// Each device has a real database and a real agent. Each deployment chooses an equal share of the devices.
    Simulate {
        /// The number of devices
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=20_000))]
        devices: u32,
        /// The number of deployments, at most one for each device [default: 10, or fewer with fewer devices]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        deployments: Option<u32>,
        /// Reports in a second
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        events: u32,
        /// The duration in seconds, after all devices have joined
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3_600))]
        seconds: u32,
        /// Then kill the broker, let every device report, start it again, and measure until all is counted
        #[arg(long)]
        outage: bool,
        /// The program nats-server
        #[arg(long, default_value = "nats-server")]
        server: PathBuf,
    },
    #[command(hide = true)]
    SimulateDevices(FleetDevices),
    /// Print the custom resource of Kubernetes for deployments, for `kubectl apply -f -`
    Crd,
    /// Delete a deployment; its devices stop polling its targets
    Delete {
        /// The deployment's name
        name: String,
    },
}

/// The devices of one process of a simulation.
#[derive(Clone, Debug, Args)]
pub(crate) struct FleetDevices {
    /// The broker's URL
    #[arg(long)]
    pub(crate) url: String,
    /// The folder of the databases
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The number of the first device
    #[arg(long)]
    pub(crate) from: u32,
    /// The number after the last device
    #[arg(long)]
    pub(crate) to: u32,
    /// The number of deployments
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) deployments: u32,
}
