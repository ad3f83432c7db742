//! Wall clock and randomness. The one module that reads either.

use model::{Moment, Timestamp};
use rand::TryRngCore;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The process's clock: monotonic moments since it was made, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that begins now.
    #[allow(clippy::disallowed_methods, reason = "this is where time enters")]
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Now, on the monotonic clock.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }

    /// Now, on the wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        wall()
    }
}

/// Now, on the wall clock.
#[allow(clippy::disallowed_methods, reason = "this is where time enters")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Now, in seconds since 1970.
pub(crate) fn seconds() -> i64 {
    wall().as_millis() / 1000
}

/// Unpredictable bytes from the operating system.
///
/// # Panics
/// When the operating system has none to give: nothing that follows could be trusted.
#[allow(clippy::disallowed_types, reason = "this is where chance enters")]
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
