//! Calls a plugin in a fresh store, within the limits of the call.

use crate::cache::{Cache, Owner};
use crate::engine::Ticking;
use crate::fault::{cpu_fault, fault, plugin_fault, with_output};
use crate::host::{CallClock, Log, State};
use crate::lanes::Lanes;
use crate::limits::{Limiter, Limits};
use crate::meter::{Budget, CpuExhausted, Meter, Metered};
use crate::progress::Open;
use crate::stored::Stored;
use egress::Session;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::{Cause, Failure, FailureCategory, PluginValues};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use wasmtime::{Engine, Store, UpdateDeadline};

/// CPU time after which a poll moves to the slow lane.
const HEALTHY: Duration = Duration::from_millis(2);
/// Divisor for judging a poll that timed out while it was not waiting for the host. It is the plugin's fault if the
/// poll used at least this fraction of its timeout or of its CPU limit. The fraction is small because endless loops
/// share the slow lane. Otherwise other polls delayed it.
const BUSY: u32 = 4;
/// Maximum number of component handles of a store.
const HANDLES: usize = 1_000;

/// The input of a call of a plugin.
pub(crate) struct Call {
    pub limits: Limits,
    pub log: Log,
    pub limiter: Limiter,
    pub session: Option<(Arc<Session>, Owner)>,
    pub clock: CallClock,
    /// The progress of the notification that is sent.
    pub progress: Option<Open>,
    /// The endpoint's stored values.
    pub stored: Option<Stored>,
    pub wall: Duration,
    /// The instance slot. It is released after the store is dropped, on whatever thread.
    pub slot: OwnedSemaphorePermit,
}

/// Enters a plugin in a store, and returns the store at the end.
type Enter = dyn FnOnce(Store<State>) -> BoxFuture<'static, (wasmtime::Result<()>, Store<State>)> + Send;

/// The resources that a call used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time.
    pub cpu: Duration,
    /// Wall-clock time.
    pub wall: Duration,
    /// Peak size of all memories in bytes.
    pub memory: usize,
    /// Number of requests.
    pub requests: u32,
    /// Number of body bytes received.
    pub bytes: u64,
    /// Number of log lines.
    pub log_lines: u32,
    /// Names of the secrets that were inserted into requests.
    pub secrets: Vec<String>,
}

/// The result of a call of a plugin.
pub(crate) struct Called<T> {
    pub result: Result<T, Failure>,
    pub usage: Usage,
    /// The stored values, if the call returned and changed them.
    pub stored: Option<PluginValues>,
}

impl Call {
    /// A call of `describe` or `check-settings`, without a session.
    pub(crate) fn pure(name: &str, slot: OwnedSemaphorePermit) -> Self {
        let limits = Limits::pure();
        let log = Log::new(name, "", limits.log_lines);
        let (limiter, wall) = (Limiter::new(limits.memory), limits.cpu * 20);
        Self { limits, log, limiter, session: None, clock: CallClock::pure(), progress: None, stored: None, wall, slot }
    }
}

/// Calls plugins.
pub(crate) struct Caller {
    ticking: Ticking,
    pub cache: Arc<Cache>,
    pub lanes: Lanes,
    demoted: AtomicU64,
}

impl Caller {
    /// Creates a caller with an empty cache.
    pub(crate) fn new(ticking: Ticking, lanes: Lanes) -> Self {
        Self { ticking, cache: Arc::new(Cache::new()), lanes, demoted: AtomicU64::new(0) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.ticking.engine
    }

    /// Returns the number of calls that moved to the slow lane.
    pub(crate) fn demoted(&self) -> u64 {
        self.demoted.load(Ordering::Relaxed)
    }

    /// Calls a plugin in a fresh store within the limits of the call.
    ///
    /// `enter` takes the store and returns it, because the future of a closure cannot be declared to borrow and be
    /// `Send`.
    pub(crate) async fn call<T, F>(
        &self,
        call: Call,
        enter: impl FnOnce(Store<State>) -> F + Send + 'static,
    ) -> Called<T>
    where
        T: Send + 'static,
        F: Future<Output = (wasmtime::Result<T>, Store<State>)> + Send + 'static,
    {
        let returned = Arc::new(Mutex::new(None));
        let place = returned.clone();
        let enter = move |store| {
            let entered = enter(store);
            let entered = async move {
                let (result, store) = entered.await;
                let result = result.map(|value| *lock(&place) = Some(value));
                (result, store)
            };
            entered.boxed()
        };
        let Called { result, usage, stored } = self.call_boxed(call, Box::new(enter)).await;
        let result = result.map(|()| lock(&returned).take().expect("a call that succeeds has returned"));
        Called { result, usage, stored }
    }

    /// As [`Self::call`], without a type for each function of the contract: this code is compiled once.
    async fn call_boxed(&self, call: Call, enter: Box<Enter>) -> Called<()> {
        let meter = Arc::new(Meter::default());
        let Call { limits, log, limiter, session, clock, progress, stored, wall, slot } = call;
        let what = if progress.is_some() { "the notification" } else { "the poll" };
        let writer = tracing::enabled!(tracing::Level::DEBUG).then(|| log.clone());
        let requests = session.as_ref().map(|(session, _)| session.clone());
        let mut state = State::new(limiter, meter.clone(), log);
        state.set_clock(clock, progress);
        state.set_stored(stored);
        if let Some((session, owner)) = session {
            state.set_session(session, self.cache.clone(), owner);
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
        let metered = Metered::new(meter.clone(), budget, self.ticking.ticker.clone(), future);
        let ended = tokio::time::timeout(wall, self.demotable(metered, meter.clone())).await;
        let mut usage = Usage { cpu: meter.used(), ..Usage::default() };
        if let Some(session) = requests {
            let used = session.usage();
            (usage.requests, usage.bytes, usage.secrets) = (used.requests, used.bytes, session.secrets_used());
        }
        let mut stored = None;
        let result = match ended {
            Ok(Ok((result, mut state))) => {
                (usage.memory, usage.log_lines) = (state.limiter.memory(), state.log_lines());
                stored = state.take_stored().filter(|_| result.is_ok());
                result.map_err(|error| fault(&error, &state, &limits))
            }
            Ok(Err(CpuExhausted)) => Err(cpu_fault(&limits)),
            Err(_) if waiting.is_set() || meter.used() < wall.min(limits.cpu) / BUSY => Err(Failure {
                category: FailureCategory::Transient,
                code: "timeout".to_owned(),
                cause: Cause::Unreachable,
                message: format!(
                    "{what} timed out after {:.1} s: the answer is slow or the timeout is too short",
                    wall.as_secs_f64()
                ),
                retry_after: None,
            }),
            Err(_) => {
                Err(plugin_fault("wall_clock_limit", format!("the plugin was still running when {what} timed out")))
            }
        };
        if let Some(writer) = writer {
            writer.written(&output.text());
        }
        let result = result.map_err(|failure| with_output(failure, &output.text()));
        Called { result, usage, stored }
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
            let used = meter.measure();
            if used > budget {
                return Err(wasmtime::Error::new(CpuExhausted));
            }
            if used <= HEALTHY {
                return Ok(UpdateDeadline::Continue(1));
            }
            meter.demote();
            meter.interrupt();
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    /// Runs a call on this lane until it has used more CPU than a healthy poll, then on the slow lane.
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
            // The slow lane ends only with the process, so the error is a panic of the host.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task that is aborted when its handle is dropped.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
