//! Pushes events and metrics to a collector of OpenTelemetry, on a separate thread: a collector that hangs or fails
//! holds up nothing else.

use crate::web_host::RunningHost;
use config::OtlpConfig;
use egress::Lane;
use metrics::Metrics;
use model::{EventKind, SequencedEvent, Status, Timestamp};
use otlp::{Collector, Counters, Queue, Record, Refusal, Resource, Severity, Signal};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use web::Host as _;

/// The interval between two requests with log records.
const EVERY: Duration = Duration::from_secs(2);
/// The number of log records of a request.
const RECORDS: usize = 500;
/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait after a failed request, unless the collector requests more.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest wait that a collector can request.
const LONGEST_REQUESTED: Duration = Duration::from_secs(600);
/// The number of failed requests in a row that are a problem.
const PROBLEM: u32 = 3;
/// The time for the last request at a shutdown.
const LAST: Duration = Duration::from_secs(2);

/// A push: the collector, the choice of data, and what waits.
pub(crate) struct Telemetry {
    collector: Collector,
    config: OtlpConfig,
    resource: Resource,
    pub(crate) counters: Arc<Counters>,
    queue: Queue<Record>,
}

impl Telemetry {
    /// Prepares the push: reads secrets and certificates.
    ///
    /// # Errors
    /// Every problem, in one sentence.
    pub(crate) fn prepare(config: &OtlpConfig) -> Result<Self, String> {
        let grant = engine::collector_access(config).map_err(|problems| problems.join("; "))?;
        let instance = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Ok(Self {
            collector: Collector { grant, headers: config.headers.clone(), timeout: TIMEOUT },
            config: config.clone(),
            resource: Resource { version: env!("CARGO_PKG_VERSION").to_owned(), instance },
            counters: Arc::default(),
            queue: Queue::default(),
        })
    }

    /// Starts the thread. It ends with the host, and the host waits for it a little.
    pub(crate) fn start(
        self,
        host: Arc<RunningHost>,
        metrics: Arc<Metrics>,
        ending: CancellationToken,
    ) -> std::io::Result<tokio::sync::oneshot::Receiver<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        std::thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            let lane = host.egress.lane(runtime.handle().clone());
            runtime.block_on(async {
                tokio::select! {
                    () = self.gather(&host) => {}
                    () = self.push(&host, &metrics, &lane, &ending) => {}
                }
            });
            let _ = ended.send(());
        })?;
        Ok(has_ended)
    }

    /// Queues the events.
    async fn gather(&self, host: &RunningHost) {
        if !self.config.logs {
            // The bus builds some events only for its listeners.
            return std::future::pending().await;
        }
        let mut events = host.listen();
        loop {
            match events.recv().await {
                Ok(event) => {
                    let is_poll = matches!(event.event.kind, EventKind::PollComplete { .. });
                    if self.config.polls || !is_poll {
                        let dropped = self.queue.push(record(&event, host));
                        Counters::add(&self.counters.dropped, dropped);
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    Counters::add(&self.counters.dropped, usize::try_from(missed).unwrap_or(usize::MAX));
                }
                // The bus lives as long as the host.
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }

    /// Sends log records and metrics, each with its own waits, until the host ends.
    async fn push(&self, host: &RunningHost, metrics: &Metrics, lane: &Lane, ending: &CancellationToken) {
        let logs = async {
            let mut failing = 0;
            loop {
                let result = self.push_logs(lane).await;
                tokio::time::sleep(self.note(Signal::Logs, result, &mut failing).unwrap_or(EVERY)).await;
            }
        };
        let measured = async {
            let Some(interval) = self.config.metrics else { return std::future::pending().await };
            let mut failing = 0;
            loop {
                let text = web::render_metrics(metrics, host);
                let result = self.push_metrics(lane, &text, (host.started(), host.now())).await;
                tokio::time::sleep(self.note(Signal::Metrics, result, &mut failing).unwrap_or(interval)).await;
            }
        };
        tokio::select! {
            () = logs => {}
            () = measured => {}
            () = ending.cancelled() => {
                let _ = tokio::time::timeout(LAST, self.push_logs(lane)).await;
            }
        }
    }

    /// Notes the outcome of a round. Returns the wait until the next one if it failed.
    fn note(&self, signal: Signal, result: Result<(), Refusal>, failing: &mut u32) -> Option<Duration> {
        let (why, wait) = match result {
            Ok(()) => {
                *failing = 0;
                if self.counters.set_problem(signal, None).is_some() {
                    tracing::info!("the collector takes {} again", signal.noun());
                }
                return None;
            }
            Err(Refusal::ForNow(why, requested)) => {
                let own = EVERY.saturating_mul(1 << (*failing).min(5)).min(LONGEST_WAIT);
                (why, requested.map_or(own, |requested| requested.clamp(EVERY, LONGEST_REQUESTED)))
            }
            Err(Refusal::ForGood(why)) => (why, EVERY),
        };
        *failing = failing.saturating_add(1);
        Counters::add(&self.counters.failed, 1);
        if *failing == 1 {
            tracing::warn!("the collector did not take {}: {why}", signal.noun());
        }
        if *failing >= PROBLEM {
            self.counters.set_problem(signal, Some(why));
        }
        Some(wait)
    }

    async fn push_logs(&self, lane: &Lane) -> Result<(), Refusal> {
        loop {
            let records = self.queue.take(RECORDS);
            if records.is_empty() {
                return Ok(());
            }
            let body = otlp::logs(&self.resource, &records);
            match self.collector.send(lane, Signal::Logs, body).await {
                Ok(()) => Counters::add(&self.counters.sent, records.len()),
                Err(refusal @ Refusal::ForNow(..)) => {
                    Counters::add(&self.counters.dropped, self.queue.put_back(records));
                    return Err(refusal);
                }
                Err(refusal) => {
                    Counters::add(&self.counters.dropped, records.len());
                    return Err(refusal);
                }
            }
        }
    }

    async fn push_metrics(&self, lane: &Lane, text: &str, times: (Timestamp, Timestamp)) -> Result<(), Refusal> {
        for (body, points) in otlp::metrics(&self.resource, text, times) {
            self.collector.send(lane, Signal::Metrics, body).await?;
            Counters::add(&self.counters.sent, points);
        }
        Ok(())
    }
}

fn record(event: &SequencedEvent, host: &RunningHost) -> Record {
    let kind = &event.event.kind;
    let fields = web::event_json(&event.event, |target| Some(host.target(target)?.info.name.clone()));
    let text = web::event_text(kind);
    let body = match kind.target() {
        Some(target) if text.is_empty() => format!("{target}: {}", kind.name()),
        Some(target) => format!("{target}: {text}"),
        None => text,
    };
    Record { at: event.event.at, severity: severity(kind), event: kind.name(), body, fields }
}

const fn severity(kind: &EventKind) -> Severity {
    match kind {
        EventKind::StatusChange { current: Status::Critical, .. }
        | EventKind::AlertFiring { status: Status::Critical, .. }
        | EventKind::Unreachable { .. }
        | EventKind::DeadLetter { .. }
        | EventKind::PluginRefused { .. }
        | EventKind::PluginQuarantined { .. }
        | EventKind::DeliveryFailed { is_over: true, .. } => Severity::Error,
        EventKind::StatusChange { current: Status::Warning | Status::Unknown, .. }
        | EventKind::AlertFiring { .. }
        | EventKind::PollComplete { success: false, .. }
        | EventKind::PollError { .. }
        | EventKind::DependencyMissing { .. }
        | EventKind::CircuitOpen { .. }
        | EventKind::FleetDeviceStale { .. }
        | EventKind::DeliveryFailed { .. } => Severity::Warn,
        _ => Severity::Info,
    }
}
