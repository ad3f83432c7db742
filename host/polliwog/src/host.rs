//! The host as the web room sees it.

use crate::clock::{Clock, random_bytes};
use crate::configurator::Configurator;
use crate::driver::{Explained, Message, Snapshot};
use crate::estate::Target;
use crate::health::Health;
use crate::logging::Log;
use crate::plugins::hex;
use crate::run::ADMIN_TOKEN;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::{Moment, TargetId, Timestamp};
use sandbox::Sandbox;
use scheduler::{Ask, BreakerState, TargetStatus};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use store::Store;
use tokio::sync::oneshot;
use web::{
    Auth, BreakerView, CommandError, DeadView, DependencyView, ExplanationView, Overview, PluginView, PollErrorView,
    ProcessView, SchedulerView, SettingsView, TargetView, Wish,
};

/// A transaction that has failed this often makes the host not ready.
const TROUBLE: u64 = 3;

/// Reads and commands of a running host.
pub(crate) struct RunningHost {
    /// Time.
    pub clock: Clock,
    /// Where polls run.
    pub sandbox: Arc<Sandbox>,
    /// Where history comes from.
    pub store: Arc<Store>,
    /// What changes the configuration.
    pub configurator: Arc<Configurator>,
    /// The way out, for its numbers.
    pub egress: egress::Egress,
    /// Whether the threads that everything depends on still work.
    pub health: Arc<Health>,
    /// What happens to our listeners.
    pub web: Arc<web::Gauges>,
    /// The log, for what of it was lost.
    pub log: Arc<Log>,
    /// Where the admin token is kept.
    pub data_dir: PathBuf,
    /// Where messages go.
    pub sender: SyncSender<Message>,
}

impl RunningHost {
    /// Sends the driver a question and waits for the answer.
    async fn send<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, CommandError> {
        let busy = || CommandError::Conflict("the host is busy or ending: try again".to_owned());
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(question(reply)).map_err(|_| busy())?;
        answer.await.map_err(|_| busy())
    }

    async fn snapshot(&self) -> Option<Snapshot> {
        self.send(Message::Snapshot).await.ok()
    }

    fn process(&self, snapshot: &Snapshot) -> ProcessView {
        let counters = snapshot.counters;
        let (demoted, waited) = self.sandbox.counters();
        let store = self.store.writer().gauges();
        let (egress, web) = (self.egress.gauges(), &self.web);
        let count = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed) as f64;
        let in_flight: usize = snapshot.in_flight.values().sum();
        let (started, problems) = (self.clock.at(Moment::START), self.configurator.problems());
        let numbers = vec![
            (
                "process_start_time_seconds",
                "When the host started, in seconds since 1970",
                false,
                started.as_millis() as f64 / 1000.0,
            ),
            (
                "polliwog_configuration_problems",
                "Problems that keep what is configured from being in force",
                false,
                problems as f64,
            ),
            ("polliwog_scheduler_overdue", "Targets later than the longest interval", false, snapshot.overdue as f64),
            ("scheduler_jobs_processed", "Polls started", true, counters.started as f64),
            (
                "scheduler_backpressure_skips",
                "Polls left out because results waited for the database",
                true,
                counters.skipped_unwritten as f64,
            ),
            ("scheduler_worker_pool_utilized", "Polls in flight", false, in_flight as f64),
            ("scheduler_num_workers", "Lanes that polls run on", false, lanes() as f64),
            (
                "polliwog_polls_held_in_flight",
                "Polls held back because max_in_flight were under way",
                true,
                counters.held_in_flight as f64,
            ),
            ("polliwog_polls_held_by_rate", "Polls held back by rate_per_second", true, counters.held_by_rate as f64),
            ("polliwog_polls_spread", "Polls that fell due together and were spread", true, counters.spread as f64),
            (
                "polliwog_polls_held_by_hosts",
                "Polls that waited for a slot of their host",
                true,
                counters.held_by_hosts as f64,
            ),
            (
                "polliwog_polls_skipped_no_slot",
                "Polls that never got an instance slot",
                true,
                counters.skipped_no_slot as f64,
            ),
            ("polliwog_polls_waited_for_slot", "Polls that waited for an instance slot", true, waited as f64),
            ("polliwog_polls_demoted", "Polls that were moved to the slow lane", true, demoted as f64),
            ("polliwog_egress_connections", "Connections made", true, count(&egress.connections)),
            ("polliwog_egress_coalesced", "Requests that joined one under way", true, count(&egress.coalesced)),
            (
                "polliwog_egress_waited_for_slot",
                "Requests that waited for a slot of their host",
                true,
                count(&egress.waited_for_slot),
            ),
            (
                "polliwog_egress_waited_for_bytes",
                "Bodies that waited for the budget of body bytes",
                true,
                count(&egress.waited_for_bytes),
            ),
            ("polliwog_store_queued", "Results that wait for the database", false, count(&store.queued)),
            ("polliwog_store_transactions", "Transactions committed", true, count(&store.transactions)),
            ("polliwog_store_failures", "Transactions that failed and were tried again", true, count(&store.failures)),
            ("polliwog_web_connections", "Connections to pages, API and metrics", false, count(&web.connections)),
            (
                "polliwog_web_timed_out",
                "Connections given up because the other side was too slow",
                true,
                count(&web.timed_out),
            ),
            ("polliwog_web_wrong_tokens", "Requests with a wrong token", true, count(&web.wrong_tokens)),
            ("polliwog_web_foreign_hosts", "Requests that named another host", true, count(&web.foreign_hosts)),
            ("polliwog_web_panics", "Requests whose handler panicked", true, count(&web.panics)),
            ("polliwog_log_lines_lost", "Lines of the log that could not be written", true, self.log.lost() as f64),
        ];
        ProcessView { started: Some(started), problems, numbers }
    }
}

fn lanes() -> usize {
    sandbox::Config::default().lanes.get()
}

impl web::Host for RunningHost {
    fn overview(&self) -> BoxFuture<'_, Overview> {
        async {
            let at = self.clock.wall();
            let Some(snapshot) = self.snapshot().await else {
                // The driver has ended, or is overwhelmed: an empty overview says so better than waiting.
                return Overview {
                    at,
                    adaptive: true,
                    depth: 0,
                    due_soon: 0,
                    depth_by_kind: Default::default(),
                    in_flight: Default::default(),
                    scheduler: SchedulerView::default(),
                    targets: Vec::new(),
                    plugins: self.configurator.plugins().views(&BTreeMap::new()),
                    process: ProcessView::default(),
                };
            };
            let times = Times(self.clock);
            let quarantined =
                snapshot.quarantined.iter().map(|(kind, until)| (kind.clone(), times.at(*until))).collect();
            Overview {
                at,
                adaptive: snapshot.adaptive,
                depth: snapshot.depth,
                due_soon: snapshot.due_soon,
                process: self.process(&snapshot),
                scheduler: scheduler_view(&snapshot, times),
                depth_by_kind: snapshot.depth_by_kind,
                in_flight: snapshot.in_flight,
                plugins: self.configurator.plugins().views(&quarantined),
                targets: snapshot.targets.iter().map(|(target, status)| view(target, status, times)).collect(),
            }
        }
        .boxed()
    }

    fn health(&self) -> Result<(), String> {
        self.health.failure().map_or(Ok(()), Err)
    }

    fn readiness(&self) -> Result<(), String> {
        self.health()?;
        if let Some(trouble) = self.store.writer().trouble() {
            return Err(trouble);
        }
        let failing = self.store.writer().gauges().failing.load(Ordering::Relaxed);
        if failing >= TROUBLE { Err("the database does not take results: see the log".to_owned()) } else { Ok(()) }
    }

    fn ask(&self, target: &TargetId, wish: Wish) -> BoxFuture<'_, Result<(), CommandError>> {
        let target = target.clone();
        let ask = match wish {
            Wish::Poll => Ask::PollNow,
            Wish::Retry => Ask::Retry,
            Wish::ResetBreaker => Ask::ResetBreaker,
        };
        async move { self.send(|reply| Message::Ask(target, ask, reply)).await? }.boxed()
    }

    fn dismiss(&self, target: &TargetId, dependency: Option<String>) -> BoxFuture<'_, Result<usize, CommandError>> {
        let target = target.clone();
        async move { self.send(|reply| Message::Dismiss(target, dependency, reply)).await? }.boxed()
    }

    fn explain(&self, target: &TargetId) -> BoxFuture<'_, Result<ExplanationView, CommandError>> {
        let target = target.clone();
        async move {
            let id = target.clone();
            let explained = self.send(|reply| Message::Explain(id, reply)).await?;
            let Explained { explanation, failure } =
                explained.ok_or_else(|| CommandError::NoTarget(target.to_string()))?;
            let times = Times(self.clock);
            let terms = explanation.terms.into_iter().map(|term| (term.name, term.value, term.meaning));
            let failure = failure.map(|f| ("last_error", f.code, format!("{} ({})", f.message, f.category.as_str())));
            let terms = terms.chain(failure);
            Ok(ExplanationView {
                place: explanation.place.as_str(),
                next_run: explanation.due.map(|due| times.at(due)),
                summary: explanation.summary,
                terms: terms.collect(),
            })
        }
        .boxed()
    }

    fn settings(&self) -> SettingsView {
        self.configurator.view()
    }

    fn set(&self, changes: Vec<(String, Option<String>)>) -> BoxFuture<'_, Result<(), CommandError>> {
        self.configurator.clone().set(changes).boxed()
    }

    fn plugins(&self) -> BoxFuture<'_, Vec<PluginView>> {
        async { self.overview().await.plugins }.boxed()
    }

    fn events_after(&self, sequence: i64, limit: u32) -> BoxFuture<'_, Result<web::StoredEvents, String>> {
        let store = self.store.clone();
        let read = move || {
            let (first, last) = store.reader().event_bounds().map_err(|error| error.to_string())?;
            // Pruned meanwhile, or a number that this database never gave.
            if sequence > last || (first > 0 && sequence < first - 1) {
                return Ok(None);
            }
            let stored = store.reader().events_after(sequence, limit).map_err(|error| error.to_string())?;
            Ok(Some(stored.into_iter().map(|stored| (stored.sequence, stored.event)).collect()))
        };
        async move { tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())? }.boxed()
    }

    fn keep_session(&self, hash: web::TokenHash, until: Option<Timestamp>) {
        self.store.writer().session(hash, until);
    }

    fn rotate_token(&self) -> Result<String, CommandError> {
        if crate::common::environment(ADMIN_TOKEN).is_some() {
            let message =
                format!("the environment variable {ADMIN_TOKEN} sets the token: change it there and start again");
            return Err(CommandError::Conflict(message));
        }
        let token = hex(&random_bytes::<32>());
        self.store.writer().admin_token(Auth::hash(&token), self.clock.wall());
        crate::token::keep(&self.data_dir, &token);
        Ok(token)
    }

    fn random_id(&self) -> String {
        hex(&random_bytes::<32>())
    }

    fn target_name(&self, target: &TargetId) -> Option<String> {
        self.configurator.name(target)
    }

    fn now(&self) -> Timestamp {
        self.clock.wall()
    }
}

/// Moments as times for people.
#[derive(Clone, Copy)]
struct Times(Clock);

impl Times {
    fn at(&self, moment: Moment) -> Timestamp {
        self.0.at(moment)
    }
}

fn scheduler_view(snapshot: &Snapshot, times: Times) -> SchedulerView {
    let counters = snapshot.counters;
    let (time, polls) = snapshot.poll_time;
    let next = snapshot.next.as_ref().and_then(|(id, due)| {
        let (target, status) = snapshot.targets.iter().find(|(target, _)| target.id() == id)?;
        Some((id.clone(), target.config.kind.clone(), times.at(*due), status.schedule.interval))
    });
    SchedulerView {
        started: counters.started,
        succeeded: counters.succeeded,
        failed: counters.failed,
        skipped_unwritten: counters.skipped_unwritten,
        held: vec![
            ("maxInFlight", counters.held_in_flight),
            ("ratePerSecond", counters.held_by_rate),
            ("maxPerHost", counters.held_by_hosts),
            ("unwrittenResults", counters.skipped_unwritten),
            ("noInstanceSlot", counters.skipped_no_slot),
        ],
        next,
        last_start: snapshot.last_start.map(|moment| times.at(moment)),
        mean_poll: time.checked_div(u32::try_from(polls).unwrap_or(u32::MAX)).unwrap_or_default(),
    }
}

fn view(target: &Target, status: &TargetStatus, times: Times) -> TargetView {
    let schedule = &status.schedule;
    let published = target.published().clone();
    let known = target.known();
    let live: HashMap<u32, store::Live> = known.dependencies.iter().map(|d| (d.facts.slot, d.live)).collect();
    drop(known);
    let next_run = status.place.waits().then(|| times.at(schedule.due));
    let config = &target.config;
    TargetView {
        id: config.id.clone(),
        name: config.name.clone(),
        kind: config.kind.clone(),
        url: config.url.to_string(),
        labels: config.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        enabled: status.enabled,
        place: status.place.as_str(),
        cadence: status.cadence.as_str(),
        interval: schedule.interval,
        next_run,
        last_success: schedule.last_success.map(|moment| times.at(moment)),
        last_polled: schedule.last_polled.map(|moment| times.at(moment)),
        last_error: published.failure.map(|failure| PollErrorView {
            at: failure.at,
            category: failure.category,
            code: failure.code,
            message: failure.message,
        }),
        failures: schedule.failures,
        unreachable: schedule.is_unreachable(),
        first_failure: schedule.first_failure.map(|moment| times.at(moment)),
        staleness: status.staleness,
        stale_since: published.stale_since,
        breaker: BreakerView {
            state: schedule.breaker.state.as_str(),
            since: schedule.breaker.since.map(|moment| times.at(moment)),
            retry_at: next_run.filter(|_| schedule.breaker.state != BreakerState::Closed),
        },
        dead: schedule.dead.map(|dead| DeadView {
            reason: dead.reason.as_str(),
            since: times.at(dead.since),
            last_attempt: times.at(dead.last_attempt),
            retries: dead.retries,
        }),
        warnings: published.warnings,
        dependencies: published.facts.iter().map(|facts| dependency(facts, live.get(&facts.slot))).collect(),
        samples: published.samples,
    }
}

fn dependency(facts: &store::Facts, live: Option<&store::Live>) -> DependencyView {
    let reported = &facts.reported;
    DependencyView {
        name: reported.name.clone(),
        canonical: facts.canonical.clone(),
        title: reported.title.clone(),
        kind: reported.kind.clone(),
        status: reported.status,
        skipped: reported.skipped,
        code: reported.code,
        latency_ms: live.and_then(|live| live.latency_ms),
        description: reported.description.clone(),
        impact: reported.impact.clone(),
        error: reported.error.clone(),
        error_message: reported.error_message.clone(),
        contact: reported.contact.clone(),
        check_details: reported.check_details.clone(),
        parent: reported.parent.clone(),
        checked_at: live.map_or(facts.first_seen, |live| live.checked_at),
        last_status_change: facts.last_status_change,
        missing_since: facts.missing_since,
    }
}

/// How long the threads that only look after files may take to end, and the driver: its polls have 15 s.
pub(crate) const ENDING: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(17));
