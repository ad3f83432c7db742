//! How the requests of one poll ended, and what they waited for.

use crate::message::{Response, Timing};
use crate::{Error, Seen};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// How the requests of one poll ended so far.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Whether a request failed because this host lacked a resource.
    starved: AtomicBool,
    /// Whether a request timed out while it waited for a resource of this host.
    held_up: AtomicBool,
    /// Whether a request timed out after it was sent, because the server did not answer.
    hung: AtomicBool,
    /// The bits of [`Seen`].
    seen: AtomicU32,
    /// The sums over all answers.
    timing: Mutex<Timing>,
}

impl Ended {
    /// Counts the end of a request.
    pub(crate) fn note(&self, result: &Result<Response, Error>) {
        self.seen.fetch_or(Seen::of(result).bits(), Ordering::Relaxed);
        match result {
            Ok(response) => self.timing.lock().unwrap_or_else(PoisonError::into_inner).add(&response.timing),
            Err(error) if error.is_ours() => self.starved.store(true, Ordering::Relaxed),
            Err(_) => {}
        }
    }

    /// Counts a timeout: of a request that waited for a resource of this host, or for the server.
    pub(crate) fn timed_out(&self, is_held_up: bool) {
        let cause = if is_held_up { &self.held_up } else { &self.hung };
        cause.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    pub(crate) fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.hung.load(Ordering::Relaxed)
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen::from_bits(self.seen.load(Ordering::Relaxed))
    }

    pub(crate) fn timing(&self) -> Timing {
        *self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
