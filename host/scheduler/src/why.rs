//! The reason for a target's due time: recorded where the decision is made, worded in `explain`.

use crate::Profile;
use crate::cadence::Computed;
use model::{Ask, DeadReason, Moment, TargetId};
use std::time::Duration;

/// The event that last set a target's due time.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// The due time was restored at the start of the host.
    Restored,
    /// The target was added while the host was running.
    Added,
    /// The target's definition or settings changed.
    Changed,
    /// The profile or the dead-letter interval changed.
    Profile(Profile),
    /// The target was enabled.
    Enabled,
    /// An operator requested it.
    Asked(Ask),
    /// The target was due together with others, so their polls were spread.
    Spread {
        was: Moment,
        delay: Duration,
    },
    Succeeded {
        computed: Computed,
        after: Duration,
        /// The moment from which `after` counts.
        since: Moment,
        /// The plugin's wish, if it was followed.
        wish: Option<Duration>,
    },
    /// The interval was computed again because the settings or the target's own interval changed.
    Recomputed {
        computed: Computed,
        after: Duration,
    },
    Failed(Failed),
    PluginFault {
        backoff: Duration,
        probe: Option<Duration>,
        dead: Option<Duration>,
        delay: Duration,
    },
    /// The last poll got no instance slot.
    NoSlot {
        delay: Duration,
    },
    /// The target has too many results that are not written to the database.
    Unwritten {
        results: u8,
        delay: Duration,
    },
    /// The target was chosen as the probe of its quarantined plugin.
    QuarantineProbe,
    /// Another target of the same origin answered.
    Revived {
        neighbour: TargetId,
    },
}

/// The terms of the delay after a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub profile: Profile,
    pub backoff: Duration,
    pub floor: Option<Duration>,
    pub open_for: Option<Duration>,
    pub dead: Option<DeadReason>,
    /// The interval at which a dead letter is polled.
    pub dead_letter_interval: Duration,
    pub retry_after: Option<Duration>,
    pub delay: Duration,
}
