//! The imports of a guest. Each version of the contract has its own file. This file has the checks of capabilities,
//! which are common to all versions.

use crate::cache::{Cache, CacheError, Owner};
use crate::limits::Limiter;
use crate::meter::Meter;
use crate::progress::Open;
use crate::stored::Stored;
use crate::zone::Zone;
use egress::{Exchanged, Session};
use model::{Failure, PluginValues, Timestamp, clean};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{HostWallClock, WasiCtx, WasiCtxView, WasiView};

pub(crate) mod v0_1;

/// Maximum number of bytes of stdout and stderr that are kept. The last bytes contain the message of a panic.
const TAIL: usize = 4096;
/// Maximum length of a log line in bytes.
const LOG_LINE: usize = 2048;
/// Maximum number of random bytes that a guest may request from WASI at once.
const RANDOM: u64 = 4096;

/// The state of one poll's store.
pub(crate) struct State {
    wasi: Option<WasiCtx>,
    table: ResourceTable,
    pub limiter: Limiter,
    pub meter: Arc<Meter>,
    /// `None` in `describe` and `check-settings`.
    pub session: Option<Arc<Session>>,
    pub waiting: Waiting,
    pub output: Tail,
    cache: Option<(Arc<Cache>, Owner)>,
    log: Log,
    /// The time of the call is also on WASI's wall clock.
    clock: CallClock,
    /// The progress of the notification that is sent; `None` in other calls.
    progress: Option<Open>,
    /// The endpoint's stored values; `None` in pure calls.
    stored: Option<Stored>,
}

/// The times that a guest sees.
#[derive(Clone, Debug)]
pub(crate) struct CallClock {
    /// The time of the call.
    pub now: Timestamp,
    /// The operator's time zone.
    pub zone: Zone,
    /// The end of the call.
    pub end: End,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// At a time.
    At(Instant),
    /// Always after this time, as in a replay.
    In(Duration),
}

impl CallClock {
    /// The clock of `describe` and the other functions that return the same at any time.
    pub(crate) const fn pure() -> Self {
        Self { now: Timestamp::from_millis(0), zone: Zone::UTC, end: End::In(Duration::ZERO) }
    }

    fn remaining(&self) -> Duration {
        match self.end {
            End::At(end) => end.saturating_duration_since(Instant::now()),
            End::In(rest) => rest,
        }
    }
}

/// Whether the guest is waiting for the host.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    async fn during<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.store(true, Ordering::Relaxed);
        let result = future.await;
        self.0.store(false, Ordering::Relaxed);
        result
    }
}

/// The log of a call: its plugin and target, and the remaining number of lines.
#[derive(Clone)]
pub(crate) struct Log {
    plugin: Arc<str>,
    target: Arc<str>,
    left: u32,
    pub lines: u32,
}

impl Log {
    pub(crate) fn new(plugin: impl Into<Arc<str>>, target: impl Into<Arc<str>>, lines: u32) -> Self {
        Self { plugin: plugin.into(), target: target.into(), left: lines, lines: 0 }
    }

    /// Logs the output of a guest on stdout and stderr at debug level.
    pub(crate) fn written(&self, output: &str) {
        if !output.is_empty() {
            // Use one line, so that the output of a plugin cannot imitate log lines of the host.
            let output = output.replace('\n', " ");
            tracing::debug!(plugin = &*self.plugin, target_id = &*self.target, "plugin output: {output}");
        }
    }
}

impl State {
    pub(crate) fn new(limiter: Limiter, meter: Arc<Meter>, log: Log) -> Self {
        let table = ResourceTable::new();
        let (waiting, output) = (Waiting::default(), Tail::default());
        Self {
            wasi: None,
            table,
            limiter,
            meter,
            session: None,
            waiting,
            output,
            cache: None,
            log,
            clock: CallClock::pure(),
            progress: None,
            stored: None,
        }
    }

    // These change the state in place, because it has half a kilobyte.
    pub(crate) fn set_session(&mut self, session: Arc<Session>, cache: Arc<Cache>, owner: Owner) {
        self.session = Some(session);
        self.cache = Some((cache, owner));
    }

    pub(crate) fn set_stored(&mut self, stored: Option<Stored>) {
        self.stored = stored;
    }

    /// Takes the stored values if the guest changed them.
    pub(crate) fn take_stored(&mut self) -> Option<PluginValues> {
        self.stored.take().and_then(Stored::into_changed)
    }

    pub(crate) fn set_clock(&mut self, clock: CallClock, progress: Option<Open>) {
        (self.clock, self.progress) = (clock, progress);
    }

    /// Records the outcome of an alert of the notification that is sent.
    async fn record(&mut self, fingerprint: String, refused: Option<Failure>) {
        if let Some(progress) = &mut self.progress {
            self.waiting.during(progress.record(fingerprint, refused)).await;
        }
    }

    pub(crate) fn log_lines(&self) -> u32 {
        self.log.lines
    }

    /// Sends requests at the same time. Those that are errors already stay as they are.
    async fn fetch_all(&mut self, requests: Vec<Result<egress::Request, egress::Error>>) -> Vec<Exchanged> {
        let session = self.session.as_deref();
        let sent = requests.into_iter().map(|request| exchanged(session, request));
        self.waiting.during(futures_util::future::join_all(sent)).await
    }

    async fn fetch(&mut self, request: Result<egress::Request, egress::Error>) -> Exchanged {
        self.waiting.during(exchanged(self.session.as_deref(), request)).await
    }

    fn cache_get(&self, key: &str) -> Option<Vec<u8>> {
        self.cache.as_ref().and_then(|(cache, owner)| cache.get(owner, key))
    }

    fn cache_set(&self, key: &str, value: Vec<u8>, ttl: Duration) -> Result<(), CacheError> {
        match &self.cache {
            Some((cache, owner)) => cache.set(owner, key, value, ttl),
            None => Err(CacheError::Unavailable),
        }
    }

    fn cache_remove(&self, key: &str) {
        if let Some((cache, owner)) = &self.cache {
            cache.remove(owner, key);
        }
    }

    fn log(&mut self, level: tracing::Level, message: &str) {
        if self.log.left == 0 {
            return;
        }
        self.log.left -= 1;
        self.log.lines += 1;
        let message = clean(message, LOG_LINE);
        let (plugin, target) = (&*self.log.plugin, &*self.log.target);
        match level {
            tracing::Level::ERROR => tracing::error!(plugin, target_id = target, "{message}"),
            tracing::Level::WARN => tracing::warn!(plugin, target_id = target, "{message}"),
            tracing::Level::INFO => tracing::info!(plugin, target_id = target, "{message}"),
            tracing::Level::DEBUG => tracing::debug!(plugin, target_id = target, "{message}"),
            _ => tracing::trace!(plugin, target_id = target, "{message}"),
        }
        if self.log.left == 0 {
            tracing::warn!(plugin, target_id = target, "this poll has written its maximum number of log lines");
        }
    }
}

async fn exchanged(session: Option<&Session>, request: Result<egress::Request, egress::Error>) -> Exchanged {
    match (session, request) {
        (_, Err(error)) => Exchanged { number: None, status: None, result: Err(error) },
        (None, Ok(_)) => Exchanged { number: None, status: None, result: Err(no_http()) },
        (Some(session), Ok(request)) => session.exchange(request).await,
    }
}

fn no_http() -> egress::Error {
    egress::Error::Denied {
        what: "describe and check-settings must not send requests".to_owned(),
        why: "only a poll has http",
    }
}

/// A clock that always returns the time of the poll, so that a poll can be replayed.
struct Frozen(Duration);

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        self.0
    }
}

/// WASI without access to the system: no files, environment, arguments, sockets or name lookups. Created at the guest's
/// first call.
impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let now = Duration::from_millis(u64::try_from(self.clock.now.as_millis()).unwrap_or(0));
        let output = &self.output;
        let inert = || {
            WasiCtx::builder()
                .stdout(output.clone())
                .stderr(output.clone())
                .wall_clock(Frozen(now))
                .allow_tcp(false)
                .allow_udp(false)
                .allow_ip_name_lookup(false)
                .max_random_size(RANDOM)
                .build()
        };
        WasiCtxView { ctx: self.wasi.get_or_insert_with(inert), table: &mut self.table }
    }
}

/// The last bytes of the guest's output.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    /// Returns the output with each line made safe to show.
    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(|line| clean(line, TAIL)).collect::<Vec<_>>().join("\n")
    }

    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
}

impl IsTerminal for Tail {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Tail {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only interfaces of WASI 0.3 use this, and they are not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Tail {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(TAIL)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Tail {
    async fn ready(&mut self) {}
}
