//! Datastores that are left alone for a while: each question to a disk that hangs holds one of the server's threads until it is
//! restarted.

use proxmox::{Trouble, remember, remembered};
use std::time::Duration;

/// For so long.
const HELD: Duration = Duration::from_secs(60 * 60);

/// Leaves a datastore alone that did not answer in time.
pub(crate) fn back(store: &str, trouble: &Trouble) {
    if trouble.silent {
        remember(&key(store), &trouble.sentence, HELD);
    }
}

/// Why a datastore is left alone, where it is.
pub(crate) fn why(store: &str) -> Option<String> {
    remembered(&key(store))
}

fn key(store: &str) -> String {
    format!("held/{store}")
}
