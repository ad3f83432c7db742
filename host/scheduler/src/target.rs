//! What the scheduler knows of one target.

use crate::Settings;
use crate::breaker::Transitions;
use crate::cadence::{Bounds, Scores, activity, expected_rate, staleness, wanted};
use crate::queue::Slot;
use crate::rates::{Learn, Usual};
use crate::settings::PULSE_MAX;
use crate::why::Why;
use model::{BreakerState, Cadence, Kind, Moment, Place, Schedule, TargetId};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// No Retry-After counts for longer.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// The base where nobody says anything.
const BASE: Duration = Duration::from_secs(10);
/// No bound is shorter or longer, whatever a machine sent.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));

/// A target as the scheduler needs to know it.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSpec {
    /// Its id.
    pub id: TargetId,
    /// Its kind.
    pub kind: Kind,
    /// A hash of its URL: the order of first polls.
    pub url_hash: u64,
    /// Lower-case host name; polls at a time are limited for each.
    pub host: Arc<str>,
    /// Scheme, host and port; a success of one revives another's dead letter.
    pub origin: Arc<str>,
    /// Its own cadence.
    pub cadence: Option<Cadence>,
    /// Its own base interval.
    pub interval: Option<Duration>,
    /// Its own shortest interval.
    pub min: Option<Duration>,
    /// Its own longest interval.
    pub max: Option<Duration>,
    /// The base interval of its kind.
    pub kind_interval: Option<Duration>,
    /// Whether it is polled at all.
    pub enabled: bool,
}

/// Whether a target cannot be polled: two failures in a row, or one after which no poll comes soon: before any success, with
/// an open breaker, as a dead letter, or because it sent a Retry-After longer than its interval and a minute.
pub(crate) fn is_unreachable(schedule: &Schedule<Moment>) -> bool {
    const SOON: Duration = Duration::from_secs(60);
    // Jitter, and the duration of a poll.
    const MARGIN: f64 = 1.2;
    let soon = schedule.interval.unwrap_or_default().max(SOON).mul_f64(MARGIN);
    let waits_long = schedule.last_polled.is_some_and(|polled| schedule.due.since(polled) > soon);
    match schedule.failures.max(schedule.plugin_faults) {
        0 => false,
        1 => {
            let is_open = schedule.breaker.state != BreakerState::Closed;
            schedule.last_success.is_none() || schedule.dead.is_some() || is_open || waits_long
        }
        _ => true,
    }
}

/// Forgets streaks, breaker and dead letter, because the target is another one now.
pub(crate) fn reset(schedule: &mut Schedule<Moment>) {
    *schedule = Schedule {
        last_success: schedule.last_success,
        last_polled: schedule.last_polled,
        last_change: schedule.last_change,
        ..Schedule::new(schedule.due)
    };
}

/// A target's schedule, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetStatus {
    /// Where it is.
    pub place: Place,
    /// Its schedule.
    pub schedule: Schedule<Moment>,
    /// Whether it cannot be polled.
    pub unreachable: bool,
    /// Its longest interval: its staleness is 1 when its last success is this old.
    pub longest: Duration,
    /// The cadence it follows.
    pub cadence: Cadence,
    /// Whether it is polled at all, but for a poll that is under way.
    pub enabled: bool,
}

/// A poll under way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub host: Arc<str>,
    pub kind: Kind,
    pub due: Moment,
    pub started: Moment,
    /// The count of polls before it.
    pub number: u64,
    /// Whether it takes one of the slots for targets that were slow or failed last time.
    pub doubtful: bool,
    /// The target was changed or removed since; its outcome says nothing any more.
    pub void: bool,
    /// Another version of its plugin serves since; its outcome says nothing of that one.
    pub outdated: bool,
}

/// A target's turn among those that are due.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub due: Moment,
    pub score: f32,
    pub last_polled: Moment,
    pub id: TargetId,
    pub slot: Slot,
    /// Whether its target was slow or failed last time.
    pub doubtful: bool,
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due.cmp(&other.due))
            .then_with(|| other.score.total_cmp(&self.score))
            .then_with(|| self.last_polled.cmp(&other.last_polled))
            .then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

/// Polls in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spending {
    /// That the adaptive cadence wants.
    pub wanted: f64,
    /// That it may cost: twice what its base interval would; as much, where its interval may be longer than its base.
    pub allowed: f64,
}

#[derive(Debug)]
pub(crate) struct Target {
    pub spec: TargetSpec,
    pub place: Place,
    /// Its place at the last drain.
    pub announced: Place,
    pub schedule: Schedule<Moment>,
    /// Why it is due when it is.
    pub why: Why,
    /// The poll under way.
    pub flight: Option<Flight>,
    /// Its turn, while it is ready.
    pub turn: Option<Turn>,
    /// What it spends, as counted in the sum of all.
    pub spending: Spending,
    /// Results that the database has not taken yet.
    pub unwritten: u8,
    /// The scheduler's step in which it last became ready.
    pub ready_since: u64,
    /// Whether its last poll took long.
    pub slow: bool,
}

impl Target {
    pub(crate) fn new(spec: TargetSpec, schedule: Schedule<Moment>, why: Why) -> Self {
        Self {
            spec,
            place: Place::Disabled,
            announced: Place::Disabled,
            schedule,
            why,
            flight: None,
            turn: None,
            spending: Spending::default(),
            unwritten: 0,
            ready_since: 0,
            slow: false,
        }
    }

    /// Whether its last poll was slow or failed: then the next one may hang too.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.slow || self.schedule.failures > 0 || self.schedule.plugin_faults > 0
    }

    pub(crate) fn cadence(&self, settings: &Settings) -> Cadence {
        self.spec.cadence.unwrap_or(settings.cadence)
    }

    /// The bounds that hold for it; a base outside them is moved to the nearer one.
    pub(crate) fn bounds(&self, settings: &Settings) -> Bounds {
        let min = self.spec.min.unwrap_or(settings.min).clamp(BOUNDS.0, BOUNDS.1);
        let base = self.spec.interval.or(settings.base).or(self.spec.kind_interval).unwrap_or(BASE);
        // An interval is a promise, unless an operator gave a longest one or asked for Pulse's formula.
        let max = self.longest(settings).unwrap_or(match self.cadence(settings) {
            Cadence::Pulse => PULSE_MAX,
            Cadence::Adaptive | Cadence::Fixed => base,
        });
        let max = max.clamp(min, BOUNDS.1);
        Bounds { base: base.clamp(min, max), min, max }
    }

    /// The longest interval that an operator set.
    pub(crate) fn longest(&self, settings: &Settings) -> Option<Duration> {
        self.spec.max.or(settings.max)
    }

    /// The interval while it answers: the last one that was computed.
    pub(crate) fn interval(&self, settings: &Settings) -> Duration {
        self.schedule.interval.unwrap_or_else(|| self.bounds(settings).base)
    }

    /// How often it is looked at as a dead letter.
    pub(crate) fn dead_letter_look(&self, settings: &Settings) -> Duration {
        settings.profile.dead_letter_look(settings, self.interval(settings))
    }

    pub(crate) fn scores(&self, settings: &Settings, (stretch, usual): (f64, &Usual), now: Moment) -> Scores {
        let (schedule, bounds) = (&self.schedule, self.bounds(settings));
        let age = |moment: Option<Moment>| moment.map(|moment| now.since(moment));
        let staleness = self.staleness(settings, now);
        if self.cadence(settings) != Cadence::Adaptive {
            return Scores { staleness, activity: 0.0, rate: 0.0, wanted: 0.0, stretch: 1.0 };
        }
        let rate = expected_rate(schedule.rates.expected(schedule.critical, usual), age(schedule.last_change));
        let wanted = wanted(&bounds, rate);
        let activity = activity(&bounds, wanted * stretch, schedule.critical);
        Scores { staleness, activity, rate, wanted, stretch }
    }

    fn staleness(&self, settings: &Settings, now: Moment) -> f64 {
        let age = self.schedule.last_success.map(|moment| now.since(moment));
        staleness(age, self.bounds(settings).max)
    }

    /// The key of a waiting list; constant while a target waits, because only a poll changes it.
    pub(crate) fn last_polled(&self) -> Moment {
        self.schedule.last_polled.unwrap_or(Moment::from_nanos(i64::MIN))
    }

    /// The latest that its next poll can reasonably be: what a restored due time is held against, so that a clock that
    /// jumped while the host was down stalls nobody.
    pub(crate) fn latest_due(&self, settings: &Settings, now: Moment) -> Moment {
        let failing = self.schedule.failures > 0 || self.schedule.plugin_faults > 0;
        let longest = match (self.schedule.dead, self.schedule.breaker.open_for) {
            (Some(_), _) => self.dead_letter_look(settings).mul_f64(1.1).max(LONGEST_RETRY_AFTER),
            (None, open_for) if failing || open_for.is_some() => LONGEST_RETRY_AFTER,
            // With its jitter, and the little that a killed host's last poll may have been late.
            _ => self.bounds(settings).max.mul_f64(1.06),
        };
        now.after(longest)
    }

    pub(crate) fn status(&self, settings: &Settings) -> TargetStatus {
        TargetStatus {
            place: self.place,
            schedule: self.schedule.clone(),
            unreachable: is_unreachable(&self.schedule),
            longest: self.bounds(settings).max,
            cadence: self.cadence(settings),
            enabled: self.spec.enabled,
        }
    }

    /// As it is to be found after a restart: a probe that is under way will then have ended without an outcome.
    pub(crate) fn saved(&self, settings: &Settings, now: Moment) -> Schedule<Moment> {
        let mut saved = self.schedule.clone();
        let looked_at = saved.dead.is_some() && self.flight.as_ref().is_some_and(|flight| !flight.void);
        if saved.breaker.state == BreakerState::HalfOpen || looked_at {
            let again = saved.breaker.lose_probe(now).unwrap_or_default();
            let dead = if saved.dead.is_some() { self.dead_letter_look(settings) } else { Duration::ZERO };
            saved.due = now.after(again.max(dead));
        }
        saved
    }
}
