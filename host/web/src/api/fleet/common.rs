//! The parts that all routes of the fleet share.

use crate::api::words;
use crate::error::ApiError;
use crate::fleet::Fleet;
use crate::state::Shared;
use crate::wire::{Time, times};
use ::fleet::{Happened, LinkState};
use axum::http::StatusCode;
use model::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The device in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
pub(super) struct DevicePath {
    /// The id of a device.
    #[param(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    id: String,
}

/// The fleet that this host operates.
pub(super) fn operated(shared: &Shared) -> Result<&dyn Fleet, ApiError> {
    let found = shared.host.fleet().filter(|fleet| fleet.operator().is_some());
    found.ok_or_else(|| {
        let message = "this host does not operate a fleet: add [fleet] with role = \"operator\" to its configuration";
        ApiError::new(StatusCode::CONFLICT, "no_fleet", message)
    })
}

pub(super) fn missing(message: String) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", message)
}

/// The connection to the broker.
#[derive(Serialize, ToSchema)]
#[schema(as = Broker)]
pub(super) struct BrokerWire {
    connected: bool,
    /// The problem, in words; null if everything works.
    problem: Option<String>,
    /// When the problem began, to the second; null if everything works. A problem that was away for less than 10 s is
    /// the same one.
    since: Option<Time>,
}

impl BrokerWire {
    pub(super) fn new(link: LinkState, now: Timestamp) -> Self {
        // Both clocks are read at different moments: to the millisecond, it would differ at each read.
        let second = |at: Timestamp| Timestamp::from_millis((at.as_millis() + 500) / 1000 * 1000);
        let since = link.problem.is_some().then(|| second(now.before(link.lasts)));
        Self { connected: link.is_connected, problem: link.problem, since: times(since) }
    }
}

/// A change of a device's phase.
#[derive(Serialize, ToSchema)]
#[schema(as = FleetChange)]
pub(super) struct HappenedWire {
    at: Time,
    device: String,
    #[schema(schema_with = words::phase)]
    phase: &'static str,
    error: Option<String>,
}

impl From<&Happened> for HappenedWire {
    fn from(happened: &Happened) -> Self {
        Self {
            at: Time::new(happened.at),
            device: happened.device.clone(),
            phase: happened.phase.as_str(),
            error: happened.error.clone(),
        }
    }
}
