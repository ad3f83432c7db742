//! Replays recorded changes under other cadences and intervals: what each would have cost, and how late it would have
//! detected the changes.
//!
//! A recorded change has the time of the poll that detected it. Its true time is drawn from the interval before, the
//! same for every cadence. Changes that no poll detected are not recorded, so a shorter interval would have detected
//! more than the replay shows.

use crate::simulator::drive::{Polled, drive};
use crate::simulator::world::Row;
use crate::{Finish, Settings, TargetSpec};
use model::{Cadence, Cause, Moment, Status};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// The number of resampled estates for the uncertainty of the mean.
const SAMPLES: usize = 400;
/// The share of resampled means below the lower and above the upper bound.
const TAIL: f64 = 0.05;
/// The shortest and the longest interval while none is configured for a replay.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(86_400));

/// A target and its recorded changes.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The target.
    pub spec: TargetSpec,
    /// The interval at which it was polled.
    pub interval: Duration,
    /// The duration of a poll.
    pub latency: Duration,
    /// The number of targets whose polls it stands for.
    pub weight: f64,
    /// The changes, in order, by the time from the begin of the replay at which a poll detected them.
    pub changes: Vec<(Duration, Change)>,
}

/// A recorded change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Polls fail from now on, or succeed again.
    Reach {
        /// Whether they fail.
        fails: bool,
    },
    /// The status of a dependency.
    Status {
        /// The number of the dependency in its target.
        dependency: usize,
        /// The status before.
        before: Status,
        /// The status after.
        after: Status,
    },
}

/// The result of a replay under one cadence.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The cadence and its intervals.
    pub name: &'static str,
    /// Polls and delays.
    pub row: Row,
    /// The mean delay lies in this range with a probability of 90 %, as far as the number of recorded changes shows.
    pub mean: (Duration, Duration),
}

/// Replays recorded changes under several cadences and intervals.
pub fn replay(recorded: &[Recorded], duration: Duration, settings: &Settings, seed: u64) -> Vec<Replayed> {
    let fixed = |scale| (Cadence::Fixed, scale);
    let variants = [
        ("adaptive", (Cadence::Adaptive, 1.0)),
        ("pulse", (Cadence::Pulse, 1.0)),
        ("fixed", fixed(1.0)),
        ("fixed, half the interval", fixed(0.5)),
        ("fixed, twice the interval", fixed(2.0)),
    ];
    let run = |(name, (cadence, scale)): (&'static str, (Cadence, f64))| {
        let (settings, specs) = variant(recorded, settings, cadence, scale);
        let mut world = World::new(recorded, seed);
        drive(&mut world, (settings, specs), (duration, seed));
        let mean = world.range_of_mean(seed);
        let World { delays, missed, of, polls, .. } = world;
        let delays = delays.into_iter().map(|(_, delay)| delay).collect();
        let targets: f64 = recorded.iter().map(|recorded| recorded.weight).sum();
        let row = Row::of(delays, (missed, of), polls.round() as u64, duration.mul_f64(targets));
        Replayed { name, row, mean }
    };
    variants.into_iter().map(run).collect()
}

/// The settings and targets of a variant. A scaled interval may leave the configured bounds.
fn variant(recorded: &[Recorded], settings: &Settings, cadence: Cadence, scale: f64) -> (Settings, Vec<TargetSpec>) {
    let scaled = |interval: Option<Duration>| interval.map(|interval| interval.mul_f64(scale));
    let is_scaled = (scale - 1.0).abs() > f64::EPSILON;
    let spec = |recorded: &Recorded| {
        let spec = TargetSpec {
            cadence: None,
            interval: scaled(recorded.spec.interval),
            kind_interval: scaled(recorded.spec.kind_interval),
            ..recorded.spec.clone()
        };
        if is_scaled { TargetSpec { min: None, max: None, ..spec } } else { spec }
    };
    let mut settings = Settings { cadence, ..settings.clone() };
    if is_scaled {
        let base = settings.base.unwrap_or(Duration::from_secs(10));
        settings = Settings { base: Some(base.mul_f64(scale)), min: BOUNDS.0, max: Some(BOUNDS.1), ..settings };
    }
    (settings, recorded.iter().map(spec).collect())
}

/// A subject of changes: the target's reach, or a dependency by its number.
type Subject = Option<usize>;

/// The recorded past of a target, as far as it has been replayed.
struct Past {
    /// The true times of changes, in order.
    changes: Vec<(Moment, Change)>,
    /// The number of changes that have happened.
    happened: usize,
    fails: bool,
    /// The current status of each dependency that ever changed.
    statuses: BTreeMap<usize, Status>,
    /// Changes that no poll has detected yet: their times, and the state that the last poll detected.
    pending: BTreeMap<Subject, (Vec<Moment>, Change)>,
}

struct World<'a> {
    recorded: &'a [Recorded],
    pasts: Vec<Past>,
    in_flight: BinaryHeap<Reverse<(Moment, usize)>>,
    /// The delay of each detected change, with its target.
    delays: Vec<(usize, Duration)>,
    /// Changes that were undone before a poll, and all changes.
    missed: u64,
    of: u64,
    /// The number of polls, each with the weight of its target.
    polls: f64,
}

impl Past {
    fn new(recorded: &Recorded, rng: &mut Pcg64Mcg) -> Self {
        // A change lies within the interval before the poll that detected it, and after the change before it.
        let mut last = Moment::START;
        let true_time = |(at, change): &(Duration, Change)| {
            let earlier = recorded.interval.mul_f64(rng.random::<f64>());
            last = Moment::START.after(at.saturating_sub(earlier)).max(last);
            (last, *change)
        };
        let changes = recorded.changes.iter().map(true_time).collect();
        let mut statuses = BTreeMap::new();
        let mut fails = None;
        for (_, change) in &recorded.changes {
            match *change {
                Change::Reach { fails: after } => fails = fails.or(Some(!after)),
                Change::Status { dependency, before, .. } => {
                    statuses.entry(dependency).or_insert(before);
                }
            }
        }
        Self { changes, happened: 0, fails: fails.unwrap_or(false), statuses, pending: BTreeMap::new() }
    }

    fn advance(&mut self, now: Moment) {
        while let Some((at, change)) = self.changes.get(self.happened).filter(|(at, _)| *at <= now) {
            self.happened += 1;
            let subject = match *change {
                Change::Reach { fails } => {
                    self.fails = fails;
                    None
                }
                Change::Status { dependency, after, .. } => {
                    self.statuses.insert(dependency, after);
                    Some(dependency)
                }
            };
            self.pending.entry(subject).or_insert_with(|| (Vec::new(), *change)).0.push(*at);
        }
    }

    /// Whether the state of a subject differs from the one before its first pending change.
    fn differs(&self, subject: Subject, first: Change) -> bool {
        match (subject, first) {
            (Some(dependency), Change::Status { before, .. }) => self.statuses.get(&dependency) != Some(&before),
            (None, Change::Reach { fails: after }) => self.fails == after,
            _ => false,
        }
    }
}

impl<'a> World<'a> {
    fn new(recorded: &'a [Recorded], seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let pasts = recorded.iter().map(|recorded| Past::new(recorded, &mut rng)).collect();
        Self { recorded, pasts, in_flight: BinaryHeap::new(), delays: Vec::new(), missed: 0, of: 0, polls: 0.0 }
    }

    /// The range of the mean delay if other targets with the same distribution of changes had been recorded.
    fn range_of_mean(&self, seed: u64) -> (Duration, Duration) {
        let mut by_target = vec![(0.0, 0_u64); self.recorded.len()];
        for (target, delay) in &self.delays {
            by_target[*target].0 += delay.as_secs_f64();
            by_target[*target].1 += 1;
        }
        by_target.retain(|(_, count)| *count > 0);
        if by_target.is_empty() {
            return (Duration::ZERO, Duration::ZERO);
        }
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut sample = || {
            let drawn = (0..by_target.len()).map(|_| by_target[rng.random_range(0..by_target.len())]);
            let (sum, count) = drawn.fold((0.0, 0), |(sum, count), (more, n)| (sum + more, count + n));
            sum / count as f64
        };
        let mut means: Vec<f64> = (0..SAMPLES).map(|_| sample()).collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| Duration::from_secs_f64(means[(share * (SAMPLES - 1) as f64).round() as usize]);
        (at(TAIL), at(1.0 - TAIL))
    }
}

impl Polled for World<'_> {
    fn start(&mut self, target: usize, now: Moment) {
        self.polls += self.recorded[target].weight;
        self.in_flight.push(Reverse((now.after(self.recorded[target].latency), target)));
    }

    fn next_finish(&self) -> Option<Moment> {
        self.in_flight.peek().map(|Reverse((at, _))| *at)
    }

    fn finish(&mut self, now: Moment) -> Option<(usize, Finish)> {
        self.next_finish().filter(|at| *at <= now)?;
        let Reverse((_, target)) = self.in_flight.pop()?;
        let past = &mut self.pasts[target];
        past.advance(now);
        // A poll that fails detects that only.
        let fails = past.fails;
        let (seen, unseen) = std::mem::take(&mut past.pending).into_iter().partition(|(of, _)| of.is_none() || !fails);
        past.pending = unseen;
        let seen: BTreeMap<Subject, (Vec<Moment>, Change)> = seen;
        let mut changed = false;
        for (subject, (times, first)) in seen {
            let differs = past.differs(subject, first);
            changed |= differs && subject.is_some();
            self.of += times.len() as u64;
            self.missed += (times.len() - usize::from(differs)) as u64;
            self.delays.extend(times.iter().map(|time| (target, now.since(*time))));
        }
        let critical = past.statuses.values().any(|status| *status == Status::Critical);
        Some((
            target,
            match fails {
                true => Finish::Transient { cause: Cause::Unreachable, retry_after: None },
                false => Finish::Success { changed, critical, next_poll: None },
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::Class;
    use crate::simulator::Estate;

    const MINUTE: u64 = 60;

    fn recorded(number: usize, changes: Vec<(Duration, Change)>) -> Recorded {
        let class = Class {
            name: String::new(),
            share: 1.0,
            incidents_per_day: 0.0,
            incident: Duration::ZERO,
            latency: Duration::ZERO,
            failure_rate: 0.0,
            interval: Some(Duration::from_secs(MINUTE)),
        };
        let estate = Estate {
            name: String::new(),
            targets: 1,
            per_host: 1,
            duration: Duration::ZERO,
            settings: Settings::default(),
            classes: Vec::new(),
            outages: Vec::new(),
        };
        let (interval, latency) = (Duration::from_secs(MINUTE), Duration::from_millis(50));
        Recorded { spec: estate.spec(number, &class), interval, latency, weight: 1.0, changes }
    }

    fn incident(at: u64, length: u64) -> [(Duration, Change); 2] {
        let change = |before, after| Change::Status { dependency: 0, before, after };
        [
            (Duration::from_secs(at), change(Status::Ok, Status::Critical)),
            (Duration::from_secs(at + length), change(Status::Critical, Status::Ok)),
        ]
    }

    /// Twenty targets with an incident of an hour every six hours, at times that differ.
    fn regular() -> Vec<Recorded> {
        let past = |n: u64| (0..4).flat_map(|i| incident(1_000 + i * 21_600 + n * 137, 3_600)).collect();
        (0..20).map(|n| recorded(n as usize, past(n))).collect()
    }

    fn named<'a>(rows: &'a [Replayed], name: &str) -> &'a Replayed {
        rows.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn a_fixed_interval_costs_its_polls_and_detects_after_half_of_it() {
        let day = Duration::from_secs(86_400);
        let rows = replay(&regular(), day, &Settings::default(), 1);
        for (name, seconds) in
            [("fixed", 60.0), ("fixed, half the interval", 30.0), ("fixed, twice the interval", 120.0)]
        {
            let Replayed { row, mean, .. } = named(&rows, name);
            assert!((row.interval.as_secs_f64() / seconds - 1.0).abs() < 0.02, "{name}: {row:?}");
            assert!((row.mean.as_secs_f64() / (seconds / 2.0) - 1.0).abs() < 0.2, "{name}: {row:?}");
            assert_eq!((row.changes, row.missed), (160, 0.0), "{name}");
            assert!(mean.0 < row.mean && row.mean < mean.1, "{name}: {mean:?} {row:?}");
        }
        let adaptive = named(&rows, "adaptive");
        assert!(adaptive.row.changes == 160 && adaptive.row.polls > 0, "{adaptive:?}");
    }

    #[test]
    fn an_incident_between_two_polls_is_missed_and_an_outage_is_detected_by_a_failed_poll() {
        let hour = Duration::from_secs(6 * 3_600);
        // With a poll every two minutes, an incident of 20 s is missed with a probability of five in six.
        let short: Vec<_> = (0..100).map(|n| recorded(n, incident(10_000 + n as u64 * 31, 20).to_vec())).collect();
        let rows = replay(&short, hour, &Settings::default(), 3);
        let missed = named(&rows, "fixed, twice the interval").row.missed;
        assert!((missed - 5.0 / 6.0).abs() < 0.15, "{missed}");
        let seconds = Duration::from_secs;
        let outage =
            vec![(seconds(9_000), Change::Reach { fails: true }), (seconds(12_000), Change::Reach { fails: false })];
        let mut both = outage.clone();
        both.extend(incident(12_300, 600));
        let rows = replay(&[recorded(0, both)], hour, &Settings::default(), 3);
        let fixed = &named(&rows, "fixed").row;
        assert_eq!((fixed.changes, fixed.missed), (4, 0.0));
        // While polls fail, they are repeated with backoff.
        assert!(fixed.mean < seconds(200), "{fixed:?}");
    }

    #[test]
    fn polls_count_with_the_weight_of_their_target() {
        let day = Duration::from_secs(86_400);
        let alone = replay(&regular(), day, &Settings::default(), 1);
        let heavy: Vec<_> = regular().into_iter().map(|recorded| Recorded { weight: 10.0, ..recorded }).collect();
        let heavy = replay(&heavy, day, &Settings::default(), 1);
        for (alone, heavy) in alone.iter().zip(&heavy) {
            assert_eq!(heavy.row, Row { polls: alone.row.polls * 10, ..alone.row.clone() }, "{}", alone.name);
        }
    }

    #[test]
    fn nothing_recorded_is_replayed_as_nothing_detected() {
        let rows = replay(&[recorded(0, Vec::new())], Duration::from_secs(3_600), &Settings::default(), 1);
        for Replayed { name, row, mean } in rows {
            assert!(row.changes == 0 && row.polls > 0 && mean == (Duration::ZERO, Duration::ZERO), "{name}: {row:?}");
        }
        assert!(replay(&[], Duration::from_secs(60), &Settings::default(), 1).iter().all(|row| row.row.polls == 0));
    }
}
