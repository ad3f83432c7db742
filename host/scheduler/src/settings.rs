//! What an operator can turn.

use crate::backoff::Backoff;
use model::{Cadence, DeadReason};
use std::time::Duration;

/// Pulse's longest interval.
pub(crate) const PULSE_MAX: Duration = Duration::from_secs(300);
/// How long Pulse leaves a dead letter alone.
const PULSE_LOOK: Duration = Duration::from_secs(30 * 60);
/// Transient failures in a row that make a dead letter of Pulse's.
const PULSE_FAILURES: u32 = 5;
/// `standard` looks at a failing target at least this often.
const STANDARD_CAP: Duration = Duration::from_secs(60);
/// What fails for so long is a dead letter in `standard`.
const STANDARD_PATIENCE: Duration = Duration::from_secs(3600);
/// How much probes are spread, as a fraction.
const PROBE_SPREAD: f64 = 0.1;

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// For people who wait for a recovery to be seen: backoff from 5 s, then a look at least every minute (or every interval,
    /// where that is longer), and every five minutes at what has failed for long.
    Standard,
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
    /// Backoff is never longer.
    pub cap: Duration,
    /// Probes and looks at dead letters come up to this fraction later, or earlier where it is negative, so that those who
    /// failed together are not tried together.
    pub probe_spread: f64,
    /// Whether a failed poll may be tried again before the interval is over.
    pub retries_early: bool,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Pulse, Self::Depsera];

    /// The word used on every surface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Pulse => "pulse",
            Self::Depsera => "depsera",
        }
    }

    /// The profile that `word` names.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == word)
    }

    /// The numbers for a target that is polled every `interval` while it answers.
    pub(crate) fn rules(self, interval: Duration) -> Rules {
        match self {
            Self::Standard => {
                let cap = interval.max(STANDARD_CAP);
                Rules {
                    backoff: Backoff { first: Duration::from_secs(5), jitter: 0.2 },
                    threshold: 3,
                    open_for: cap,
                    open_grows: false,
                    cap,
                    probe_spread: -PROBE_SPREAD,
                    retries_early: true,
                }
            }
            Self::Pulse => Rules {
                backoff: Backoff { first: Duration::from_secs(5), jitter: 0.2 },
                threshold: 3,
                open_for: Duration::from_secs(5),
                open_grows: true,
                cap: Duration::MAX,
                probe_spread: PROBE_SPREAD,
                retries_early: true,
            },
            Self::Depsera => Rules {
                backoff: Backoff { first: Duration::from_secs(1), jitter: 0.0 },
                threshold: 10,
                open_for: Duration::from_secs(300),
                open_grows: false,
                cap: Duration::MAX,
                probe_spread: PROBE_SPREAD,
                retries_early: false,
            },
        }
    }
}

impl Profile {
    /// Whether there are dead letters at all.
    pub(crate) fn has_dead_letters(self) -> bool {
        self != Self::Depsera
    }

    /// Whether a target is a dead letter after the `failures`-th failure in a row, the first of which was so long ago;
    /// `permanent` if the failure will not go away by itself.
    pub(crate) fn dead_letter(self, permanent: bool, failures: u32, failing_for: Duration) -> Option<DeadReason> {
        match self {
            Self::Pulse if permanent => Some(DeadReason::Permanent),
            Self::Pulse => (failures >= PULSE_FAILURES).then_some(DeadReason::Retries),
            Self::Standard if permanent && failures >= 3 && failing_for >= STANDARD_CAP => Some(DeadReason::Permanent),
            Self::Standard => (failing_for >= STANDARD_PATIENCE).then_some(DeadReason::Retries),
            Self::Depsera => None,
        }
    }

    /// How often a dead letter is looked at that would be polled every `interval` if it answered.
    pub(crate) fn dead_letter_look(self, settings: &Settings, interval: Duration) -> Duration {
        if self == Self::Pulse { PULSE_LOOK } else { settings.dead_letter_interval.max(interval) }
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
    /// No healthy target is polled less often, where an operator set this. Where nobody did, every healthy target is polled
    /// at its base interval at least, and `pulse` goes to five minutes.
    pub max: Option<Duration>,
    /// How often `standard` looks at a dead letter, at least.
    pub dead_letter_interval: Duration,
    /// Polls in flight over the whole process.
    pub max_in_flight: usize,
    /// Polls in flight for each host.
    pub max_per_host: usize,
    /// Polls started in a second over the whole process; 0 is no limit.
    pub rate_per_second: u32,
}

impl Settings {
    /// The longest interval of a healthy target; none where that is its own.
    pub fn longest(&self) -> Option<Duration> {
        self.max.or((self.cadence == Cadence::Pulse).then_some(PULSE_MAX))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: Profile::Standard,
            cadence: Cadence::Adaptive,
            base: None,
            min: Duration::from_secs(5),
            max: None,
            dead_letter_interval: Duration::from_secs(300),
            max_in_flight: 256,
            max_per_host: 5,
            rate_per_second: 0,
        }
    }
}
