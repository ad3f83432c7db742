//! Ends the sessions of plugins, for example logs out.

use crate::cache::Owner;
use crate::host::State;
use crate::limits::Limits;
use crate::run::{Done, Job, Prepared, Sandbox};
use egress::{Captured, OriginGrant, Tape};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use model::{Kind, TargetId};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use wasmtime::Store;

/// The time of a call.
const TIME: Duration = Duration::from_secs(2);
/// Maximum number of requests of a call.
const REQUESTS: u32 = 8;
/// The longest wait for calls that use the session that ends. A poll has a shorter timeout by default.
const PATIENCE: Duration = Duration::from_secs(60);

/// A session to end.
pub struct Closing {
    job: Job,
    captured: Arc<Captured>,
    /// Whether the secrets end too that survive a restart.
    is_last: bool,
}

impl Sandbox {
    /// Returns the session of a target that is gone, to be ended with [`Self::close`]. The job is one of its polls.
    /// [`Self::forget`] comes after this. `None` if the plugin does not end sessions.
    pub fn last_session(&self, job: Job) -> Option<Closing> {
        if !job.plugin.has_session() {
            return None;
        }
        let owner = Owner { target: job.target.id.clone(), plugin: job.plugin.digest() };
        let captured = self.captured.of(&owner, (&job.plugin.descriptor().kind, &job.grant), job.now);
        Some(Closing { job, captured, is_last: true })
    }

    /// Removes the stored values and captured secrets of a target or channel.
    pub fn forget(&self, target: &TargetId, kind: &Kind) {
        self.caller.cache.forget(target);
        self.captured.forget(target, kind);
    }

    /// Removes the remains of a poll of an earlier definition. `origins` are those of the present one; `None` if the
    /// target is gone.
    pub fn forget_earlier(&self, target: &TargetId, kind: &Kind, origins: Option<&[OriginGrant]>) {
        match origins {
            Some(origins) => {
                self.caller.cache.forget(target);
                self.captured.forget_others(target, kind, origins);
            }
            None => self.forget(target, kind),
        }
    }

    /// Removes the captured secrets of a target, except those that survive a restart. Returns its session, to be ended
    /// with [`Self::close`]. `None` if there is nothing to end.
    pub fn forget_session(&self, job: Job) -> Option<Closing> {
        let owner = Owner { target: job.target.id.clone(), plugin: job.plugin.digest() };
        let captured = self.captured.take(&owner)?;
        job.plugin.has_session().then_some(Closing { job, captured, is_last: false })
    }

    /// Runs one poll without the captured secrets of its target, and ends its session: a test with another password
    /// must log in.
    pub fn poll_apart(&self, job: Job) -> BoxFuture<'_, Done> {
        let started = Instant::now();
        let polled = async move {
            let captured = Arc::<Captured>::default();
            let done = self.poll_from(started, job.clone(), Some(captured.clone())).await;
            if job.plugin.has_session() {
                self.close(Closing { job: Job { tape: Tape::Off, ..job }, captured, is_last: true }).await;
            }
            done
        };
        AssertUnwindSafe(polled).catch_unwind().unwrap_or_else(move |_| Done::of_panic(started)).boxed()
    }

    /// Ends a session after the calls that use it. Errors are logged.
    pub fn close(&self, closing: Closing) -> BoxFuture<'_, ()> {
        let id = closing.job.target.id.clone();
        let ended = AssertUnwindSafe(self.close_from(closing)).catch_unwind();
        let logged = ended.map(move |ended| match ended {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(target_id = id.as_str(), "its session was not ended: {why}"),
            Err(_) => tracing::error!(target_id = id.as_str(), "ending its session failed in the host: report this"),
        });
        logged.boxed()
    }

    async fn close_from(&self, Closing { job, captured, is_last }: Closing) -> Result<(), String> {
        // A call that takes longer may open another session, which ends when the server ends it.
        let _ = timeout(PATIENCE, captured.unused()).await;
        let captured = if is_last { captured } else { Arc::new(captured.passing()) };
        let exports = self.exports(&job.plugin).await.map_err(|fault| fault.message)?;
        let deadline = Instant::now() + TIME;
        let slot = timeout_at(deadline, self.slot()).await.map_err(|_| "no slot was free".to_owned())?;
        let limits = Limits { requests: job.limits.requests.min(REQUESTS), ..job.limits };
        let job = Job { limits, timeout: TIME, ..job };
        let Prepared { call, wire_target, .. } = self.with_captured(job, Some(captured), (deadline, slot));
        let enter = move |mut store: Store<State>| async move {
            let closed = async {
                let Some(session) = &exports.session else { return Ok(()) };
                let instance = exports.pre.instantiate_async(&mut store).await?;
                session.load(&mut store, &instance)?.call_close(&mut store, &wire_target).await
            };
            (closed.await, store)
        };
        self.caller.call(call, enter).await.result.map_err(|fault| fault.message)
    }
}
