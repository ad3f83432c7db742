//! The scheduler's settings and the rules of each failure profile.

use crate::backoff::Backoff;
use model::{Cadence, DeadReason};
use std::time::Duration;

/// The longest interval of the `pulse` cadence.
pub(crate) const PULSE_MAX: Duration = Duration::from_secs(300);
/// The interval at which the profile `pulse` polls a dead letter.
const PULSE_DEAD_LETTER_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// Consecutive failures after which the profile `pulse` makes a target a dead letter.
const PULSE_FAILURES: u32 = 5;
/// The profile `standard` polls a failing target at least this often.
const STANDARD_CAP: Duration = Duration::from_secs(60);
/// The profile `standard` makes a target a dead letter when it has failed for this time.
const STANDARD_PATIENCE: Duration = Duration::from_secs(3600);
/// Probes are spread by this fraction of their delay.
const PROBE_SPREAD: f64 = 0.1;

/// The rules for delays after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Detects recoveries soon: backoff from 5 s, then a poll at least every minute (or every interval, if that is
    /// longer), and every five minutes for a target that has failed for long.
    Standard,
    /// The rules of Pulse: backoff from 5 s, a breaker after three failures, dead letters.
    Pulse,
    /// The rules of Depsera: backoff from 1 s, never below the interval; a breaker after ten failures; no dead letters.
    Depsera,
}

/// The parameters of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub backoff: Backoff,
    /// Consecutive failures that open the breaker.
    pub threshold: u32,
    /// How long the breaker stays open the first time.
    pub open_for: Duration,
    /// Each time that the breaker opens, `open_for` is multiplied by two to the power of the consecutive failures.
    pub open_grows: bool,
    /// Upper bound on the backoff.
    pub cap: Duration,
    /// Probes and polls of dead letters run up to this fraction later, or earlier if it is negative, so that targets
    /// that failed together are not polled together.
    pub probe_spread: f64,
    /// Whether a failed target may be polled again before its interval is over.
    pub retries_early: bool,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Pulse, Self::Depsera];

    /// Returns the name used in the configuration, the API and the user interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Pulse => "pulse",
            Self::Depsera => "depsera",
        }
    }

    /// Returns the profile with the name `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == word)
    }

    /// Returns the parameters for a target that is polled every `interval` while it answers.
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
    /// Returns true if the profile has dead letters.
    pub(crate) fn has_dead_letters(self) -> bool {
        self != Self::Depsera
    }

    /// Returns the reason if a target becomes a dead letter with its `failures`-th consecutive failure. `failing_for`
    /// is the time since the first of them; `permanent` if the failure persists until someone corrects the cause.
    pub(crate) fn dead_letter(self, permanent: bool, failures: u32, failing_for: Duration) -> Option<DeadReason> {
        match self {
            Self::Pulse if permanent => Some(DeadReason::Permanent),
            Self::Pulse => (failures >= PULSE_FAILURES).then_some(DeadReason::Retries),
            Self::Standard if permanent && failures >= 3 && failing_for >= STANDARD_CAP => Some(DeadReason::Permanent),
            Self::Standard => (failing_for >= STANDARD_PATIENCE).then_some(DeadReason::Retries),
            Self::Depsera => None,
        }
    }

    /// Returns the interval at which a dead letter is polled; `interval` is its interval while it answers.
    pub(crate) fn dead_letter_interval(self, settings: &Settings, interval: Duration) -> Duration {
        if self == Self::Pulse { PULSE_DEAD_LETTER_INTERVAL } else { settings.dead_letter_interval.max(interval) }
    }
}

/// The scheduler's settings. All of them can change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The rules for delays after a failure.
    pub profile: Profile,
    /// The rule for intervals after a success, for targets without their own.
    pub cadence: Cadence,
    /// The base interval; `None` if the operator set none.
    pub base: Option<Duration>,
    /// The shortest interval.
    pub min: Duration,
    /// The longest interval of a healthy target. If it is `None`, a healthy target is polled at least at its base
    /// interval, and the cadence `pulse` uses intervals up to five minutes.
    pub max: Option<Duration>,
    /// The profile `standard` polls a dead letter at this interval, or at the target's own if that is longer.
    pub dead_letter_interval: Duration,
    /// The limit on polls in flight in the whole process.
    pub max_in_flight: usize,
    /// The limit on polls in flight per host.
    pub max_per_host: usize,
    /// The limit on polls started per second in the whole process; 0 means no limit.
    pub rate_per_second: u32,
}

impl Settings {
    /// Returns the longest interval of a healthy target; `None` if each target's base interval is its longest.
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
