//! Counters and gauges of the process for `/metrics`: the scheduler, the lanes, outgoing requests and the database.

use crate::read_model::ReadModel;
use egress::Egress;
use metrics::Reading;
use sandbox::Sandbox;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Store;

/// The parts of a host that count.
pub struct Measured<'a> {
    /// The state of the scheduler.
    pub read_model: &'a ReadModel,
    /// Counts polls on lanes.
    pub sandbox: &'a Sandbox,
    /// Counts transactions.
    pub store: &'a Store,
    /// Counts requests.
    pub egress: &'a Egress,
}

/// Returns the present values of every counter and gauge.
pub fn readings(measured: &Measured<'_>) -> Vec<Reading> {
    let mut readings = of_scheduler(measured);
    readings.extend(of_io(measured));
    readings
}

fn of_scheduler(measured: &Measured<'_>) -> Vec<Reading> {
    let state = measured.read_model.scheduler();
    let counters = state.counters;
    let in_flight: usize = state.in_flight.values().sum();
    let lanes = sandbox::Config::default().lanes.get();
    let (demoted, waited) = measured.sandbox.counters();
    vec![
        Reading::counter("scheduler_jobs_processed", "Polls started", counters.started),
        Reading::counter(
            "scheduler_backpressure_skips",
            "Polls skipped because too many results waited for the database",
            counters.skipped_unwritten,
        ),
        Reading::gauge("scheduler_worker_pool_utilized", "Polls in flight", in_flight as f64),
        Reading::gauge("scheduler_num_workers", "Lanes for polls", lanes as f64),
        Reading::counter(
            "polliwog_polls_held_in_flight",
            "Polls held back because max_in_flight were in flight",
            counters.held_in_flight,
        ),
        Reading::counter("polliwog_polls_held_by_rate", "Polls held back by rate_per_second", counters.held_by_rate),
        Reading::counter("polliwog_polls_spread", "Polls that fell due together and were spread", counters.spread),
        Reading::counter(
            "polliwog_polls_held_by_hosts",
            "Polls that waited for a slot of their host",
            counters.held_by_hosts,
        ),
        Reading::counter(
            "polliwog_polls_skipped_no_slot",
            "Polls that never got an instance slot",
            counters.skipped_no_slot,
        ),
        Reading::counter("polliwog_polls_waited_for_slot", "Polls that waited for an instance slot", waited),
        Reading::counter("polliwog_polls_demoted", "Polls that were moved to the slow lane", demoted),
    ]
}

fn of_io(measured: &Measured<'_>) -> Vec<Reading> {
    let (store, egress) = (measured.store.writer().gauges(), measured.egress.gauges());
    let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let counter = |name, help, value| Reading::counter(name, help, count(value));
    vec![
        counter("polliwog_egress_connections", "Connections made", &egress.connections),
        counter("polliwog_egress_coalesced", "Requests that joined one in flight", &egress.coalesced),
        counter(
            "polliwog_egress_waited_for_slot",
            "Requests that waited for a slot of their host",
            &egress.waited_for_slot,
        ),
        counter(
            "polliwog_egress_waited_for_bytes",
            "Bodies that waited for the budget of body bytes",
            &egress.waited_for_bytes,
        ),
        Reading::gauge("polliwog_store_queued", "Results that wait for the database", count(&store.queued) as f64),
        counter("polliwog_store_transactions", "Transactions committed", &store.transactions),
        counter("polliwog_store_failures", "Transactions that failed and were retried", &store.failures),
    ]
}
