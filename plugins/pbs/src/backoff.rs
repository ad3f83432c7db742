//! Datastores that are not polled for a while because they did not answer in time. Each request to a disk that hangs
//! blocks a thread of the server until the server restarts.

use crate::context::PollContext;
use proxmox::Error;
use std::time::Duration;

/// How long a datastore is not asked.
const BACKOFF: Duration = Duration::from_secs(60 * 60);

/// Stops asking a datastore that did not answer in time, or only for its snapshots, which take longest.
pub(crate) fn back_off(context: &mut PollContext, what: &str, error: &Error) {
    if error.no_answer {
        let now = context.milliseconds();
        context.memory.plugin.backing_off.set(what, error.message.clone(), now, BACKOFF);
    }
}

/// The name of a datastore's snapshots, for [`back_off`] and [`reason`].
pub(crate) fn snapshots(store: &str) -> String {
    format!("snapshots of {store}")
}

/// The reason why a datastore is not asked; `None` if it may be asked.
pub(crate) fn reason(context: &PollContext, what: &str) -> Option<String> {
    context.memory.plugin.backing_off.get(what, context.milliseconds()).cloned()
}
