//! The schedule of a target: place, cadence, breaker and dead letter.
//!
//! [`Schedule`] is generic over its clock: the scheduler uses [`Moment`](crate::Moment)s, files and users
//! [`Timestamp`](crate::Timestamp)s, and [`Schedule::map_time`] converts between the two.

use crate::Cause;
use std::time::Duration;

/// The place of a target in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Waiting for its due time.
    Queued,
    /// Due, and held back by a process-wide cap.
    Ready,
    /// Due, and waiting for a slot of its host.
    WaitingForHost,
    /// Being polled.
    InFlight,
    /// Not polled: disabled by an operator.
    Disabled,
    /// Not polled: no plugin serves its kind.
    NoPlugin,
    /// Not polled: its plugin failed too often, and is probed with another target.
    Quarantined,
}

impl Place {
    /// All places.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Ready,
        Self::WaitingForHost,
        Self::InFlight,
        Self::Disabled,
        Self::NoPlugin,
        Self::Quarantined,
    ];

    /// Returns true if the target waits for its due time, a cap, or its host.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Queued | Self::Ready | Self::WaitingForHost)
    }

    /// Returns true if no plugin can poll the target.
    pub const fn lacks_plugin(self) -> bool {
        matches!(self, Self::NoPlugin | Self::Quarantined)
    }

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Ready => "ready",
            Self::WaitingForHost => "waiting_for_host",
            Self::InFlight => "in_flight",
            Self::Disabled => "disabled",
            Self::NoPlugin => "no_plugin",
            Self::Quarantined => "quarantined",
        }
    }
}

/// The rule for the interval after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// Pulse's formula, scored by staleness or by the expected time of the next change; it shortens at once and
    /// lengthens slowly.
    Adaptive,
    /// Pulse's formula, unchanged.
    Pulse,
    /// The target's base interval.
    Fixed,
}

impl Cadence {
    /// All cadences.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Pulse, Self::Fixed];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Pulse => "pulse",
            Self::Fixed => "fixed",
        }
    }

    /// Returns the cadence with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cadence| cadence.as_str() == word)
    }
}

/// The state of a circuit breaker. An *open* breaker refuses polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Polls run.
    Closed,
    /// No poll runs until the breaker's time is over.
    Open,
    /// One probe is in flight; its outcome closes or opens the breaker.
    HalfOpen,
}

impl BreakerState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// Returns the name used in API, metrics and user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A target's circuit breaker. The schedule's `failures` counts the failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker<T> {
    /// The state.
    pub state: BreakerState,
    /// How long the breaker stays open each time; `None` if it has not opened since the last success.
    pub open_for: Option<Duration>,
    /// When the breaker entered its state; `None` if it never opened.
    pub since: Option<T>,
}

impl<T> Breaker<T> {
    /// A closed breaker that never opened.
    pub const CLOSED: Self = Self { state: BreakerState::Closed, open_for: None, since: None };
}

/// Why a target is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReason {
    /// A permanent failure.
    Permanent,
    /// The target failed for as long, or as often, as the profile allows.
    Retries,
}

impl DeadReason {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::Permanent, Self::Retries];

    /// Returns the name that Pulse uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent_failure",
            Self::Retries => "max_retry_attempts",
        }
    }

    /// Returns the reason with the name `word`; `None` if the name is unknown.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// A target that is polled rarely until it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetter<T> {
    /// The reason.
    pub reason: DeadReason,
    /// When the target became a dead letter.
    pub since: T,
    /// When the last poll failed.
    pub last_attempt: T,
    /// The number of failed polls as a dead letter, including the poll that made the target one.
    pub retries: u32,
}

/// Observed changes and observed time. Older observations count less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Weighted number of changes.
    pub changes: f32,
    /// Weighted seconds of observation.
    pub seconds: f32,
}

/// How often a target changes, in either of its two states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// While no dependency was critical.
    pub quiet: Rate,
    /// While a dependency was critical.
    pub trouble: Rate,
}

/// The part of a target's schedule that survives a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule<T> {
    /// When the target is polled next.
    pub due: T,
    /// The last smoothed interval; `None` before the first success.
    pub interval: Option<Duration>,
    /// Consecutive failures.
    pub failures: u32,
    /// The time of the first of these failures.
    pub first_failure: Option<T>,
    /// The cause of the last of these failures.
    pub last_cause: Option<Cause>,
    /// Consecutive plugin faults.
    pub plugin_faults: u32,
    /// The circuit breaker.
    pub breaker: Breaker<T>,
    /// The dead letter; `None` if the target is not one.
    pub dead: Option<DeadLetter<T>>,
    /// Whether a success of the same origin has revived the target since its own last success.
    pub revived: bool,
    /// The time of the last success.
    pub last_success: Option<T>,
    /// The end of the last poll.
    pub last_polled: Option<T>,
    /// The time of the last transition.
    pub last_change: Option<T>,
    /// Whether a dependency that is not skipped is critical.
    pub critical: bool,
    /// The observed rates of change.
    pub rates: Rates,
}

impl<T> Schedule<T> {
    /// Creates the schedule of a target that was never polled.
    pub fn new(due: T) -> Self {
        Self {
            due,
            interval: None,
            failures: 0,
            first_failure: None,
            last_cause: None,
            plugin_faults: 0,
            breaker: Breaker::CLOSED,
            dead: None,
            revived: false,
            last_success: None,
            last_polled: None,
            last_change: None,
            critical: false,
            rates: Rates::default(),
        }
    }

    /// Converts the schedule to another clock.
    pub fn map_time<U>(self, at: impl Fn(T) -> U) -> Schedule<U> {
        Schedule {
            due: at(self.due),
            interval: self.interval,
            failures: self.failures,
            first_failure: self.first_failure.map(&at),
            last_cause: self.last_cause,
            plugin_faults: self.plugin_faults,
            breaker: Breaker {
                state: self.breaker.state,
                open_for: self.breaker.open_for,
                since: self.breaker.since.map(&at),
            },
            dead: self.dead.map(|dead| DeadLetter {
                reason: dead.reason,
                since: at(dead.since),
                last_attempt: at(dead.last_attempt),
                retries: dead.retries,
            }),
            revived: self.revived,
            last_success: self.last_success.map(&at),
            last_polled: self.last_polled.map(&at),
            last_change: self.last_change.map(&at),
            critical: self.critical,
            rates: self.rates,
        }
    }
}

/// Counters since the start of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Polls started.
    pub started: u64,
    /// Polls that ended with a report.
    pub succeeded: u64,
    /// Polls that ended with a failure.
    pub failed: u64,
    /// Polls held back because too many were in flight.
    pub held_in_flight: u64,
    /// Polls held back by the token bucket.
    pub held_by_rate: u64,
    /// Polls that waited for a slot of their host.
    pub held_by_hosts: u64,
    /// Polls skipped because the target had too many unwritten results.
    pub skipped_unwritten: u64,
    /// Polls skipped because no instance slot became free in time.
    pub skipped_no_slot: u64,
    /// Due times that were spread, because the machine slept or many targets were due at once.
    pub spread: u64,
}
