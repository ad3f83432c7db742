//! Changes of the fleet that the operator's host stores.

use fleet::wire::Deployment;
use model::{EventKind, KeptPlace, KeptRecord, Phase};

/// A change that the operator's host stores.
#[derive(Clone, Debug, PartialEq)]
pub enum Noticed {
    /// Another operator made, changed or deleted a deployment.
    Defined(String, Deployment),
    /// A deployment failed or works again, or a device is not heard or heard again.
    Happened(EventKind),
    /// It has read these records, and has all up to a place if there is one.
    Read(Vec<KeptRecord>, Option<KeptPlace>),
}

/// Logs what happened in a second: each of a few changes, and the number of the others. While the broker is away,
/// devices are silent for that reason, which is logged.
pub(super) fn log(happened: &[EventKind], is_connected: bool) {
    /// A whole site may become silent in one second.
    const LOGGED: usize = 5;
    let is_of_device =
        |event: &EventKind| matches!(event, EventKind::FleetDeviceStale { .. } | EventKind::FleetDeviceHeard { .. });
    let shown: Vec<&EventKind> = happened.iter().filter(|event| is_connected || !is_of_device(event)).collect();
    for event in shown.iter().take(LOGGED) {
        match event {
            EventKind::FleetDeployment { deployment, current: Phase::Failed, error, .. } => {
                tracing::warn!(
                    "the deployment {deployment} failed: {}",
                    error.as_deref().unwrap_or("no reason is known")
                );
            }
            EventKind::FleetDeployment { deployment, current, .. } => {
                tracing::info!("the deployment {deployment} {}", current.as_str());
            }
            EventKind::FleetDeviceStale { device } => tracing::warn!("the device {device} was not heard for 5 minutes"),
            EventKind::FleetDeviceHeard { device } => tracing::info!("the device {device} is heard again"),
            _ => {}
        }
    }
    if let Some(more @ 1..) = shown.len().checked_sub(LOGGED) {
        tracing::warn!("{more} more changes of the fleet in this second: see `polliwog events`");
    }
}
