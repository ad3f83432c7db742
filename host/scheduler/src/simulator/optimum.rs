//! The intervals with the least mean delay, computed from the true rates of changes.
//!
//! A target changes between two states as a Markov chain in continuous time. Each poll chooses the next interval from
//! the state that it detects. Every poll has a price. The best intervals minimise price and delays over the long run,
//! and the price is set so that all targets together are polled as often as wanted (a Lagrange multiplier). For rates
//! that are small against the intervals, this is the rule that an interval is proportional to the inverse square root
//! of the rate. (Azar, Horvitz, Lubetzky, Peres and Shahaf, "Tractable near-optimal policies for crawling", PNAS 2018,
//! solve the same problem for the time that a copy is stale. Their solution stops polling pages that change too often.)
//!
//! A poller cannot reach it: it has to learn the rates. The intervals have the same bounds as those of `adaptive`.

use crate::Finish;
use crate::simulator::drive::Polled as _;
use crate::simulator::world::{Row, World};
use crate::simulator::{Class, Estate};
use crate::target::bounds;
use model::{Cadence, Moment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Steps of a bisection or of a search for a minimum. Each narrows its range by at least a third.
const STEPS: usize = 40;
/// Rounds in which the intervals of both states are improved in turn.
const ROUNDS: usize = 6;

/// The best intervals of each class: while quiet, and in trouble.
#[derive(Debug)]
pub(super) struct Optimum(Vec<[f64; 2]>);

impl Optimum {
    /// Computes the intervals with which about this many polls of the estate are started.
    pub(super) fn of(estate: &Estate, polls: f64) -> Self {
        let classes = estate.classes_of_targets();
        let chains: Vec<Chain> = estate.classes.iter().map(|class| Chain::of(estate, class)).collect();
        let wanted = polls / estate.duration.as_secs_f64();
        let at = |price: f64| -> Vec<[f64; 2]> { chains.iter().map(|chain| chain.best(price)).collect() };
        let rate = |intervals: &[[f64; 2]]| -> f64 {
            classes.iter().map(|class| chains[*class].average(intervals[*class]).polls).sum()
        };
        // The price in seconds of delay, by its logarithm. A higher price means fewer polls.
        let (mut low, mut high) = (-30.0_f64, 30.0_f64);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            if rate(&at(middle.exp())) > wanted { low = middle } else { high = middle }
        }
        Self(at(high.exp()))
    }
}

/// A class as a Markov chain with two states.
#[derive(Debug)]
struct Chain {
    /// The rate of leaving each state, per second: quiet, in trouble.
    rates: [f64; 2],
    /// The shortest and the longest interval in seconds.
    bounds: [f64; 2],
}

/// The long-run averages of a target.
#[derive(Clone, Copy, Debug)]
struct Average {
    /// Polls per second.
    polls: f64,
    /// Seconds of delay of all changes, per second.
    delay: f64,
}

impl Chain {
    fn of(estate: &Estate, class: &Class) -> Self {
        let bounds = bounds(&estate.spec(0, class), &estate.settings, Cadence::Adaptive);
        let begins = class.incidents_per_day / 86_400.0;
        let ends = if begins > 0.0 { class.incident.as_secs_f64().max(1.0).recip() } else { 0.0 };
        Self { rates: [begins, ends], bounds: [bounds.min.as_secs_f64(), bounds.max.as_secs_f64()] }
    }

    /// Returns the probability that a poll detects the other state after an interval that begins in `state`.
    fn flips(&self, state: usize, interval: f64) -> f64 {
        let both = self.rates[0] + self.rates[1];
        if both > 0.0 { self.rates[state] / both * -(-both * interval).exp_m1() } else { 0.0 }
    }

    /// Returns the expected sum of the delays of the changes within an interval that begins in `state`.
    ///
    /// At time `u` changes occur at the rate `2ab/s + a(a − b)/s · exp(−su)`, where `a` is the rate of leaving this
    /// state, `b` that of leaving the other, and `s = a + b`. Each waits for `interval − u`.
    fn delay(&self, state: usize, interval: f64) -> f64 {
        let (out, back) = (self.rates[state], self.rates[1 - state]);
        let both = out + back;
        if both <= 0.0 {
            return 0.0;
        }
        let scaled = both * interval;
        let square = interval * interval;
        // The integral of (interval − u)·exp(−su). Near zero the difference would lose all digits.
        let decaying =
            if scaled < 1e-4 { square * (0.5 - scaled / 6.0) } else { (scaled + (-scaled).exp_m1()) / (both * both) };
        out * back / both * square + out * (out - back) / both * decaying
    }

    fn average(&self, intervals: [f64; 2]) -> Average {
        // How often polls detect each state, up to a factor.
        let [quiet, trouble] = match [self.flips(1, intervals[1]), self.flips(0, intervals[0])] {
            [_, begins] if begins <= 0.0 => [1.0, 0.0],
            often => often,
        };
        let time = quiet * intervals[0] + trouble * intervals[1];
        let delay = quiet * self.delay(0, intervals[0]) + trouble * self.delay(1, intervals[1]);
        Average { polls: (quiet + trouble) / time, delay: delay / time }
    }

    /// Returns the intervals with the least delays and polls at this price of a poll.
    fn best(&self, price: f64) -> [f64; 2] {
        let [shortest, longest] = self.bounds.map(f64::ln);
        let cost = |intervals: [f64; 2]| {
            let Average { polls, delay } = self.average(intervals);
            delay + price * polls
        };
        let mut best = [self.bounds[1]; 2];
        for _ in 0..ROUNDS {
            for state in 0..2 {
                let with = |logarithm: f64| {
                    let mut intervals = best;
                    intervals[state] = logarithm.exp();
                    intervals
                };
                let (mut low, mut high) = (shortest, longest);
                for _ in 0..STEPS {
                    let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
                    if cost(with(left)) < cost(with(right)) { high = right } else { low = left }
                }
                best = with(f64::midpoint(low, high));
            }
        }
        best
    }
}

/// Polls an estate at these intervals. A poll that fails is repeated after the interval of the last known state. There
/// are no limits and no backoff.
pub(super) fn run(estate: &Estate, optimum: &Optimum, seed: u64) -> Row {
    let mut world = World::new(estate, seed);
    let end = Moment::START.after(estate.duration);
    let mut polls = 0;
    // Each target's interval and the time at which its last poll began.
    let mut targets: Vec<(f64, Moment)> =
        world.classes.iter().map(|class| (optimum.0[*class][0], Moment::START)).collect();
    // Spread the first polls evenly: the fraction of the golden ratio's multiples.
    let phase = |target: usize| (target as f64 * 0.618_033_988).fract();
    let first = |(target, (interval, _)): (usize, &(f64, Moment))| {
        Reverse((Moment::START.after(Duration::from_secs_f64(interval * phase(target))), target))
    };
    let mut due: BinaryHeap<Reverse<(Moment, usize)>> = targets.iter().enumerate().map(first).collect();
    loop {
        let next_due = due.peek().map(|Reverse((at, _))| *at);
        let Some(now) = next_due.into_iter().chain(world.next_finish()).min().filter(|at| *at <= end) else { break };
        if let Some((target, finish)) = world.finish(now) {
            let (interval, began) = &mut targets[target];
            if let Finish::Success { critical, .. } = finish {
                *interval = optimum.0[world.classes[target]][usize::from(critical)];
            }
            due.push(Reverse((began.after(Duration::from_secs_f64(*interval)).max(now), target)));
        } else if let Some(Reverse((_, target))) = due.pop() {
            targets[target].1 = now;
            polls += 1;
            world.start(target, now);
        }
    }
    world.row(polls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(begins: f64, ends: f64) -> Chain {
        Chain { rates: [begins, ends], bounds: [0.1, 100_000.0] }
    }

    #[test]
    fn the_expected_delays_match_a_numeric_integral() {
        for (chain, interval) in [(chain(0.001, 0.01), 30.0), (chain(0.1, 0.002), 300.0), (chain(1e-7, 1e-6), 5.0)] {
            for state in 0..2 {
                let (out, back) = (chain.rates[state], chain.rates[1 - state]);
                // Euler's method for the probability of still being in this state.
                const PARTS: usize = 200_000;
                let step = interval / PARTS as f64;
                let (mut here, mut delay) = (1.0, 0.0);
                for part in 0..PARTS {
                    let left = interval - (part as f64 + 0.5) * step;
                    delay += left * (out * here + back * (1.0 - here)) * step;
                    here += (back * (1.0 - here) - out * here) * step;
                }
                let found = chain.delay(state, interval);
                assert!((found / delay - 1.0).abs() < 1e-3, "{chain:?} {state}: {found}, {delay}");
            }
        }
    }

    #[test]
    fn intervals_follow_the_inverse_square_root_of_small_rates() {
        // Both states are left equally fast, so that the delays do not depend on the state.
        let interval = |rate: f64| chain(rate, rate).best(1e-3)[0];
        let (slow, fast) = (interval(1e-6), interval(1e-4));
        assert!((slow / fast / 10.0 - 1.0).abs() < 0.02, "{slow} {fast}");
        let never = chain(0.0, 0.0).best(1.0);
        assert!(never[0] > 99_000.0, "a target that never changes is polled as rarely as allowed: {never:?}");
    }

    #[test]
    fn the_best_intervals_are_better_than_their_neighbours() {
        let (chain, price) = (chain(0.0005, 0.01), 0.5);
        let cost = |intervals: [f64; 2]| {
            let average = chain.average(intervals);
            average.delay + price * average.polls
        };
        let best = chain.best(price);
        for factors in [[0.9, 1.0], [1.1, 1.0], [1.0, 0.9], [1.0, 1.1]] {
            let other = [best[0] * factors[0], best[1] * factors[1]];
            assert!(cost(other) > cost(best), "{best:?} {other:?}");
        }
    }
}
