//! Datastores that are left alone for a while: each question to a disk that hangs holds one of the server's threads until it is
//! restarted.

use crate::PollContext;
use proxmox::Error;
use std::time::Duration;

/// For so long.
const HELD: Duration = Duration::from_secs(60 * 60);

/// Leaves a datastore alone that did not answer in time; or only its snapshots, which take longer than all else.
pub(crate) fn back(context: &mut PollContext, what: &str, error: &Error) {
    if error.no_answer {
        let now = context.milliseconds();
        context.memory.plugin.backing_off.set(what, error.message.clone(), now, HELD);
    }
}

/// A datastore's snapshots, for [`back`] and [`why`].
pub(crate) fn snapshots(store: &str) -> String {
    format!("snapshots of {store}")
}

/// Why it is left alone, where it is.
pub(crate) fn why(context: &PollContext, what: &str) -> Option<String> {
    context.memory.plugin.backing_off.get(what, context.milliseconds()).cloned()
}
