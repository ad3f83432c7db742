//! The latest changes of a deployment, and the errors of devices that fail now.

use model::{Phase, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The maximum number of latest changes that a deployment keeps.
const RECENT: usize = 10;
/// The maximum number of errors that are kept, about 2 MB. If more devices fail at once, only the latest error of a
/// deployment is known.
const ERRORS: usize = 16_384;

/// A change of a phase, with the device as a number.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub at: Timestamp,
    pub device: u32,
    pub phase: Phase,
    pub error: Option<Arc<str>>,
}

/// The errors of all records that say that a deployment failed, by deployment and device. Also those of records that do
/// not count: they may later.
#[derive(Default)]
pub(super) struct Errors(BTreeMap<(u32, u32), Change>);

impl Errors {
    /// Takes over what a device reports of a deployment.
    pub(super) fn set(&mut self, deployment: u32, change: &Change) {
        let key = (deployment, change.device);
        if change.phase != Phase::Failed {
            self.0.remove(&key);
        } else if self.0.len() < ERRORS || self.0.contains_key(&key) {
            self.0.insert(key, change.clone());
        }
    }

    /// Forgets the error of a record that is void.
    pub(super) fn forget(&mut self, deployment: u32, device: u32) {
        self.0.remove(&(deployment, device));
    }

    /// The errors of a deployment.
    pub(super) fn of(&self, deployment: u32) -> impl Iterator<Item = &Change> {
        self.0.range((deployment, 0)..=(deployment, u32::MAX)).map(|(_, change)| change)
    }
}

/// The latest changes of a deployment.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last_error: Option<Change>,
    /// Oldest first.
    recent: VecDeque<Change>,
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

    pub(super) fn last_error(&self) -> Option<&Change> {
        self.last_error.as_ref()
    }

    pub(super) fn recent(&self) -> impl Iterator<Item = &Change> {
        self.recent.iter().rev()
    }
}
