//! Replays of recorded changes under other cadences.

use super::query::{Queried, queried};
use super::words;
use crate::error::{ApiError, ErrorWire};
use crate::range::length;
use crate::state::Shared;
use crate::wire::milliseconds;
use axum::Json;
use axum::extract::State;
use model::{Replay, ReplayRow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The time of a replay.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReplayQuery {
    /// The time until now; the default is `24h`.
    #[param(schema_with = words::range)]
    range: Option<String>,
}

/// Recorded changes, and what other cadences and intervals would have cost and detected.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Replay)]
struct ReplayWire {
    range: &'static str,
    /// The time until now that was replayed. It is shorter than the range if that would take too long.
    replayed_seconds: f64,
    /// The number of replayed targets. Of many targets, a part is replayed, and stands for all of them.
    targets: usize,
    /// The number of targets that are polled.
    of_targets: usize,
    /// The number of recorded changes of the replayed targets.
    changes: usize,
    /// The processor time of one poll; null before the first poll.
    cpu_per_poll_ms: Option<f64>,
    cadences: Vec<RowWire>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReplayedCadence)]
struct RowWire {
    /// The cadence and its intervals.
    cadence: &'static str,
    /// Whether the targets are polled this way now, unless a target has its own cadence.
    current: bool,
    polls: u64,
    /// The changes that a poll followed.
    changes: u64,
    /// The share of changes that were undone before a poll, from 0 to 1.
    missed_share: f64,
    /// The mean delay from a change to the next poll.
    mean_seconds: f64,
    /// The mean is in this range with a probability of 90 %, as far as the number of changes shows.
    mean_low_seconds: f64,
    mean_high_seconds: f64,
    /// The 95th percentile of the delay.
    p95_seconds: f64,
}

impl From<ReplayRow> for RowWire {
    fn from(row: ReplayRow) -> Self {
        Self {
            cadence: row.name,
            current: row.current,
            polls: row.polls,
            changes: row.changes,
            missed_share: row.missed,
            mean_seconds: milliseconds(row.mean) / 1e3,
            mean_low_seconds: milliseconds(row.likely.0) / 1e3,
            mean_high_seconds: milliseconds(row.likely.1) / 1e3,
            p95_seconds: milliseconds(row.p95) / 1e3,
        }
    }
}

/// Replays the recorded changes of this host under other cadences and intervals. It takes about a second of processor
/// time; one replay runs at a time.
#[utoipa::path(
    get, path = "/api/v1/scheduler/replay", tag = "scheduler", params(ReplayQuery),
    responses(
        (status = 200, body = ReplayWire, description = "The result for each cadence."),
        (status = 409, body = ErrorWire, description = "Another replay runs.")
    )
)]
async fn show(State(shared): State<Shared>, query: Queried<ReplayQuery>) -> Result<Json<ReplayWire>, ApiError> {
    let (range, length) = length(queried(query)?.range.as_deref())?;
    let Replay { targets, of, changes, cpu, rows, span } = shared.host.replay(length).await?;
    Ok(Json(ReplayWire {
        range,
        replayed_seconds: span.as_secs_f64().round(),
        targets,
        of_targets: of,
        changes,
        cpu_per_poll_ms: cpu.map(milliseconds),
        cadences: rows.into_iter().map(RowWire::from).collect(),
    }))
}
