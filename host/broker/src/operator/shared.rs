//! The parts of an operator that its loops and its handles share.

use super::noticed::Noticed;
use super::state::State;
use crate::bucket::mark;
use crate::connection::Connection;
use crate::seal::Keys;
use model::{KeptPlace, Timestamp};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Shared {
    /// The name of this operator.
    pub name: String,
    pub connection: Connection,
    pub keys: Keys,
    pub state: Mutex<State>,
    /// The wall clock of the host.
    pub now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    pub began: Instant,
    /// The time of that by the wall clock.
    pub began_at: Mutex<Timestamp>,
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

    /// The time of a second of the aggregator's clock by the wall clock, to the second. It is the same at each call,
    /// unless the wall clock was set.
    pub(super) fn wall(&self, second: u32) -> Timestamp {
        let found = (self.now)().before(self.began.elapsed());
        let mut began = self.began_at.lock().unwrap_or_else(PoisonError::into_inner);
        *began = settled(*began, found);
        let at = began.after(Duration::from_secs(second.into())).as_millis();
        // Events of that second are not earlier.
        Timestamp::from_millis(at.saturating_add(999).div_euclid(1000) * 1000)
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

/// The known time, unless the one that was found says that the wall clock was set. Both clocks are read one after the
/// other, so that two reads differ by a little.
fn settled(known: Timestamp, found: Timestamp) -> Timestamp {
    const APART: Duration = Duration::from_millis(500);
    if found.since(known).max(known.since(found)) > APART { found } else { known }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_one_time_until_the_clock_is_set() {
        let cases = [(10_000, 10_000), (10_499, 10_000), (9_501, 10_000), (10_501, 10_501), (9_000, 9_000)];
        for (found, expected) in cases {
            let settled = settled(Timestamp::from_millis(10_000), Timestamp::from_millis(found));
            assert_eq!(settled.as_millis(), expected, "{found}");
        }
    }
}
