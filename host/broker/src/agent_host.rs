//! The host of an agent, as the agent uses it.

use fleet::wire::{Assigned, OfferedPlugin, OpenAlert};
use model::{FleetChange, FleetPlace, LastPoller, LogPage, QueuedRecord, Timestamp};
use std::collections::BTreeMap;
use std::future::Future;
use tokio::sync::Notify;

/// The host of an agent: its database and its targets.
pub trait AgentHost: Send + Sync + 'static {
    /// Returns the place at the broker; `None` if the host did not begin as an agent. Blocks.
    ///
    /// # Errors
    /// If the database cannot be read; the reason in words.
    fn place(&self) -> Result<Option<FleetPlace>, String>;

    /// Returns records that the broker has not acknowledged, oldest first, at most `limit`. Blocks.
    ///
    /// # Errors
    /// If the database cannot be read; the reason in words.
    fn queued(&self, limit: u32) -> Result<Vec<QueuedRecord>, String>;

    /// Changes the records. Blocks until the change is on disk.
    ///
    /// # Errors
    /// If it is not on disk after a while; the reason in words.
    fn change(&self, change: FleetChange) -> Result<(), String>;

    /// Notified after each new record.
    fn recorded(&self) -> &Notify;

    /// Applies the deployments of this device; those that are in no list end. Another device may poll those that it
    /// stands by for.
    fn assign(
        &self,
        deployments: Vec<Granted>,
        standby: Vec<String>,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// The alerts that are open for deployments that one device polls at a time, as they are on disk, by deployment.
    /// Blocks.
    ///
    /// # Errors
    /// If the database cannot be read; the reason in words.
    fn open_alerts(&self) -> Result<BTreeMap<String, Vec<OpenAlert>>, String> {
        Ok(BTreeMap::new())
    }

    /// Continues what the record of a deployment says, which this device polls from now on. Returns the alerts that it
    /// cannot continue, because it does not poll their targets.
    ///
    /// # Errors
    /// If that is not on disk after a while; the reason in words.
    fn take_over(&self, left: LeftAlerts) -> impl Future<Output = Result<Vec<OpenAlert>, String>> + Send {
        drop(left);
        std::future::ready(Ok(Vec::new()))
    }

    /// At most `limit` lines of the log: those after the line with a number, or the newest.
    fn log(&self, after: Option<u64>, limit: usize) -> LogPage;

    /// Returns the answer of the host's API to a read of a path: the status as in HTTP, and the body.
    fn read(&self, path: String) -> impl Future<Output = (u16, String)> + Send {
        drop(path);
        std::future::ready((404, "this host has no API".to_owned()))
    }

    /// Whether the host has a plugin that the operator offers. Blocks.
    fn plugin(&self, _: &OfferedPlugin) -> PluginState {
        PluginState::Settled
    }

    /// Adds the file of a plugin whose state is [`PluginState::Missing`]. Blocks.
    ///
    /// # Errors
    /// If it cannot be written; the reason in words.
    fn add_plugin(&self, _: &OfferedPlugin, _: &[u8]) -> Result<(), String> {
        Err("this host takes no plugins".to_owned())
    }

    /// The present time.
    fn now(&self) -> Timestamp;
}

/// The alerts of a deployment when a device begins to poll it.
#[derive(Clone, Debug)]
pub struct LeftAlerts {
    /// The deployment.
    pub deployment: String,
    /// The alerts in the record.
    pub alerts: Vec<OpenAlert>,
    /// The device that polled last.
    pub by: LastPoller,
}

/// A deployment that this device polls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The deployment.
    pub assigned: Assigned,
    /// The term of the lease under which the device polls; 0 if the deployment needs none.
    pub term: u64,
}

/// Whether a host has a plugin that the operator offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginState {
    /// It serves its kind, or this host takes none from the operator, or has another one.
    Settled,
    /// The file is there, and does not serve yet, or is refused.
    Present,
    /// The file is not there.
    Missing,
}
