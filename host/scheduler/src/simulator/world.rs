//! The simulated targets and their polls.

use crate::Finish;
use crate::simulator::drive::Polled;
use crate::simulator::truth::Truth;
use crate::simulator::{Class, Estate, Outage};
use model::{Cause, Moment};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
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

impl Row {
    /// The result of this many polls in a time, summed over the targets: the delays of changes, and how many of the
    /// changes were undone before a poll could detect them.
    pub(super) fn of(mut delays: Vec<Duration>, (missed, of): (u64, u64), polls: u64, time: Duration) -> Self {
        delays.sort_unstable();
        let at = |share: f64| {
            let last = delays.len().saturating_sub(1);
            delays.get((share * last as f64).round() as usize).copied().unwrap_or_default()
        };
        let changes = delays.len() as u64;
        let sum: f64 = delays.iter().map(Duration::as_secs_f64).sum();
        Self {
            polls,
            interval: time.div_f64(polls.max(1) as f64),
            changes,
            median: at(0.5),
            p95: at(0.95),
            mean: Duration::from_secs_f64(sum / changes.max(1) as f64),
            missed: missed as f64 / of.max(1) as f64,
        }
    }
}

/// The targets of an estate, their polls in flight, and what the polls have detected.
pub(super) struct World<'a> {
    estate: &'a Estate,
    rng: Pcg64Mcg,
    /// The index of each target's class.
    pub classes: Vec<usize>,
    truths: Vec<Truth>,
    shown: Vec<bool>,
    /// When each poll in flight ends, and its target.
    in_flight: BinaryHeap<Reverse<(Moment, usize)>>,
    delays: Vec<Duration>,
    incidents: u64,
    missed: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(estate: &'a Estate, seed: u64) -> Self {
        let classes = estate.classes_of_targets();
        let truths =
            classes.iter().enumerate().map(|(target, class)| Truth::new(&estate.classes[*class], seed, target));
        Self {
            estate,
            rng: Pcg64Mcg::seed_from_u64(!seed),
            truths: truths.collect(),
            shown: vec![false; classes.len()],
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

    /// The result after this many polls.
    pub(super) fn row(self, polls: u64) -> Row {
        let time = self.estate.duration.mul_f64(f64::from(self.estate.targets));
        Row::of(self.delays, (self.missed, self.incidents), polls, time)
    }
}

impl Polled for World<'_> {
    fn start(&mut self, target: usize, now: Moment) {
        let latency = self.class(target).latency.mul_f64(0.5 + self.rng.random::<f64>());
        self.in_flight.push(Reverse((now.after(latency), target)));
    }

    fn next_finish(&self) -> Option<Moment> {
        self.in_flight.peek().map(|Reverse((at, _))| *at)
    }

    fn finish(&mut self, now: Moment) -> Option<(usize, Finish)> {
        self.next_finish().filter(|at| *at <= now)?;
        let Reverse((_, target)) = self.in_flight.pop()?;
        let since = now.since(Moment::START);
        let hit = |outage: &&Outage| {
            let place = (target as f64 + 0.5) / self.classes.len() as f64;
            // The affected part depends on the start of the outage, so that outages affect different parts.
            let from = (outage.at.as_secs_f64() * 0.618_033_988).fract();
            let place = (place - from).rem_euclid(1.0);
            outage.at <= since && since < outage.at + outage.length && place < outage.share
        };
        if self.estate.outages.iter().any(|outage| hit(&outage)) {
            return Some((target, Finish::Transient { cause: Cause::Unreachable, retry_after: None }));
        }
        if self.rng.random::<f64>() < self.class(target).failure_rate {
            return Some((target, Finish::Transient { cause: Cause::Other, retry_after: None }));
        }
        let observation = self.truths[target].observe(now);
        let changed = observation.trouble != self.shown[target];
        // Changes come in pairs. A pair between two polls is an incident, or a recovery, that no poll detected.
        self.incidents += observation.changes.len() as u64;
        self.missed += (observation.changes.len() - usize::from(changed)) as u64;
        self.delays.extend(observation.changes.iter().map(|change| now.since(*change)));
        self.shown[target] = observation.trouble;
        Some((target, Finish::Success { changed, critical: observation.trouble, next_poll: None }))
    }
}
