//! Datastores that are left alone for a while: each question to a disk that hangs holds one of the server's threads until it is
//! restarted.

use proxmox::{Trouble, remember, remembered};
use std::time::Duration;

/// For so long.
const HELD: Duration = Duration::from_secs(60 * 60);

/// Leaves a datastore alone that did not answer in time; or only its snapshots, which take longer than all else.
pub(crate) fn back(what: &str, trouble: &Trouble) {
    if trouble.silent {
        remember(&key(what), &trouble.sentence, HELD);
    }
}

/// A datastore's snapshots, for [`back`] and [`why`].
pub(crate) fn snapshots(store: &str) -> String {
    format!("snapshots of {store}")
}

/// Why it is left alone, where it is.
pub(crate) fn why(what: &str) -> Option<String> {
    remembered(&key(what))
}

fn key(what: &str) -> String {
    format!("held/{what}")
}
