//! What an operator can turn.

use crate::Cadence;
use crate::backoff::Backoff;
use std::time::Duration;

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Pulse's rules: backoff from 5 s, a breaker after three failures, dead letters.
    Pulse,
    /// Depsera's rules: backoff from 1 s, never below the interval; a breaker after ten failures; no dead letters.
    Depsera,
}

/// The numbers of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub backoff: Backoff,
    /// Failures in a row that open the breaker.
    pub threshold: u32,
    /// How long the breaker is open at first; each trip may lengthen it.
    pub open_for: Duration,
    /// Each trip multiplies `open_for` by two to the power of the failures in a row.
    pub open_grows: bool,
    /// Whether a failing target is ever polled less often than its interval for good.
    pub dead_letters: bool,
    /// Whether a failed poll may be tried again before the interval is over.
    pub retries_early: bool,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 2] = [Self::Pulse, Self::Depsera];

    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pulse => "pulse",
            Self::Depsera => "depsera",
        }
    }

    /// The profile that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == word)
    }

    pub(crate) const fn rules(self) -> Rules {
        match self {
            Self::Pulse => Rules {
                backoff: Backoff { first: Duration::from_secs(5), jitter: 0.2 },
                threshold: 3,
                open_for: Duration::from_secs(5),
                open_grows: true,
                dead_letters: true,
                retries_early: true,
            },
            Self::Depsera => Rules {
                backoff: Backoff { first: Duration::from_secs(1), jitter: 0.0 },
                threshold: 10,
                open_for: Duration::from_secs(300),
                open_grows: false,
                dead_letters: false,
                retries_early: false,
            },
        }
    }
}

/// The scheduler's settings. All can change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What follows a failure.
    pub profile: Profile,
    /// What follows a success, where a target says nothing else.
    pub cadence: Cadence,
    /// The base interval, where an operator set one.
    pub base: Option<Duration>,
    /// No target is polled more often.
    pub min: Duration,
    /// No healthy target is polled less often.
    pub max: Duration,
    /// Polls in flight over the whole process.
    pub max_in_flight: usize,
    /// Polls in flight for each host.
    pub max_per_host: usize,
    /// Polls started in a second over the whole process; 0 is no limit.
    pub rate_per_second: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: Profile::Pulse,
            cadence: Cadence::Adaptive,
            base: None,
            min: Duration::from_secs(5),
            max: Duration::from_secs(300),
            max_in_flight: 256,
            max_per_host: 5,
            rate_per_second: 0,
        }
    }
}
