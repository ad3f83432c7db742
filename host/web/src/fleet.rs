//! The interface between this crate and the fleet of the host.

use ::fleet::wire::ModeWire;
use ::fleet::{AgentView, DeploymentView, DeviceDetail, DeviceFilter, DeviceView, Failures, FleetView};
use futures_util::future::BoxFuture;
use model::{CommandError, LogPage, Phase, Timestamp};
use std::time::Duration;

/// A host's part in a fleet. Reads are answered from memory and the host's database, except [`Fleet::device`],
/// [`Fleet::log`] and [`Fleet::read`].
pub trait Fleet: Send + Sync + 'static {
    /// The host as an agent; `None` if it is not one.
    fn agent(&self) -> Option<AgentView>;

    /// The fleet that the host operates; `None` if it does not.
    fn operator(&self) -> Option<FleetView>;

    /// Every deployment, ordered by name.
    fn deployments(&self) -> Vec<DeploymentView>;

    /// The deployments that failed as a whole, at most `limit` of them with what they are.
    fn failures(&self, limit: usize) -> Failures;

    /// Devices that were not heard for 5 minutes, at most `limit`.
    fn silent(&self, limit: usize) -> Vec<DeviceView>;

    /// The deployment with this name; `None` if the name is unknown.
    fn deployment(&self, name: &str) -> Option<DeploymentView>;

    /// Whether a device without a report about a deployment has none because another device polls.
    fn stands_by(&self, deployment: &str, phase: Option<Phase>) -> bool {
        phase.is_none() && self.deployment(deployment).is_some_and(|view| view.definition.mode == ModeWire::Once)
    }

    /// The devices from a number on that a filter takes, at most `limit`, and the number of the next one, if any.
    fn devices(&self, first: u32, filter: &DeviceFilter, limit: usize) -> (Vec<DeviceView>, Option<u32>);

    /// The devices that a deployment chooses, at most `limit`.
    fn devices_of(&self, deployment: &str, limit: usize) -> Vec<DeviceView>;

    /// The time of a device's last heartbeat, to the second, or when it became known if there was none yet.
    fn heard_at(&self, device: &DeviceView) -> Timestamp;

    /// The device with this id and what it reports, read from the broker; `None` if the id is unknown.
    fn device(&self, id: String) -> BoxFuture<'_, Option<DeviceDetail>>;

    /// Lines of a device's log, which the device answers: those after the line with a number, or the newest, at most
    /// `limit`. The answer may be delayed by `wait`, until there is a line. `None` if the id is unknown; the reason in
    /// words if the device does not answer.
    fn log(&self, id: String, of: (Option<u64>, u32), wait: Duration)
    -> BoxFuture<'_, Option<Result<LogPage, String>>>;

    /// Returns the answer of a device's API to a read of a path: the status and the body. `None` if the id is unknown;
    /// the reason in words if the device does not answer.
    fn read(&self, id: String, path: String) -> BoxFuture<'_, Option<Result<(u16, String), String>>>;

    /// Makes or changes a deployment from its definition as JSON; without one, deletes it.
    fn define(&self, name: String, definition: Option<String>) -> BoxFuture<'_, Result<(), CommandError>>;
}
