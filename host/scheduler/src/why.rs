//! Why a target is due when it is: recorded where the decision is made, worded in `explain`.

use crate::Profile;
use crate::cadence::Computed;
use model::{Ask, DeadReason, Moment, TargetId};
use std::time::Duration;

/// What set a target's due time last.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// It was taken up at a start, as it was.
    Restored,
    /// It became known while the host ran.
    Added,
    /// It is another target than before, or its settings are others.
    Changed,
    /// The profile has no dead letters any more.
    Profile(Profile),
    /// It was enabled.
    Enabled,
    /// An operator asked.
    Asked(Ask),
    /// It fell due together with others, and they are spread.
    Spread {
        was: Moment,
        delay: Duration,
    },
    Succeeded {
        computed: Computed,
        after: Duration,
        since: Moment,
    },
    /// The settings or its own interval changed.
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
    /// Its last poll never got an instance slot.
    NoSlot {
        delay: Duration,
    },
    /// Its results wait for the database.
    Unwritten {
        results: u8,
        delay: Duration,
    },
    /// Its plugin is in quarantine, and is tried with this target.
    QuarantineProbe,
    /// Another target of its origin answered.
    Revived {
        neighbour: TargetId,
    },
}

/// How the delay after a failure came about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub profile: Profile,
    pub backoff: Duration,
    pub floor: Option<Duration>,
    pub open_for: Option<Duration>,
    pub dead: Option<DeadReason>,
    /// How often a dead letter is looked at.
    pub look: Duration,
    pub retry_after: Option<Duration>,
    pub delay: Duration,
}
