//! The parts of an operator that its loops and its handles share.

use super::noticed::Noticed;
use super::state::State;
use crate::bucket::mark;
use crate::connection::Connection;
use crate::seal::Keys;
use model::KeptPlace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Shared {
    /// The name of this operator.
    pub name: String,
    pub connection: Connection,
    pub keys: Keys,
    pub state: Mutex<State>,
    pub began: Instant,
    /// How far each stream has been read.
    pub places: Mutex<Vec<KeptPlace>>,
    /// Notified after a change of the deployments, or of the offered plugins.
    pub defined: Notify,
    /// Notified after either too, for the loop that stores plugins.
    pub offered: Notify,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seconds(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn places(&self) -> MutexGuard<'_, Vec<KeptPlace>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of this operator's mark in a stream, and how far it has read that.
    pub(super) fn place(&self, stream: &str) -> Option<(String, KeptPlace)> {
        let place = self.places().iter().find(|place| place.stream == stream).cloned();
        place.map(|place| (mark(&self.name), place))
    }

    pub(super) fn keep_place(&self, read: &Noticed) {
        if let Noticed::Read(_, Some(place)) = read {
            let mut places = self.places();
            places.retain(|known| known.stream != place.stream);
            places.push(place.clone());
        }
    }
}
