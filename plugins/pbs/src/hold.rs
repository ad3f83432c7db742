//! Datastores that are left alone for a while: each question to a disk that hangs holds one of the server's threads until it is
//! restarted.

use crate::Look;
use proxmox::Trouble;
use std::time::Duration;

/// For so long.
const HELD: Duration = Duration::from_secs(60 * 60);

/// Leaves a datastore alone that did not answer in time; or only its snapshots, which take longer than all else.
pub(crate) fn back(look: &mut Look, what: &str, trouble: &Trouble) {
    if trouble.silent {
        let now = look.milliseconds();
        look.memory.plugin.backing_off.set(what, trouble.sentence.clone(), now, HELD);
    }
}

/// A datastore's snapshots, for [`back`] and [`why`].
pub(crate) fn snapshots(store: &str) -> String {
    format!("snapshots of {store}")
}

/// Why it is left alone, where it is.
pub(crate) fn why(look: &Look, what: &str) -> Option<String> {
    look.memory.plugin.backing_off.get(what, look.milliseconds()).cloned()
}
