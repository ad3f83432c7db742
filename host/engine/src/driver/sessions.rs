//! Ends the sessions of targets that are gone or changed, and of all when the host ends.

use super::Driver;
use crate::sessions::{self, End, LAST};
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use sandbox::Closing;
use scheduler::Change;
use std::sync::mpsc;

impl Driver {
    /// Ends the session of a target, and forgets what its plugin kept in memory. `plugins` are those that served it.
    pub(super) fn end_session(&self, target: &RuntimeTarget, end: End, plugins: &PluginSet) {
        let closing = self.taken(target, end, plugins);
        sessions::close(&self.wiring.sandbox, target, closing, None);
    }

    /// Ends the session of a target that continues with another definition, if its plugin must open another one.
    pub(super) fn end_session_before(
        &self,
        (before, after): (&RuntimeTarget, &RuntimeTarget),
        change: Option<Change>,
        plugins: &PluginSet,
    ) {
        let is_disabled = before.config.enabled && !after.config.enabled;
        if change == Some(Change::Reset) {
            self.end_session(before, End::Gone, plugins);
        } else if is_disabled || before.plugin != after.plugin {
            self.end_session(before, End::Paused, plugins);
        }
    }

    /// Ends the sessions of all targets, as far as the time suffices.
    pub(super) fn end_all_sessions(&self) {
        let (ended, wait) = mpsc::channel();
        for tracked in self.targets.values() {
            let closing = self.taken(&tracked.target, End::Paused, &self.wiring.plugins);
            sessions::close(&self.wiring.sandbox, &tracked.target, closing, Some(ended.clone()));
        }
        drop(ended);
        // Nothing is sent: the end of all senders is awaited.
        if wait.recv_timeout(LAST) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!(
                "some sessions of plugins were not ended within {LAST:?}: they end when their servers end them"
            );
        }
    }

    fn taken(&self, target: &RuntimeTarget, end: End, plugins: &PluginSet) -> Option<Closing> {
        let plugin = plugins.get(&target.config.kind).map(|served| &served.plugin);
        sessions::take(&self.wiring.sandbox, target, plugin, (end, self.wiring.clock.wall()))
    }
}
