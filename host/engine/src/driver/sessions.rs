//! Ends the sessions of plugins: of targets that are gone or changed, and of all when the host ends.

use super::Driver;
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use egress::Tape;
use sandbox::{Closing, Job, Sandbox};
use scheduler::Change;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The time for the sessions of all targets when the host ends.
const LAST: Duration = Duration::from_secs(5);

/// A session to end on a lane.
struct Work {
    sandbox: Arc<Sandbox>,
    closing: Closing,
    /// Dropped at the end.
    _ended: Option<mpsc::Sender<()>>,
}

impl Work {
    async fn run(self) {
        self.sandbox.close(self.closing).await;
    }
}

impl Driver {
    /// Ends the session of a target that is gone, and forgets what its plugin kept in memory.
    pub(super) fn end_last_session(&self, target: &RuntimeTarget, plugins: &PluginSet) {
        let sandbox = &self.wiring.sandbox;
        let closing = self.job_of(target, plugins).and_then(|job| sandbox.last_session(job));
        sandbox.forget(target.id(), &target.config.kind);
        self.close(target, closing, None);
    }

    /// Ends the session of a target that continues with another definition, if its plugin must open another one.
    pub(super) fn end_session_before(
        &self,
        (before, after): (&RuntimeTarget, &RuntimeTarget),
        change: Option<Change>,
        plugins: &PluginSet,
    ) {
        let is_paused = before.config.enabled && !after.config.enabled;
        if change == Some(Change::Reset) {
            self.end_last_session(before, plugins);
        } else if is_paused || before.plugin != after.plugin {
            let closing = self.job_of(before, plugins).and_then(|job| self.wiring.sandbox.forget_session(job));
            self.close(before, closing, None);
        }
    }

    /// Ends the sessions of all targets, as far as the time suffices.
    pub(super) fn end_all_sessions(&self) {
        let (ended, wait) = mpsc::channel();
        for tracked in self.targets.values() {
            let job = self.job_of(&tracked.target, &self.wiring.plugins);
            let closing = job.and_then(|job| self.wiring.sandbox.forget_session(job));
            self.close(&tracked.target, closing, Some(ended.clone()));
        }
        drop(ended);
        // Nothing is sent: the end of all senders is awaited.
        if wait.recv_timeout(LAST) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(
                "some sessions of plugins were not ended within {LAST:?}: they end when their servers end them"
            );
        }
    }

    fn close(&self, target: &RuntimeTarget, closing: Option<Closing>, ended: Option<mpsc::Sender<()>>) {
        let Some(closing) = closing else { return };
        let work = Work { sandbox: self.wiring.sandbox.clone(), closing, _ended: ended };
        self.wiring.sandbox.lanes().spawn_all([(target.id().clone(), work)], Work::run);
    }

    /// Returns a call of the plugin that polled a target; `None` if it is not there any more.
    fn job_of(&self, target: &RuntimeTarget, plugins: &PluginSet) -> Option<Job> {
        let served = plugins.get(&target.config.kind)?;
        let is_same = target.plugin == Some(served.plugin.digest());
        is_same.then(|| target.job(&served.plugin, self.wiring.clock.wall(), Tape::Off))
    }
}
