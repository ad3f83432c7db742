//! The status pages that were made last.

use model::Timestamp;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A page is made again after this time, whatever the number of requests for it.
pub(super) const KEPT: Duration = Duration::from_secs(20);

/// The pages that were made last, by name.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pages: Mutex<HashMap<String, (Timestamp, String)>>,
}

impl Kept {
    /// Returns a page that is still valid.
    pub(super) fn get(&self, name: &str, now: Timestamp) -> Option<String> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.get(name).filter(|(at, _)| now.since(*at) < KEPT).map(|(_, page)| page.clone())
    }

    /// Keeps a page. Pages that were removed from the configuration go.
    pub(super) fn keep(&self, name: String, page: String, now: Timestamp) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|_, (at, _)| now.since(*at) < KEPT);
        pages.insert(name, (now, page));
    }
}
