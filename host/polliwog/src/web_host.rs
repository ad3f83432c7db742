//! Implements `web`'s trait for the running host, over the engine's read model and commands.

use crate::admin::{self, ADMIN_TOKEN};
use crate::fleet_host::Fleet;
use crate::routing;
use crate::silences;
use crate::what_if::{Present, what_if};
use bytes::Bytes;
use catalog::FileError;
use config::environment;
use engine::{
    Bus, Clock, Command, Examiner, Explained, Health, Log, Mailbox, Measured, Message, Outbox, ReadModel, Reconfigurer,
    random_bytes,
};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use metrics::Reading;
use model::{
    AccessChange, AlertRecord, Ask, ChannelState, CommandError, Definition, Delivery, DeliveryFilter, Explanation,
    History, KindDescription, LatencySummary, Moment, NewSilence, PluginState, PollMeasure, Replay, RouteExplanation,
    RouteStep, SchedulerState, SequencedEvent, Setting, SilenceState, StatusPage, Subject, TargetId, TargetSource,
    TargetState, Term, TestStep, Tested, Timestamp, hex,
};
use sandbox::Sandbox;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{ReadError, Reader, Store};
use tokio::sync::broadcast::Receiver;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use web::Auth;

/// The host is not ready after this many failures of a transaction.
const TROUBLE: u64 = 3;
/// Most concurrent tests of targets.
pub(crate) const TESTS: usize = 4;
/// Longest time for a change of the tokens to be on disk.
const DURABLE: Duration = Duration::from_secs(5);
/// Longest time for the file watchers to end, and for the driver, whose polls have 15 s and sessions 5 s.
pub(crate) const ENDING: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(22));

/// Reads and commands of a running host.
pub(crate) struct RunningHost {
    /// The process's clock.
    pub clock: Clock,
    /// Runs plugins.
    pub sandbox: Arc<Sandbox>,
    /// Holds history.
    pub store: Arc<Store>,
    /// Changes the configuration.
    pub reconfigurer: Arc<Reconfigurer>,
    /// Holds the committed state.
    pub read_model: Arc<ReadModel>,
    /// Announces events.
    pub bus: Bus,
    /// Counts requests.
    pub egress: egress::Egress,
    /// Monitors the essential threads.
    pub health: Arc<Health>,
    /// Counters of the web listeners.
    pub web: Arc<web::Gauges>,
    /// Counts dropped log lines.
    pub log: Arc<Log>,
    /// Contains the admin token's file.
    pub data_dir: PathBuf,
    /// The directory of plugin files.
    pub plugin_dir: PathBuf,
    /// Sends commands to the driver.
    pub mailbox: Mailbox,
    /// Bounds concurrent tests of targets.
    pub tests: Semaphore,
    /// Bounds concurrent replays.
    pub replays: Semaphore,
    /// The host's part in a fleet.
    pub fleet: Option<Fleet>,
    /// Sends notifications.
    pub outbox: Outbox,
    /// Counts what is pushed to a collector.
    pub telemetry: Option<Arc<otlp::Counters>>,
}

impl RunningHost {
    /// Fails with the reason if the database does not take results.
    pub(crate) fn database(&self) -> Result<(), String> {
        if let Some(trouble) = self.store.writer().trouble() {
            return Err(trouble);
        }
        let failing = self.store.writer().gauges().failing.load(Ordering::Relaxed);
        if failing >= TROUBLE { Err("the database does not take results: see the log".to_owned()) } else { Ok(()) }
    }

    /// Reads from the database on a thread where blocking is allowed.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, ReadError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, String>> {
        let store = self.store.clone();
        let reading = tokio::task::spawn_blocking(move || read(store.reader()).map_err(|error| error.to_string()));
        async move { reading.await.map_err(|error| error.to_string())? }.boxed()
    }
}

impl web::Host for RunningHost {
    fn target(&self, id: &TargetId) -> Option<Arc<TargetState>> {
        self.read_model.target(id)
    }

    fn targets(&self) -> Vec<Arc<TargetState>> {
        self.read_model.targets()
    }

    fn polls(&self, id: &TargetId) -> Vec<PollMeasure> {
        self.read_model.polls(id)
    }

    fn scheduler(&self) -> Arc<SchedulerState> {
        self.read_model.scheduler()
    }

    fn plugins(&self) -> Vec<PluginState> {
        self.reconfigurer.plugins().states(&self.read_model.scheduler().quarantined)
    }

    fn change_plugin(&self, file: String, content: Option<Bytes>) -> BoxFuture<'_, Result<(), CommandError>> {
        let directory = self.plugin_dir.clone();
        let change = move || {
            match &content {
                Some(content) => catalog::add_file(&directory, &file, content)?,
                None => catalog::remove_file(&directory, &file)?,
            }
            let what = if content.is_some() { "added to" } else { "removed from" };
            tracing::info!("{file} was {what} the plugin directory through the API");
            Ok(())
        };
        let changing = tokio::task::spawn_blocking(change);
        async move {
            let changed = changing.await.map_err(|error| CommandError::Conflict(error.to_string()))?;
            changed.map_err(|error: FileError| match error {
                FileError::Missing(why) => CommandError::Missing(why),
                FileError::Directory(why) => CommandError::Conflict(why),
                FileError::Name(why) | FileError::Content(why) => CommandError::Invalid(why),
            })
        }
        .boxed()
    }

    fn kinds(&self) -> Vec<KindDescription> {
        self.reconfigurer.plugins().kinds()
    }

    fn process(&self) -> Vec<Reading> {
        let started = self.started().as_millis() as f64 / 1000.0;
        let problems = self.reconfigurer.problems().len() as f64;
        let mut readings = vec![
            Reading::gauge("process_start_time_seconds", "When the host started, in seconds since 1970", started),
            Reading::gauge(
                "polliwog_configuration_problems",
                "Problems that keep some of the configuration from being active",
                problems,
            ),
        ];
        let Self { read_model, sandbox, store, egress, .. } = self;
        readings.extend(engine::readings(&Measured { read_model, sandbox, store, egress }));
        readings.extend(self.web.readings());
        readings.push(Reading::counter(
            "polliwog_log_lines_lost",
            "Lines of the log that could not be written",
            self.log.lost(),
        ));
        if let Some(counters) = &self.telemetry {
            let counter = |name, help, value: &AtomicU64| Reading::counter(name, help, value.load(Ordering::Relaxed));
            readings.extend([
                counter("polliwog_otlp_sent", "Log records and data points that the collector took", &counters.sent),
                counter("polliwog_otlp_dropped", "Log records that did not reach the collector", &counters.dropped),
                counter("polliwog_otlp_failed", "Requests that the collector did not take", &counters.failed),
            ]);
        }
        readings
    }

    fn started(&self) -> Timestamp {
        self.clock.at(Moment::START)
    }

    fn listen(&self) -> Receiver<Arc<SequencedEvent>> {
        self.bus.listen()
    }

    fn events_after(&self, sequence: i64, limit: u32) -> BoxFuture<'_, Result<Option<Vec<SequencedEvent>>, String>> {
        let read = move |reader: &Reader| {
            let (first, last) = reader.event_bounds()?;
            // The events were pruned, or this database never assigned the number.
            if sequence > last || (first > 0 && sequence < first - 1) {
                return Ok(None);
            }
            reader.events_after(sequence, limit).map(Some)
        };
        self.read(read)
    }

    fn events_before(
        &self,
        sequence: i64,
        (target, name): (Option<String>, Option<String>),
        limit: u32,
    ) -> BoxFuture<'_, Result<Vec<SequencedEvent>, String>> {
        self.read(move |reader| reader.events_before(sequence, (target.as_deref(), name.as_deref()), limit))
    }

    fn history(&self, target: &TargetId, since: Timestamp) -> BoxFuture<'_, Result<History, String>> {
        let target = target.clone();
        self.read(move |reader| reader.history(&target, since))
    }

    fn recent(
        &self,
        targets: Vec<(TargetId, Option<u32>)>,
        since: Timestamp,
    ) -> BoxFuture<'_, Result<Vec<web::Recent>, String>> {
        self.read(move |reader| reader.recent(&targets, since))
    }

    fn latencies(
        &self,
        target: &TargetId,
        of: (Timestamp, Option<u32>),
        hours: bool,
    ) -> BoxFuture<'_, Result<BTreeMap<u32, Vec<LatencySummary>>, String>> {
        let target = target.clone();
        self.read(move |reader| reader.latencies(&target, of, hours))
    }

    fn health(&self) -> Result<(), String> {
        self.health.failure().map_or(Ok(()), Err)
    }

    fn readiness(&self) -> Result<(), String> {
        self.health()?;
        self.database()
    }

    fn loop_answers(&self) -> BoxFuture<'_, bool> {
        self.mailbox.ping().boxed()
    }

    fn ask(&self, target: &TargetId, ask: Ask) -> BoxFuture<'_, Result<(), CommandError>> {
        let target = target.clone();
        async move { self.mailbox.ask(&target, |reply| Command::Ask(ask, reply)).await? }.boxed()
    }

    fn dismiss(&self, target: &TargetId, dependency: Option<String>) -> BoxFuture<'_, Result<usize, CommandError>> {
        let target = target.clone();
        async move { self.mailbox.ask(&target, |reply| Command::Dismiss(dependency, reply)).await? }.boxed()
    }

    fn alerts(&self) -> Vec<Arc<AlertRecord>> {
        self.read_model.alerts()
    }

    fn acknowledge(&self, subject: Subject, by: Option<String>) -> BoxFuture<'_, Result<(), CommandError>> {
        async move { self.mailbox.request(|reply| Message::Acknowledge(subject, by, reply)).await? }.boxed()
    }

    fn silences(&self) -> Vec<SilenceState> {
        let (all, now) = (self.reconfigurer.silences(), self.clock.wall());
        all.iter().map(|(silence, is_in_file)| silences::state(silence, *is_in_file, now)).collect()
    }

    fn silence(&self, id: Option<String>, silence: Option<NewSilence>) -> BoxFuture<'_, Result<String, CommandError>> {
        let id = id.unwrap_or_else(silences::new_id);
        async move {
            let silence = silence.map(|new| silences::silence(id.clone(), new)).transpose();
            self.reconfigurer.clone().silence(id.clone(), silence.map_err(CommandError::Invalid)?).await?;
            Ok(id)
        }
        .boxed()
    }

    fn matching(&self, conditions: &[(String, String)]) -> Result<Vec<Arc<AlertRecord>>, String> {
        silences::matching(self.read_model.alerts(), conditions)
    }

    fn channels(&self) -> Vec<ChannelState> {
        self.outbox.channels()
    }

    fn test_channel(&self, name: String) -> BoxFuture<'_, Result<(), CommandError>> {
        async move { self.outbox.test(&name).await }.boxed()
    }

    fn deliveries(&self, filter: DeliveryFilter, limit: u32) -> BoxFuture<'_, Result<Vec<Delivery>, String>> {
        self.read(move |reader| reader.deliveries(&filter, limit))
    }

    fn retry_delivery(&self, number: u64) -> BoxFuture<'_, Result<(), CommandError>> {
        async move {
            let found = self.read(move |reader| reader.delivery(number)).await.map_err(CommandError::Conflict)?;
            let missing = || CommandError::Missing(format!("there is no notification {number}"));
            self.outbox.retry(found.ok_or_else(missing)?, &self.read_model.alerts())
        }
        .boxed()
    }

    fn routes(&self) -> Vec<RouteStep> {
        self.reconfigurer.config().routes.iter().map(routing::step).collect()
    }

    fn explain_route(&self, target: &TargetId, dependency: Option<&str>) -> Option<RouteExplanation> {
        let silences = self.reconfigurer.silences().into_iter().map(|(silence, _)| silence).collect();
        let now = self.clock.wall();
        routing::explain(&self.reconfigurer.config(), self.read_model.alerts(), (silences, now), (target, dependency))
    }

    fn explain(&self, target: &TargetId) -> BoxFuture<'_, Result<Explanation<Timestamp>, CommandError>> {
        let target = target.clone();
        async move {
            let explained = self.mailbox.ask(&target, Command::Explain).await?;
            let Explained { explanation, failure } =
                explained.ok_or_else(|| CommandError::NoTarget(target.to_string()))?;
            let mut terms = explanation.terms;
            terms.extend(failure.map(|failure| Term {
                name: "last_error",
                value: failure.code,
                meaning: format!("{} ({})", failure.message, failure.category.as_str()),
            }));
            Ok(Explanation {
                target: explanation.target,
                place: explanation.place,
                due: explanation.due.map(|due| self.clock.at(due)),
                summary: explanation.summary,
                terms,
            })
        }
        .boxed()
    }

    fn settings_file(&self) -> String {
        self.reconfigurer.file()
    }

    fn problems(&self) -> Vec<String> {
        self.reconfigurer.problems()
    }

    fn settings(&self) -> Vec<Setting> {
        self.reconfigurer.settings()
    }

    fn settings_of(&self, target: &TargetId) -> Vec<Setting> {
        self.reconfigurer.settings_of(target)
    }

    fn setting(&self, key: &str) -> Option<Setting> {
        self.reconfigurer.setting(key)
    }

    fn set(&self, changes: Vec<(String, Option<String>)>) -> BoxFuture<'_, Result<(), CommandError>> {
        self.reconfigurer.clone().set(changes).boxed()
    }

    fn definition(&self, target: &TargetId) -> Option<String> {
        self.reconfigurer.definition(target)
    }

    fn define(&self, target: &TargetId, definition: Definition) -> BoxFuture<'_, Result<(), CommandError>> {
        self.reconfigurer.clone().define(target.clone(), definition).boxed()
    }

    fn clock_set(&self) -> Option<(Timestamp, i64)> {
        self.clock.set()
    }

    fn status_pages(&self) -> Vec<StatusPage> {
        self.reconfigurer.status_pages()
    }

    fn aliases(&self) -> Vec<(String, String, TargetSource)> {
        self.reconfigurer.aliases()
    }

    fn alias(&self, name: String, canonical: Option<String>) -> BoxFuture<'_, Result<(), CommandError>> {
        self.reconfigurer.clone().alias(name, canonical).boxed()
    }

    fn test(&self, tested: Tested) -> BoxFuture<'_, Result<Vec<TestStep>, CommandError>> {
        async move {
            let busy = || CommandError::Conflict(format!("{TESTS} targets are being tested: try again in a moment"));
            let _turn = self.tests.try_acquire().map_err(|_| busy())?;
            let (target, served) = self.reconfigurer.tested(tested).await?;
            let Self { clock, sandbox, egress, .. } = self;
            Ok(Examiner { clock: *clock, sandbox, egress }.examine(&target, &served).await)
        }
        .boxed()
    }

    fn replay(&self, span: Duration) -> BoxFuture<'_, Result<Replay, CommandError>> {
        async move {
            let busy = || CommandError::Conflict("another replay runs: try again in a moment".to_owned());
            let turn = self.replays.try_acquire().map_err(|_| busy())?;
            let (settings, specs) = self.reconfigurer.scheduled().await;
            let targets = self.read_model.targets();
            let intervals =
                targets.iter().filter_map(|target| Some((target.info.id.clone(), target.schedule.interval?)));
            let usage = self.plugins().into_iter().filter_map(|plugin| plugin.served.ok().map(|served| served.usage));
            let (polls, cpu) = usage.fold((0, Duration::ZERO), |(polls, cpu), of| (polls + of.polls, cpu + of.cpu));
            let present = Present {
                settings,
                specs,
                intervals: intervals.collect(),
                latency: self.read_model.scheduler().mean_poll,
                cpu: (polls > 0).then(|| cpu.div_f64(polls as f64)),
            };
            let (since, now) = (self.clock.wall().before(span), self.clock.wall());
            let found = self.read(move |reader| what_if(reader, present, (since, now))).await;
            drop(turn);
            found.map_err(CommandError::Conflict)
        }
        .boxed()
    }

    fn keep_access(&self, change: AccessChange) {
        self.store.writer().access(change);
    }

    fn access_kept(&self) -> BoxFuture<'_, Result<(), CommandError>> {
        let (done, kept) = oneshot::channel();
        self.store.writer().publish(Box::new(move |_| {
            // The caller may no longer wait.
            let _ = done.send(());
        }));
        let late = || {
            CommandError::Conflict(
                "the change is active, but the database does not take it: it is lost when the host ends before that"
                    .to_owned(),
            )
        };
        async move { timeout(DURABLE, kept).await.ok().and_then(Result::ok).ok_or_else(late) }.boxed()
    }

    fn rotate_token(&self) -> Result<String, CommandError> {
        if environment(ADMIN_TOKEN).is_some() {
            let message =
                format!("the environment variable {ADMIN_TOKEN} sets the token: change it there and restart the host");
            return Err(CommandError::Conflict(message));
        }
        let token = hex(&random_bytes::<32>());
        self.store.writer().access(AccessChange::First(Auth::hash(&token), self.clock.wall()));
        admin::keep(&self.data_dir, &token);
        Ok(token)
    }

    fn random_id(&self) -> String {
        hex(&random_bytes::<32>())
    }

    fn fleet(&self) -> Option<&dyn web::Fleet> {
        self.fleet.as_ref().map(|fleet| fleet as _)
    }

    fn now(&self) -> Timestamp {
        self.clock.wall()
    }
}
