//! Ends the sessions that plugins opened for targets and channels.

use crate::target::RuntimeTarget;
use egress::Tape;
use model::Timestamp;
use sandbox::{Closing, Plugin, Sandbox};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The time for all sessions of targets, and for all of channels, when the host ends.
pub(crate) const LAST: Duration = Duration::from_secs(5);

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The target or channel is gone, or has another server or other secrets.
    Gone,
    /// It is not called for a while, or by another version of its plugin. Values that survive a restart stay.
    Paused,
}

/// Takes a session from the sandbox, with what is not kept. `plugin` is the one that serves its kind. Returns what is
/// to be closed.
pub(crate) fn take(
    sandbox: &Sandbox,
    target: &RuntimeTarget,
    plugin: Option<&Plugin>,
    (end, now): (End, Timestamp),
) -> Option<Closing> {
    let opened = plugin.filter(|plugin| target.plugin == Some(plugin.digest()));
    let job = opened.map(|plugin| target.job(plugin, now, Tape::Off));
    match end {
        End::Gone => {
            let closing = job.and_then(|job| sandbox.last_session(job));
            sandbox.forget(target.id(), &target.config.kind);
            closing
        }
        End::Paused => job.and_then(|job| sandbox.forget_session(job)),
    }
}

/// A session to close on a lane.
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

/// Closes a session on the lane of its target or channel. `ended` is dropped after that.
pub(crate) fn close(
    sandbox: &Arc<Sandbox>,
    target: &RuntimeTarget,
    closing: Option<Closing>,
    ended: Option<mpsc::Sender<()>>,
) {
    let Some(closing) = closing else { return };
    let work = Work { sandbox: sandbox.clone(), closing, _ended: ended };
    sandbox.lanes().spawn_all([(target.id().clone(), work)], Work::run);
}
