//! The words for when a target is polled: where it is, its cadence, its breaker, its dead letter.
//!
//! [`Schedule`] is generic over its clock: the scheduler runs on [`Moment`](crate::Moment)s, files and people have
//! [`Timestamp`](crate::Timestamp)s, and [`Schedule::map_time`] converts between the two.

use crate::Cause;
use std::time::Duration;

/// Where a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Waits for its due time.
    Queued,
    /// Due, and held back by a cap over the process.
    Ready,
    /// Due, and waits for a slot of its host.
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
    /// Whether it waits for its due time, for a cap, or for its host.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Queued | Self::Ready | Self::WaitingForHost)
    }

    /// Whether it has no plugin that can poll it.
    pub const fn lacks_plugin(self) -> bool {
        matches!(self, Self::NoPlugin | Self::Quarantined)
    }

    /// The word used on every surface.
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

/// How the next interval follows from a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// Pulse's formula, scored by staleness or by the expected time of the next change; tightens at once, relaxes slowly.
    Adaptive,
    /// Pulse's formula to the letter.
    Pulse,
    /// The target's base interval.
    Fixed,
}

impl Cadence {
    /// Every cadence.
    pub const ALL: [Self; 3] = [Self::Adaptive, Self::Pulse, Self::Fixed];

    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Pulse => "pulse",
            Self::Fixed => "fixed",
        }
    }

    /// The cadence that `word` names; `None` if it names none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cadence| cadence.as_str() == word)
    }
}

/// Whether a circuit breaker admits polls. An *open* breaker refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Polls run.
    Closed,
    /// No poll runs until the breaker's time is over.
    Open,
    /// One probe is in flight and decides.
    HalfOpen,
}

impl BreakerState {
    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A target's circuit breaker. It keeps no count: the schedule's `failures` is the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker<T> {
    /// Whether polls are admitted.
    pub state: BreakerState,
    /// How long the breaker stays open at its current trip; `None` since the last success.
    pub open_for: Option<Duration>,
    /// When it entered its state; `None` if it never tripped.
    pub since: Option<T>,
}

impl<T> Breaker<T> {
    /// A closed breaker that never tripped.
    pub const CLOSED: Self = Self { state: BreakerState::Closed, open_for: None, since: None };
}

/// Why a target is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReason {
    /// A failure that only a person can end.
    Permanent,
    /// It failed for as long, or as often, as its profile allows.
    Retries,
}

impl DeadReason {
    /// Pulse's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent_failure",
            Self::Retries => "max_retry_attempts",
        }
    }

    /// The reason that `word` names; `None` if it names none.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Permanent, Self::Retries].into_iter().find(|reason| reason.as_str() == word)
    }
}

/// A target that is polled rarely until it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetter<T> {
    /// Why.
    pub reason: DeadReason,
    /// When it became a dead letter.
    pub since: T,
    /// When its last poll failed.
    pub last_attempt: T,
    /// How many times it became a dead letter since its last success.
    pub retries: u32,
}

/// Changes seen over time watched. Older observations count less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Weighted number of changes.
    pub changes: f32,
    /// Weighted seconds of watching.
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
    /// When it runs next.
    pub due: T,
    /// The last smoothed interval; `None` before the first success.
    pub interval: Option<Duration>,
    /// Failures in a row.
    pub failures: u32,
    /// When the first of them was.
    pub first_failure: Option<T>,
    /// The cause of the last of them.
    pub last_cause: Option<Cause>,
    /// Plugin faults in a row.
    pub plugin_faults: u32,
    /// Its breaker.
    pub breaker: Breaker<T>,
    /// Its dead letter, if it is one.
    pub dead: Option<DeadLetter<T>>,
    /// Whether a neighbour's success has revived it since its own last success.
    pub revived: bool,
    /// Its last success.
    pub last_success: Option<T>,
    /// When it was last polled.
    pub last_polled: Option<T>,
    /// Its last transition.
    pub last_change: Option<T>,
    /// Whether a dependency that is not skipped is critical.
    pub critical: bool,
    /// How often it was seen to change.
    pub rates: Rates,
}

impl<T> Schedule<T> {
    /// The schedule of a target that was never polled.
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

    /// The same schedule on another clock.
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

/// How often things happened since the start.
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
    /// Polls skipped because results of their target waited for the database.
    pub skipped_unwritten: u64,
    /// Polls skipped because no instance slot became free in time.
    pub skipped_no_slot: u64,
    /// Due times that were spread, because the host had slept or many targets fell due at once.
    pub spread: u64,
}
