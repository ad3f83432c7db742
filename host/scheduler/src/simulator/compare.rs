//! Compares how late each cadence detects changes, at an equal number of polls.

use crate::simulator::truth::Truth;
use crate::simulator::{Class, Estate};
use crate::{Action, Finish, Input, Scheduler, Settings};
use model::{Cadence, Cause, Moment, TargetId};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

/// Numbers of polls count as equal within this relative difference.
const EQUAL: f64 = 0.005;
/// The number of corrections of an interval to reach an equal number of polls.
const CORRECTIONS: usize = 6;

/// The result of one cadence.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The cadence.
    pub cadence: Cadence,
    /// The number of polls started.
    pub polls: u64,
    /// The mean time between two polls of a target.
    pub interval: Duration,
    /// The number of changes that were followed by a poll with a report.
    pub changes: u64,
    /// The median delay from a change to the next poll with a report.
    pub median: Duration,
    /// The 95th percentile of that delay.
    pub p95: Duration,
    /// The mean of that delay.
    pub mean: Duration,
    /// The share of changes that were undone before a poll could detect them.
    pub missed: f64,
}

/// The results of all cadences on one estate.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The results of `fixed`, `pulse` and `adaptive`, in this order.
    pub rows: Vec<Row>,
    /// The result of `fixed` at the configured intervals, with whatever number of polls that takes.
    pub configured: Row,
    /// The median delay of `adaptive` over that of `fixed`.
    pub ratio: f64,
}

/// Runs `adaptive` on an estate with its settings, and then `fixed` and `pulse` with the interval at which they start
/// as many polls. Every cadence meets the same incidents.
pub fn compare(estate: &Estate, seed: u64) -> Comparison {
    let adaptive = run(estate, &Settings { cadence: Cadence::Adaptive, ..estate.settings.clone() }, 1.0, seed);
    let wanted = adaptive.polls;
    let equal = |cadence| {
        let mut interval = estate.duration.as_secs_f64() * f64::from(estate.targets) / wanted.max(1) as f64;
        let own = estate.settings.base.unwrap_or(Duration::from_secs(10)).as_secs_f64();
        let mut best: Option<Row> = None;
        for _ in 0..CORRECTIONS {
            let base = Duration::from_secs_f64(interval.clamp(0.1, 86_400.0));
            let settings = Settings { cadence, base: Some(base), ..estate.settings.clone() };
            // The `pulse` formula approaches its longest interval after each success, so the longest interval
            // determines the number of polls.
            let min =
                if cadence == Cadence::Pulse { estate.settings.min.min(base) } else { Duration::from_millis(100) };
            let max = if cadence == Cadence::Pulse { base } else { Duration::from_secs(86_400) };
            let row = run(estate, &Settings { min, max: Some(max), ..settings }, interval / own, seed);
            let off = row.polls as f64 / wanted.max(1) as f64;
            let nearer = |held: &Row| held.polls.abs_diff(wanted) <= row.polls.abs_diff(wanted);
            if !best.as_ref().is_some_and(nearer) {
                best = Some(row);
            }
            if (off - 1.0).abs() <= EQUAL {
                break;
            }
            interval *= off;
        }
        best
    };
    let rows: Vec<Row> = [equal(Cadence::Fixed), equal(Cadence::Pulse), Some(adaptive)].into_iter().flatten().collect();
    let median = |at: usize| rows.get(at).map_or(0.0, |row| row.median.as_secs_f64());
    let ratio = median(rows.len() - 1) / median(0).max(f64::MIN_POSITIVE);
    let configured = run(estate, &Settings { cadence: Cadence::Fixed, ..estate.settings.clone() }, 1.0, seed);
    Comparison { rows, configured, ratio }
}

/// Runs one simulation. `scale` multiplies the intervals of the classes.
fn run(estate: &Estate, settings: &Settings, scale: f64, seed: u64) -> Row {
    let mut world = World::new(estate, seed);
    let mut scheduler = Scheduler::new(settings.clone(), seed);
    let spec = |(target, class): (usize, &usize)| {
        let class = &estate.classes[*class];
        let interval = class.interval.map(|own| own.mul_f64(scale));
        (estate.spec(target, &Class { interval, ..class.clone() }), None)
    };
    let specs: Vec<_> = world.classes.iter().enumerate().map(spec).collect();
    let end = Moment::START.after(estate.duration);
    let mut now = Moment::START;
    scheduler.apply(Input::Started(specs), now);
    loop {
        for action in scheduler.drain() {
            if let Action::Start(target, _) = action {
                world.start(&target, now);
            }
        }
        let finished = world.in_flight.peek().map(|Reverse((at, _))| *at);
        let Some(next) = scheduler.next_wakeup().into_iter().chain(finished).min() else { break };
        if next > end {
            break;
        }
        now = now.max(next);
        match world.in_flight.peek() {
            Some(Reverse((at, _))) if *at <= now => {
                let (target, finish) = world.finish(now);
                scheduler.apply(Input::Finished(target, finish), now);
            }
            _ => scheduler.apply(Input::Tick, now),
        }
    }
    world.row(settings.cadence, scheduler.counters().started, estate)
}

struct World<'a> {
    estate: &'a Estate,
    rng: Pcg64Mcg,
    classes: Vec<usize>,
    truths: Vec<Truth>,
    shown: Vec<bool>,
    numbers: HashMap<TargetId, usize>,
    ids: Vec<TargetId>,
    in_flight: BinaryHeap<Reverse<(Moment, usize)>>,
    delays: Vec<Duration>,
    incidents: u64,
    missed: u64,
}

impl<'a> World<'a> {
    fn new(estate: &'a Estate, seed: u64) -> Self {
        let classes = estate.classes_of_targets();
        let id = |(target, class): (usize, &usize)| estate.spec(target, &estate.classes[*class]).id;
        let ids: Vec<TargetId> = classes.iter().enumerate().map(id).collect();
        let truths =
            classes.iter().enumerate().map(|(target, class)| Truth::new(&estate.classes[*class], seed, target));
        Self {
            estate,
            rng: Pcg64Mcg::seed_from_u64(!seed),
            truths: truths.collect(),
            shown: vec![false; classes.len()],
            numbers: ids.iter().cloned().zip(0..).collect(),
            ids,
            classes,
            in_flight: BinaryHeap::new(),
            delays: Vec::new(),
            incidents: 0,
            missed: 0,
        }
    }

    fn class(&self, target: usize) -> &'a Class {
        &self.estate.classes[self.classes[target]]
    }

    fn start(&mut self, target: &TargetId, now: Moment) {
        let target = self.numbers[target];
        let latency = self.class(target).latency.mul_f64(0.5 + self.rng.random::<f64>());
        self.in_flight.push(Reverse((now.after(latency), target)));
    }

    fn finish(&mut self, now: Moment) -> (TargetId, Finish) {
        let Reverse((_, target)) = self.in_flight.pop().expect("a poll in flight ends");
        let since = now.since(Moment::START);
        let hit = |outage: &&crate::simulator::Outage| {
            let place = (target as f64 + 0.5) / self.classes.len() as f64;
            // The affected part depends on the start of the outage, so that outages affect different parts.
            let from = (outage.at.as_secs_f64() * 0.618_033_988).fract();
            let place = (place - from).rem_euclid(1.0);
            outage.at <= since && since < outage.at + outage.length && place < outage.share
        };
        let id = self.ids[target].clone();
        if self.estate.outages.iter().any(|outage| hit(&outage)) {
            return (id, Finish::Transient { cause: Cause::Unreachable, retry_after: None });
        }
        if self.rng.random::<f64>() < self.class(target).failure_rate {
            return (id, Finish::Transient { cause: Cause::Other, retry_after: None });
        }
        let observation = self.truths[target].observe(now);
        let changed = observation.trouble != self.shown[target];
        // Changes come in pairs. A pair between two polls is an incident, or a recovery, that no poll detected.
        self.incidents += observation.changes.len() as u64;
        self.missed += (observation.changes.len() - usize::from(changed)) as u64;
        self.delays.extend(observation.changes.iter().map(|change| now.since(*change)));
        self.shown[target] = observation.trouble;
        (id, Finish::Success { changed, critical: observation.trouble })
    }

    fn row(mut self, cadence: Cadence, polls: u64, estate: &Estate) -> Row {
        self.delays.sort_unstable();
        let at = |share: f64| {
            let last = self.delays.len().saturating_sub(1);
            self.delays.get((share * last as f64).round() as usize).copied().unwrap_or_default()
        };
        let (median, p95) = (at(0.5), at(0.95));
        let changes = self.delays.len() as u64;
        let sum: f64 = self.delays.iter().map(Duration::as_secs_f64).sum();
        Row {
            cadence,
            polls,
            interval: estate.duration.mul_f64(f64::from(estate.targets) / polls.max(1) as f64),
            changes,
            median,
            p95,
            mean: Duration::from_secs_f64(sum / changes.max(1) as f64),
            missed: self.missed as f64 / self.incidents.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(share: f64, incidents_per_day: f64, minutes: u64) -> Class {
        Class {
            name: String::new(),
            share,
            incidents_per_day,
            incident: Duration::from_secs(60 * minutes),
            latency: Duration::from_millis(50),
            failure_rate: 0.001,
            interval: None,
        }
    }

    fn estate(classes: Vec<Class>) -> Estate {
        Estate {
            name: String::new(),
            targets: 50,
            per_host: 5,
            duration: Duration::from_secs(24 * 3600),
            settings: Settings {
                base: Some(Duration::from_secs(30)),
                max: Some(Duration::from_secs(300)),
                ..Settings::default()
            },
            classes,
            outages: Vec::new(),
        }
    }

    #[test]
    fn a_fixed_interval_detects_changes_after_half_of_it_and_all_cadences_poll_equally_often() {
        let found = compare(&estate(vec![class(0.8, 0.5, 20), class(0.2, 20.0, 10)]), 3);
        let polls: Vec<u64> = found.rows.iter().map(|row| row.polls).collect();
        for count in &polls {
            assert!((*count as f64 / polls[2] as f64 - 1.0).abs() < 0.02, "{polls:?}");
        }
        let fixed = &found.rows[0];
        let half = fixed.interval.as_secs_f64() / 2.0;
        assert!((fixed.median.as_secs_f64() / half - 1.0).abs() < 0.15, "{fixed:?}");
        assert!(fixed.changes > 300, "{fixed:?}");
        assert!(found.ratio <= 0.5, "{found:?}");
        assert_eq!(found.configured.interval.as_secs_f64().round(), 30.0);
        assert!(
            found.rows[2].polls <= found.configured.polls * 101 / 100,
            "a longest interval does not increase the number of polls: {found:?}"
        );
    }

    #[test]
    fn targets_are_polled_at_least_at_their_base_interval_without_a_longest_one() {
        let mut estate = estate(vec![class(0.8, 0.0, 20), class(0.2, 20.0, 10)]);
        estate.settings.max = None;
        let found = compare(&estate, 3);
        let [.., adaptive] = &found.rows[..] else { panic!("{found:?}") };
        let (polls, fixed) = (adaptive.polls as f64, found.configured.polls as f64);
        assert!(polls > 1.02 * fixed && polls <= 2.02 * fixed, "{found:?}");
        assert!(adaptive.median <= found.configured.median && adaptive.p95 <= found.configured.p95, "{found:?}");
    }

    #[test]
    fn the_same_seed_yields_the_same_run() {
        let estate = estate(vec![class(1.0, 4.0, 15)]);
        assert_eq!(compare(&estate, 1), compare(&estate, 1));
        assert_ne!(compare(&estate, 1), compare(&estate, 2));
    }

    #[test]
    fn an_empty_class_and_a_class_without_changes_are_simulated() {
        let mut quiet = estate(vec![class(1.0, 0.0, 10), class(0.0, 5.0, 10)]);
        quiet.targets = 1;
        let found = compare(&quiet, 1);
        assert_eq!(found.rows[2].changes, 0);
        assert!(found.rows[2].polls > 200, "about one in five minutes: {found:?}");
    }
}
