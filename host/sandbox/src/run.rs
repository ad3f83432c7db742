//! One call into a plugin, from a fresh store to its end, and one poll.

use crate::Compiler;
use crate::cache::{Cache, Owner, Vaults};
use crate::convert;
use crate::engine::{Backtrace, Pool, Ticking};
use crate::fault::{cpu_fault, fault, plugin_fault, with_last_words};
use crate::host::v0_1::{self, types};
use crate::host::{Log, State};
use crate::lanes::Lanes;
use crate::limits::{Limiter, Limits};
use crate::load::Plugin;
use crate::meter::{Budget, CpuExhausted, Meter, Metered};
use egress::{Grant, Session, Tape};
use futures_util::FutureExt;
use model::{Failure, FailureCategory, Outcome, TargetId, Timestamp};
use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Engine, Store, UpdateDeadline};

/// A poll that has used more CPU is no healthy one and goes to the slow lane.
const HEALTHY: Duration = Duration::from_millis(2);
/// A poll whose time ran out while it was not waiting for the host is the plugin's fault when it used at least this part of
/// that time, or of the CPU that it may use: endless loops share a lane, so that none of many uses much. Else it was held up
/// by others.
const BUSY: u32 = 4;
/// Handles of components that a store may hold.
const HANDLES: usize = 1_000;

/// The room's settings.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Instances at a time; each keeps about 61 KB.
    pub instance_slots: u32,
    /// Lanes; one for each core.
    pub lanes: NonZeroUsize,
    /// What the pool of instances keeps.
    pub pool: Pool,
    /// What the message of a trap tells.
    pub backtrace: Backtrace,
}

impl Default for Config {
    fn default() -> Self {
        let lanes = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { instance_slots: 512, lanes, pool: Pool::default(), backtrace: Backtrace::default() }
    }
}

/// The sandbox could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox cannot be set up: {0}")]
pub struct SetupError(String);

/// Everything that polls run in. Make one for a process.
pub struct Sandbox {
    ticking: Ticking,
    compiler: Compiler,
    linker: Linker<State>,
    slots: Arc<Semaphore>,
    cache: Arc<Cache>,
    captured: Vaults,
    lanes: Lanes,
    demoted: AtomicU64,
    waited: AtomicU64,
}

/// One poll to be run.
pub struct Job {
    /// By whom.
    pub plugin: Plugin,
    /// Of what.
    pub target: Arc<Target>,
    /// With which capabilities.
    pub grant: Arc<Grant>,
    /// With which limits.
    pub limits: Limits,
    /// Wall clock for the whole call.
    pub timeout: Duration,
    /// What the plugin is told the time is.
    pub now: Timestamp,
    /// Whether its exchanges are recorded, or come from a recording.
    pub tape: Tape,
}

/// What a plugin is told of its target.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its id.
    pub id: TargetId,
    /// Its name.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Other origins of the same thing.
    pub also: Vec<String>,
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// JSON.
    pub settings: String,
    /// Names of its secrets.
    pub secrets: Vec<String>,
}

/// How a poll ended, and what it used.
#[derive(Clone, Debug)]
pub struct Done {
    /// What it came to.
    pub outcome: Outcome,
    /// What it used.
    pub usage: Usage,
}

/// What a call used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time.
    pub cpu: Duration,
    /// Wall clock.
    pub wall: Duration,
    /// Bytes of memory at its peak.
    pub memory: usize,
    /// Requests made.
    pub requests: u32,
    /// Bytes of bodies received.
    pub bytes: u64,
    /// Log lines written.
    pub log_lines: u32,
    /// Names of the secrets that were filled in.
    pub secrets: Vec<String>,
}

/// What a call into a plugin needs.
pub(crate) struct Call {
    pub limits: Limits,
    pub log: Log,
    pub limiter: Limiter,
    pub session: Option<(Arc<Session>, Owner)>,
    /// The time that the plugin is told.
    pub now: Timestamp,
    pub wall: Duration,
    /// The instance slot; it is free again when the store is gone, wherever that is.
    pub slot: OwnedSemaphorePermit,
}

/// How a call into a plugin ended.
pub(crate) struct Called<T> {
    pub result: Result<T, Failure>,
    pub usage: Usage,
}

impl Sandbox {
    /// Sets up engine, linker and lanes.
    pub fn new(config: Config, compiler: Compiler, egress: &egress::Egress) -> Result<Self, SetupError> {
        let failed = |error: wasmtime::Error| SetupError(format!("{error:#}"));
        let ticking = Ticking::new(config.instance_slots, config.pool, config.backtrace).map_err(failed)?;
        let mut linker = Linker::new(&ticking.engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(failed)?;
        v0_1::Plugin::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state).map_err(failed)?;
        let lanes = Lanes::start(config.lanes, egress).map_err(|error| SetupError(error.to_string()))?;
        Ok(Self {
            ticking,
            compiler: compiler.with_backtrace(config.backtrace),
            linker,
            slots: Arc::new(Semaphore::new(config.instance_slots as usize)),
            cache: Arc::new(Cache::new()),
            captured: Vaults::new(),
            lanes,
            demoted: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        })
    }

    /// The runtimes that polls run on.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Polls that were moved to the slow lane, and polls that waited for an instance slot.
    pub fn counters(&self) -> (u64, u64) {
        (self.demoted.load(Ordering::Relaxed), self.waited.load(Ordering::Relaxed))
    }

    /// Drops what a target's polls kept for the next ones, and what they captured.
    pub fn forget(&self, target: &TargetId) {
        self.cache.forget(target);
        self.captured.forget(target);
    }

    /// A slot for a call that is no poll.
    pub(crate) async fn slot(&self) -> OwnedSemaphorePermit {
        self.slots.clone().acquire_owned().await.expect("slots are never closed")
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.ticking.engine
    }

    pub(crate) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    pub(crate) fn linker(&self) -> &Linker<State> {
        &self.linker
    }

    /// Polls once, in a fresh instance. A panic of the host on the way is a fault of this one poll.
    pub async fn poll(&self, job: Job) -> Done {
        let started = Instant::now();
        AssertUnwindSafe(self.poll_from(started, job)).catch_unwind().await.unwrap_or_else(|_| {
            let message =
                "the host itself failed while it carried out this poll: please report it, with the log".to_owned();
            let usage = Usage { wall: started.elapsed(), ..Usage::default() };
            Done { outcome: Outcome::Failure(plugin_fault("host_panic", message)), usage }
        })
    }

    async fn poll_from(&self, started: Instant, job: Job) -> Done {
        let deadline = started + job.timeout;
        if self.slots.available_permits() == 0 {
            self.waited.fetch_add(1, Ordering::Relaxed);
        }
        let Ok(Ok(slot)) = timeout_at(deadline, self.slots.clone().acquire_owned()).await else {
            let usage = Usage { wall: started.elapsed(), ..Usage::default() };
            return Done { outcome: Outcome::Skipped, usage };
        };
        let Job { plugin, target, grant, limits, now, tape, .. } = job;
        let wall = deadline.saturating_duration_since(Instant::now());
        let egress_limits = egress::Limits { requests: limits.requests, body: limits.body, bodies: limits.bodies };
        let session = Session::new(self.lanes.egress(&target.id), grant, egress_limits, deadline - kept_back(wall));
        let owner = Owner { target: target.id.clone(), plugin: plugin.digest() };
        let session = session.with_tape(tape).with_share(plugin.descriptor().kind.as_str());
        let session = Arc::new(session.with_captured(self.captured.of(&owner)));
        let call = Call {
            limits,
            log: Log::new(plugin.descriptor().kind.as_str(), target.id.as_str(), limits.log_lines),
            limiter: Limiter::new(limits.memory),
            session: Some((session.clone(), owner)),
            now,
            wall,
            slot,
        };
        let told = told(&target, now, wall);
        let enter = move |mut store: Store<State>| async move {
            let result = match plugin.pre().instantiate_async(&mut store).await {
                Ok(instance) => instance.polliwog_poller_poller().call_poll(&mut store, &told).await,
                Err(error) => Err(error),
            };
            (result, store)
        };
        let Called { result, mut usage } = self.call(call, enter).await;
        usage.wall = started.elapsed();
        if session.was_starved() {
            // It says nothing of the target, whatever the plugin made of it.
            return Done { outcome: Outcome::Skipped, usage };
        }
        let outcome = match result.and_then(|result| convert::outcome(result, &limits)) {
            Ok(report) => Outcome::Success(report),
            Err(failure) => Outcome::Failure(failure),
        };
        Done { outcome, usage }
    }

    /// Calls into a fresh store, within the call's limits, and says what ended it.
    ///
    /// `enter` is given the store and gives it back, because a closure's future cannot yet be said to borrow and be `Send`.
    pub(crate) async fn call<T, F>(&self, call: Call, enter: impl FnOnce(Store<State>) -> F) -> Called<T>
    where
        T: Send + 'static,
        F: Future<Output = (wasmtime::Result<T>, Store<State>)> + Send + 'static,
    {
        let meter = Arc::new(Meter::default());
        let Call { limits, log, limiter, session, now, wall, slot } = call;
        let writer = tracing::enabled!(tracing::Level::DEBUG).then(|| log.clone());
        let requests = session.as_ref().map(|(session, _)| session.clone());
        let mut state = State::new(limiter, meter.clone(), log);
        if let Some((session, owner)) = session {
            let now = Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or(0));
            state = state.with_session(session, self.cache.clone(), owner, now);
        }
        let (waiting, output) = (state.waiting.clone(), state.output.clone());
        let entered = enter(self.store(state, &limits));
        let future = async move {
            let (result, store) = entered.await;
            let state = store.into_data();
            drop(slot);
            (result, state)
        };
        let budget = Budget { healthy: HEALTHY, most: limits.cpu };
        let metered = Metered::new(meter.clone(), budget, future);
        let ended = tokio::time::timeout(wall, self.demotable(metered, meter.clone())).await;
        let mut usage = Usage { cpu: meter.used(), ..Usage::default() };
        if let Some(session) = requests {
            let used = session.usage();
            (usage.requests, usage.bytes, usage.secrets) = (used.requests, used.bytes, session.secrets_used());
        }
        let result = match ended {
            Ok(Ok((result, state))) => {
                (usage.memory, usage.log_lines) = (state.limiter.memory(), state.log_lines());
                result.map_err(|error| fault(&error, &state, &limits))
            }
            Ok(Err(CpuExhausted)) => Err(cpu_fault(&limits)),
            Err(_) if waiting.is_set() || meter.used() < wall.min(limits.cpu) / BUSY => Err(Failure {
                category: FailureCategory::Transient,
                code: "timeout".to_owned(),
                message: format!(
                    "the poll did not end within {:.1} s: the answer is slow, or the timeout short",
                    wall.as_secs_f64()
                ),
                retry_after: None,
            }),
            Err(_) => Err(plugin_fault(
                "wall_clock_limit",
                "the plugin was still running when the poll's time was over".to_owned(),
            )),
        };
        if let Some(writer) = writer {
            writer.written(&output.text());
        }
        let result = result.map_err(|failure| with_last_words(failure, &output.text()));
        Called { result, usage }
    }

    fn store(&self, state: State, limits: &Limits) -> Store<State> {
        let mut store = Store::new(self.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(limits.report);
        store.set_max_component_handles(HANDLES);
        store.set_epoch_deadline(1);
        let budget = limits.cpu;
        store.epoch_deadline_callback(move |context| {
            let meter = &context.data().meter;
            let used = meter.look();
            if used > budget {
                return Err(wasmtime::Error::new(CpuExhausted));
            }
            if used <= HEALTHY {
                return Ok(UpdateDeadline::Continue(1));
            }
            meter.demote();
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Runs a call here until it has used more CPU than a healthy one; then on the slow lane.
    async fn demotable<T: Send + 'static>(
        &self,
        mut call: Metered<'static, T>,
        meter: Arc<Meter>,
    ) -> Result<T, CpuExhausted> {
        let healthy = poll_fn(|context| match Pin::new(&mut call).poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if meter.is_demoted() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(result) = healthy.await {
            return result;
        }
        self.demoted.fetch_add(1, Ordering::Relaxed);
        let mut task = AbortOnDrop(self.lanes.slow().spawn(call));
        match (&mut task.0).await {
            Ok(result) => result,
            // The slow lane ends only with the process, and a guest cannot panic the host.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// How much of a poll's time its requests do not get, so that a plugin can still say what it was that did not answer.
fn kept_back(wall: Duration) -> Duration {
    (wall / 20).max(Duration::from_millis(50)).min(wall / 2)
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn told(target: &Target, now: Timestamp, timeout: Duration) -> types::Target {
    let label = |(name, value): &(String, String)| types::Label { name: name.clone(), value: value.clone() };
    types::Target {
        id: target.id.to_string(),
        name: target.name.clone(),
        url: target.url.clone(),
        also: target.also.clone(),
        labels: target.labels.iter().map(label).collect(),
        settings: target.settings.clone(),
        secrets: target.secrets.clone(),
        now: u64::try_from(now.as_millis()).unwrap_or(0),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
    }
}
