//! Runs one call of a plugin in a fresh store, and one poll.

use crate::Compiler;
use crate::cache::Owner;
use crate::call::{Call, Called, Caller, Usage};
use crate::convert;
use crate::engine::{Pool, Ticking};
use crate::fault::plugin_fault;
use crate::host::v0_1::{self, types};
use crate::host::{CallClock, End, Log, State};
use crate::lanes::Lanes;
use crate::limits::{Limiter, Limits};
use crate::plugin::{Plugin, RoleExports};
use crate::setup::{self, Member};
use crate::stored::Stored;
use crate::vaults::{DurableFolder, Vaults};
use crate::wasi;
use crate::zone::Zone;
use egress::{Captured, ErrorClass, Grant, Seen, Session, Tape, Timing};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use machine_code::Backtrace;
use model::{Cause, Failure, Outcome, PluginValues, TargetId, Timestamp};
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use wasmtime::component::Linker;
use wasmtime::{Engine, Store};

/// The settings of this crate.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of concurrent instances. Each slot keeps about 61 KB.
    pub instance_slots: u32,
    /// Number of lanes, by default one per core.
    pub lanes: NonZeroUsize,
    /// How the instance pool keeps memory.
    pub pool: Pool,
    /// The details in the message of a trap.
    pub backtrace: Backtrace,
    /// The time zone that plugins see.
    pub zone: Zone,
    /// Where captured secrets are stored that survive a restart. `None` to keep them in memory only.
    pub durable: Option<DurableFolder>,
}

impl Default for Config {
    fn default() -> Self {
        let lanes = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            instance_slots: 512,
            lanes,
            pool: Pool::default(),
            backtrace: Backtrace::default(),
            zone: Zone::system(),
            durable: None,
        }
    }
}

/// The error of [`Sandbox::new`].
#[derive(Debug, thiserror::Error)]
#[error("the sandbox cannot be set up: {0}")]
pub struct SetupError(String);

/// The environment of polls. A process needs exactly one.
///
/// Its functions return boxed futures, so that this crate compiles their code. The code of an `async` function is
/// compiled in each crate that polls it, and optimised like that crate.
pub struct Sandbox {
    pub(crate) caller: Caller,
    compiler: Compiler,
    linker: Linker<State>,
    slots: Arc<Semaphore>,
    pub(crate) captured: Vaults,
    /// Held while the machine code of a built-in plugin is mapped again.
    pub(crate) waking: tokio::sync::Mutex<()>,
    waited: AtomicU64,
    zone: Zone,
}

/// The input of one poll.
#[derive(Clone)]
pub struct Job {
    /// The plugin that polls.
    pub plugin: Plugin,
    /// The target to poll.
    pub target: Arc<Target>,
    /// The network access of the target.
    pub grant: Arc<Grant>,
    /// The resource limits of the poll.
    pub limits: Limits,
    /// The wall-clock limit of the whole call.
    pub timeout: Duration,
    /// The time that the plugin sees.
    pub now: Timestamp,
    /// Whether exchanges are recorded or replayed.
    pub tape: Tape,
    /// The time zone that the plugin sees; `None` for that of the sandbox.
    pub zone: Option<Zone>,
    /// The values that the plugin stored for this target.
    pub stored: PluginValues,
}

/// The data about a target that its plugin gets.
#[derive(Clone, Debug)]
pub struct Target {
    /// The id of the target.
    pub id: TargetId,
    /// The display name.
    pub name: String,
    /// The URL.
    pub url: String,
    /// Other URLs of the same service.
    pub also: Vec<String>,
    /// Label names and values.
    pub labels: Vec<(String, String)>,
    /// The settings as JSON.
    pub settings: String,
    /// The names of the secrets.
    pub secrets: Vec<String>,
}

/// The result of a poll.
#[derive(Clone, Debug)]
pub struct Done {
    /// The outcome of the poll.
    pub outcome: Outcome,
    /// The resources that the poll used.
    pub usage: Usage,
    /// How its requests ended.
    pub seen: Seen,
    /// The duration of each phase of its requests, as sums.
    pub timing: Timing,
    /// The values that the plugin stores for the target, if they changed.
    pub stored: Option<PluginValues>,
}

impl Done {
    /// A poll that ended in a panic of the host.
    pub(crate) fn of_panic(started: Instant) -> Self {
        let message = "Polliwog itself failed during this poll: please report it with the log".to_owned();
        Self::failed(plugin_fault("host_panic", message), started)
    }

    /// A poll that did not get as far as its plugin.
    fn failed(failure: Failure, started: Instant) -> Self {
        let usage = Usage { wall: started.elapsed(), ..Usage::default() };
        Self {
            outcome: Outcome::Failure(failure),
            usage,
            seen: Seen::default(),
            timing: Timing::default(),
            stored: None,
        }
    }
}

/// A call that may send requests.
pub(crate) struct Prepared {
    pub call: Call,
    pub session: Arc<Session>,
    pub wire_target: types::Endpoint,
}

impl Sandbox {
    /// Creates the engine, the linker and the lanes.
    pub fn new(config: Config, compiler: Compiler, egress: &egress::Egress) -> Result<Self, SetupError> {
        let failed = |error: wasmtime::Error| SetupError(format!("{error:#}"));
        let ticking = Ticking::new(config.instance_slots, config.pool, config.backtrace).map_err(failed)?;
        let mut linker = Linker::new(&ticking.engine);
        wasi::add_to_linker(&mut linker).map_err(failed)?;
        v0_1::add_to_linker(&mut linker).map_err(failed)?;
        let lanes = Lanes::start(config.lanes, egress).map_err(|error| SetupError(error.to_string()))?;
        Ok(Self {
            caller: Caller::new(ticking, lanes),
            compiler: compiler.with_backtrace(config.backtrace),
            linker,
            slots: Arc::new(Semaphore::new(config.instance_slots as usize)),
            captured: Vaults::new(config.durable),
            waking: tokio::sync::Mutex::default(),
            waited: AtomicU64::new(0),
            zone: config.zone,
        })
    }

    /// Returns the runtimes of the polls.
    pub fn lanes(&self) -> &Lanes {
        &self.caller.lanes
    }

    /// Returns the time zone that plugins see.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Returns the number of polls that moved to the slow lane, and the number of polls that waited for an instance
    /// slot.
    pub fn counters(&self) -> (u64, u64) {
        (self.caller.demoted(), self.waited.load(Ordering::Relaxed))
    }

    /// Waits for an instance slot for a call of `describe` or `check-settings`.
    pub(crate) async fn slot(&self) -> OwnedSemaphorePermit {
        self.slots.clone().acquire_owned().await.expect("slots are never closed")
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.caller.engine()
    }

    pub(crate) fn compiler(&self) -> &Compiler {
        &self.compiler
    }

    pub(crate) fn linker(&self) -> &Linker<State> {
        &self.linker
    }

    /// Runs one poll in a fresh instance. A panic of the host fails only this poll.
    pub fn poll(&self, job: Job) -> BoxFuture<'_, Done> {
        let started = Instant::now();
        let polled = AssertUnwindSafe(self.poll_from(started, job, None)).catch_unwind();
        polled.unwrap_or_else(move |_| Done::of_panic(started)).boxed()
    }

    /// Runs a poll. `captured` is `None` for the captured secrets of its target.
    pub(crate) async fn poll_from(&self, started: Instant, job: Job, captured: Option<Arc<Captured>>) -> Done {
        let deadline = started + job.timeout;
        if self.slots.available_permits() == 0 {
            self.waited.fetch_add(1, Ordering::Relaxed);
        }
        let Ok(Ok(slot)) = timeout_at(deadline, self.slots.clone().acquire_owned()).await else {
            let usage = Usage { wall: started.elapsed(), ..Usage::default() };
            return Done {
                outcome: Outcome::Skipped,
                usage,
                seen: Seen::default(),
                timing: Timing::default(),
                stored: None,
            };
        };
        let (exports, limits) = (self.exports(&job.plugin).await, job.limits);
        let exports = match exports {
            Ok(exports) => exports,
            Err(fault) => return Done::failed(fault, started),
        };
        let Prepared { call, session, wire_target } = self.with_captured(job, captured, (deadline, slot));
        let enter = move |mut store: Store<State>| async move {
            let polled = async {
                let RoleExports::Poller(poller) = &exports.role else { return Err(no_poller()) };
                let instance = exports.pre.instantiate_async(&mut store).await?;
                poller.load(&mut store, &instance)?.call_poll(&mut store, &wire_target).await
            };
            (polled.await, store)
        };
        let Called { result, mut usage, stored } = self.caller.call(call, enter).await;
        usage.wall = started.elapsed();
        let (seen, timing) = (session.seen(), session.timing());
        if session.was_starved() {
            // The result says nothing about the target, whatever the plugin returned.
            return Done { outcome: Outcome::Skipped, usage, seen, timing, stored: None };
        }
        let outcome = match result.and_then(|result| convert::outcome(result, &limits)) {
            Ok(report) => Outcome::Success(report),
            Err(failure) => Outcome::Failure(Failure { cause: cause(&failure, seen), ..failure }),
        };
        Done { outcome, usage, seen, timing, stored }
    }

    /// Asks a plugin for the other members of a service, in a fresh instance and within the limits of a poll.
    pub fn members(&self, job: Job) -> BoxFuture<'_, Result<Vec<Member>, Failure>> {
        self.members_from(job).boxed()
    }

    async fn members_from(&self, job: Job) -> Result<Vec<Member>, Failure> {
        let deadline = Instant::now() + job.timeout;
        let exports = self.exports(&job.plugin).await?;
        let Prepared { call, wire_target, .. } = self.with_session(job, deadline, self.slot().await);
        let enter = move |mut store: Store<State>| async move {
            let found = async {
                let Some(setup) = &exports.setup else { return Ok(Ok(Vec::new())) };
                let instance = exports.pre.instantiate_async(&mut store).await?;
                setup.load(&mut store, &instance)?.call_members(&mut store, &wire_target).await
            };
            (found.await, store)
        };
        self.caller.call(call, enter).await.result?.map(setup::members).map_err(convert::failure)
    }

    /// Prepares a call that may send requests.
    pub(crate) fn with_session(&self, job: Job, deadline: Instant, slot: OwnedSemaphorePermit) -> Prepared {
        self.with_captured(job, None, (deadline, slot))
    }

    /// Prepares a call that uses these captured secrets; `None` for those of its target.
    pub(crate) fn with_captured(
        &self,
        job: Job,
        captured: Option<Arc<Captured>>,
        (deadline, slot): (Instant, OwnedSemaphorePermit),
    ) -> Prepared {
        let Job { plugin, target, grant, limits, now, tape, zone, stored, .. } = job;
        let is_replay = matches!(tape, Tape::Replay(_));
        let wall = deadline.saturating_duration_since(Instant::now());
        let egress_limits = egress::Limits { requests: limits.requests, body: limits.body, bodies: limits.bodies };
        let owner = Owner { target: target.id.clone(), plugin: plugin.digest() };
        let captured = match captured {
            Some(captured) => captured,
            None => self.captured.of(&owner, (&plugin.descriptor().kind, &grant), now),
        };
        let session = Session::new(
            self.caller.lanes.egress(&target.id),
            grant,
            egress_limits,
            deadline - reserve_for_report(wall),
        );
        let session = session.with_tape(tape).with_share(&plugin.descriptor().kind).with_time(now.as_millis() / 1000);
        let session = Arc::new(session.with_captured(captured));
        let call = Call {
            limits,
            log: Log::new(&plugin.descriptor().kind, &target.id, limits.log_lines),
            limiter: Limiter::new(limits.memory),
            session: Some((session.clone(), owner)),
            clock: CallClock {
                now,
                zone: zone.unwrap_or_else(|| self.zone.clone()),
                end: if is_replay { End::In(wall) } else { End::At(deadline) },
            },
            progress: None,
            stored: Some(Stored::new(stored)),
            wall,
            slot,
        };
        let wire_target = wire_target(&target, &session, wall);
        Prepared { call, session, wire_target }
    }
}

/// The error of a call that the role of a plugin does not permit. Configurations with such a plugin are refused.
fn no_poller() -> wasmtime::Error {
    wasmtime::Error::msg("this plugin sends notifications and cannot poll")
}

/// Returns the cause of a failed poll. A service that answered any request can be reached.
fn cause(failure: &Failure, seen: Seen) -> Cause {
    const UNREACHED: [ErrorClass; 5] = [
        ErrorClass::NameLookup,
        ErrorClass::ConnectionRefused,
        ErrorClass::Unreachable,
        ErrorClass::ConnectionFailed,
        ErrorClass::Timeout,
    ];
    let unreached = failure.cause == Cause::Unreachable || UNREACHED.into_iter().any(|class| seen.has(class));
    if unreached && !seen.has_answer() { Cause::Unreachable } else { Cause::Other }
}

/// Returns the part of a poll's timeout that its requests must not use, so that the plugin can still report which
/// request timed out.
fn reserve_for_report(wall: Duration) -> Duration {
    (wall / 20).max(Duration::from_millis(50)).min(wall / 2)
}

/// Converts a target to the type of the contract. An operator's references to secrets become those of the session.
fn wire_target(target: &Target, session: &Session, timeout: Duration) -> types::Endpoint {
    let written = |text: &String| if text.contains("${") { session.written(text) } else { text.clone() };
    let label = |(name, value): &(String, String)| types::Label { name: name.clone(), value: value.clone() };
    types::Endpoint {
        id: target.id.to_string(),
        name: target.name.clone(),
        url: written(&target.url),
        also: target.also.clone(),
        labels: target.labels.iter().map(label).collect(),
        settings: written(&target.settings),
        secrets: target.secrets.clone(),
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        extra: Vec::new(),
    }
}
