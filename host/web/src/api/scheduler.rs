//! The scheduler's statistics, with RedFlag's names.

use crate::host::Host;
use crate::state::Shared;
use crate::status::TargetStatus;
use crate::totals::Totals;
use crate::wire::{Time, milliseconds, times};
use axum::Json;
use axum::extract::State;
use model::{Kind, LoopState};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(stats))
}

/// RedFlag's statistics, and in addition the reasons for held-back polls, the targets by status, the driver's loop, and
/// the reason if the host is not ready.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SchedulerStats)]
struct StatsWire {
    version: &'static str,
    started_at: Time,
    /// The number of targets by their status.
    targets: BTreeMap<&'static str, usize>,
    /// Why polls do not run or results are not stored; null if they do.
    not_ready: Option<String>,
    scheduler: JobsWire,
    queue: QueueWire,
    held: HeldWire,
    #[serde(rename = "loop")]
    turns: LoopWire,
}

/// Counters since the start of the host.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = SchedulerJobs)]
struct JobsWire {
    /// Polls that started.
    jobs_processed: u64,
    /// Polls that were held back or skipped, for any reason.
    jobs_skipped: u64,
    /// Polls with a report.
    commands_created: u64,
    /// Polls that failed.
    commands_failed: u64,
    /// Polls that were skipped because the database does not accept results.
    backpressure_skips: u64,
    last_processed_at: Option<Time>,
    /// Targets that wait.
    queue_size: usize,
    /// Polls in flight.
    worker_pool_utilized: usize,
    #[serde(rename = "AverageProcessingMS")]
    average_processing_ms: f64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
#[schema(as = SchedulerQueue)]
struct QueueWire {
    size: usize,
    next_run_at: Option<Time>,
    oldest_job: Option<String>,
    /// Targets that wait, by kind.
    jobs_by_subsystem: BTreeMap<String, usize>,
}

/// Polls that were held back or skipped, by reason.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HeldPolls)]
struct HeldWire {
    max_in_flight: u64,
    rate_per_second: u64,
    max_per_host: u64,
    unwritten_results: u64,
    no_instance_slot: u64,
}

/// The driver's loop.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SchedulerLoop)]
struct LoopWire {
    turns: u64,
    mean_turn_ms: f64,
    longest_turn_ms: f64,
    messages_handled: u64,
    /// Messages of the last turn.
    messages: usize,
    most_messages: usize,
    /// The capacity of the channel of messages.
    capacity: usize,
    oldest_message_ms: f64,
    oldest_message_ever_ms: f64,
}

impl From<&LoopState> for LoopWire {
    fn from(turns: &LoopState) -> Self {
        let mean = turns.busy.checked_div(u32::try_from(turns.turns).unwrap_or(u32::MAX)).unwrap_or_default();
        Self {
            turns: turns.turns,
            mean_turn_ms: milliseconds(mean),
            longest_turn_ms: milliseconds(turns.longest),
            messages_handled: turns.handled,
            messages: turns.messages,
            most_messages: turns.most_messages,
            capacity: turns.capacity,
            oldest_message_ms: milliseconds(turns.oldest),
            oldest_message_ever_ms: milliseconds(turns.oldest_ever),
        }
    }
}

pub(super) fn by_kind(counts: &BTreeMap<Kind, usize>) -> BTreeMap<String, usize> {
    counts.iter().map(|(kind, count)| (kind.to_string(), *count)).collect()
}

/// The scheduler's statistics, with RedFlag's names.
#[utoipa::path(
    get, path = "/api/v1/scheduler/stats", tag = "scheduler",
    responses((status = 200, body = StatsWire, description = "The statistics."))
)]
async fn stats(State(shared): State<Shared>) -> Json<StatsWire> {
    Json(stats_of(&*shared.host))
}

fn stats_of(host: &dyn Host) -> StatsWire {
    let (all, state) = (host.targets(), host.scheduler());
    let totals = Totals::of(&all, host.now(), state.overdue_after);
    let mut targets: BTreeMap<&str, usize> = TargetStatus::ALL.map(|status| (status.as_str(), 0)).into();
    for target in &all {
        *targets.entry(TargetStatus::of(target).as_str()).or_default() += 1;
    }
    let counters = state.counters;
    let held = HeldWire {
        max_in_flight: counters.held_in_flight,
        rate_per_second: counters.held_by_rate,
        max_per_host: counters.held_by_hosts,
        unwritten_results: counters.skipped_unwritten,
        no_instance_slot: counters.skipped_no_slot,
    };
    let HeldWire { max_in_flight, rate_per_second, max_per_host, unwritten_results, no_instance_slot } = held;
    let oldest_job = state.next.as_ref().and_then(|(id, at)| {
        let (target, at) = (host.target(id)?, crate::wire::time(*at));
        let clock = at.get(11..19).unwrap_or(&at).to_owned();
        let interval = target.schedule.interval.map_or_else(|| "-".to_owned(), |i| format!("{}s", i.as_secs()));
        Some(format!("[{id}/{}] next_run={clock} interval={interval}", target.info.kind))
    });
    StatsWire {
        version: env!("CARGO_PKG_VERSION"),
        started_at: Time::new(host.started()),
        targets,
        not_ready: host.readiness().err(),
        scheduler: JobsWire {
            jobs_processed: counters.started,
            jobs_skipped: max_in_flight + rate_per_second + max_per_host + unwritten_results + no_instance_slot,
            commands_created: counters.succeeded,
            commands_failed: counters.failed,
            backpressure_skips: counters.skipped_unwritten,
            last_processed_at: times(state.last_start),
            queue_size: totals.depth,
            worker_pool_utilized: state.in_flight.values().sum(),
            average_processing_ms: (state.mean_poll.as_secs_f64() * 100_000.0).round() / 100.0,
        },
        queue: QueueWire {
            size: totals.depth,
            next_run_at: times(state.next.as_ref().map(|(_, at)| *at)),
            oldest_job,
            jobs_by_subsystem: by_kind(&totals.depth_by_kind),
        },
        held,
        turns: LoopWire::from(&state.turns),
    }
}
