//! The progress of a notification: which of its alerts the receiver took or refused.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::{AlertProgress, Failure};
use std::collections::BTreeSet;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the progress of a notification.
pub trait Progress: Send + Sync {
    /// Keeps what became of one alert. Returns when it is on disk, or after a short time.
    fn record(&self, progress: AlertProgress) -> BoxFuture<'_, ()>;
}

/// A progress that is kept in memory only.
#[derive(Debug, Default)]
pub struct Collected(Mutex<Vec<AlertProgress>>);

impl Collected {
    /// Takes what was recorded.
    pub fn take(&self) -> Vec<AlertProgress> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for Collected {
    fn record(&self, progress: AlertProgress) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        ready(()).boxed()
    }
}

/// The alerts of a notification whose outcome is not known yet, and where it is kept.
pub(crate) struct Open {
    left: BTreeSet<String>,
    kept: Arc<dyn Progress>,
}

impl Open {
    pub(crate) fn new(fingerprints: impl Iterator<Item = String>, kept: Arc<dyn Progress>) -> Self {
        Self { left: fingerprints.collect(), kept }
    }

    /// Records the outcome of an alert, once. Does nothing if the notification does not contain it.
    pub(crate) async fn record(&mut self, fingerprint: String, refused: Option<Failure>) {
        if self.left.remove(&fingerprint) {
            self.kept.record(AlertProgress { fingerprint, refused: refused.map(|failure| failure.message) }).await;
        }
    }
}
