//! The latest changes of a deployment, and the errors of devices that fail now.

use model::{Phase, Timestamp};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The maximum number of latest changes that a deployment keeps.
const RECENT: usize = 10;
/// The maximum number of failing devices of a deployment whose errors are shown.
const FAILING: usize = 10;
/// The maximum number of errors that are kept. There are more only if most of a large fleet fails, and then ten of each
/// deployment say as much.
const ERRORS: usize = 100_000;

/// A change of a phase, with the device as a number.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub at: Timestamp,
    pub device: u32,
    pub phase: Phase,
    pub error: Option<Arc<str>>,
}

/// The errors of all records that say that a deployment failed, also of those that do not count: they may later.
#[derive(Default)]
pub(super) struct Errors(HashMap<(u32, u32), Change>);

impl Errors {
    /// Takes over what a device reports of a deployment.
    pub(super) fn set(&mut self, key: (u32, u32), change: &Change) {
        let is_known = self.0.contains_key(&key);
        if change.phase != Phase::Failed {
            if is_known {
                self.0.remove(&key);
            }
        } else if is_known || self.0.len() < ERRORS {
            self.0.insert(key, change.clone());
        }
    }

    /// Forgets the error of a record that is void.
    pub(super) fn forget(&mut self, key: (u32, u32)) {
        self.0.remove(&key);
    }

    pub(super) fn get(&self, key: (u32, u32)) -> Option<&Change> {
        self.0.get(&key)
    }
}

/// The latest changes of a deployment.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last_error: Option<Change>,
    /// Oldest first.
    recent: VecDeque<Change>,
    /// Some of the devices that count as failed.
    failing: Vec<u32>,
}

impl Changes {
    /// Adds a change.
    pub(super) fn note(&mut self, change: Change) {
        let is_latest = self.last_error.as_ref().is_none_or(|last| last.at <= change.at);
        if change.error.is_some() && is_latest {
            self.last_error = Some(change.clone());
        }
        // Most changes are the latest.
        let is_last = self.recent.back().is_none_or(|other| other.at <= change.at);
        let place =
            if is_last { self.recent.len() } else { self.recent.partition_point(|other| other.at <= change.at) };
        if self.recent.len() < RECENT {
            self.recent.reserve_exact(1);
            self.recent.insert(place, change);
        } else if place > 0 {
            self.recent.pop_front();
            self.recent.insert(place - 1, change);
        }
    }

    /// Notes that a device counts as failed, or no longer.
    pub(super) fn count_failed(&mut self, device: u32, is_failed: bool) {
        if !is_failed {
            self.failing.retain(|failing| *failing != device);
        } else if self.failing.len() < FAILING {
            self.failing.push(device);
        }
    }

    pub(super) fn last_error(&self) -> Option<&Change> {
        self.last_error.as_ref()
    }

    pub(super) fn recent(&self) -> impl Iterator<Item = &Change> {
        self.recent.iter().rev()
    }

    pub(super) fn failing(&self) -> impl Iterator<Item = u32> {
        self.failing.iter().copied()
    }
}
