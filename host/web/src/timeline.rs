//! The past of a target and of its dependencies as periods of one state, and their availability. Pure.
//!
//! Periods follow from the stored changes, so that durations are exact, and cover the whole time of a [`History`].

use model::{DependencyState, History, Status, StatusChange, TargetState, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

/// The state of a target or dependency during a period. If a part of a picture has several, the greatest is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// It did not exist yet, it was missing, or no host ran.
    NoData,
    /// Healthy.
    Ok,
    /// Polls of the target failed: the last status of the dependency may be out of date.
    Stale,
    /// The status could not be determined.
    Unknown,
    /// Healthy, but needs attention.
    Warning,
    /// Does not work.
    Critical,
    /// Polls of the target failed.
    Unreachable,
}

impl State {
    pub(crate) const ALL: [Self; 7] =
        [Self::NoData, Self::Ok, Self::Stale, Self::Unknown, Self::Warning, Self::Critical, Self::Unreachable];

    /// The word in pages and API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NoData => "no_data",
            Self::Ok => "ok",
            Self::Stale => "stale",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Unreachable => "unreachable",
        }
    }

    /// Whether the state counts as available; `None` if it does not count.
    const fn is_up(self) -> Option<bool> {
        match self {
            Self::Ok | Self::Warning => Some(true),
            Self::Critical | Self::Unreachable => Some(false),
            Self::NoData | Self::Stale | Self::Unknown => None,
        }
    }
}

impl From<Status> for State {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::Warning => Self::Warning,
            Status::Unknown => Self::Unknown,
            Status::Critical => Self::Critical,
        }
    }
}

/// A time during which the state was the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub from: Timestamp,
    pub to: Timestamp,
    pub state: State,
}

/// How long something was available and how long it was not. The rest of the time is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Availability {
    pub up: Duration,
    pub down: Duration,
}

impl Availability {
    /// Sums up periods between two times.
    pub(crate) fn of(periods: &[Period], (from, to): (Timestamp, Timestamp)) -> Self {
        let mut sum = Self::default();
        for period in periods {
            let length = period.to.min(to).since(period.from.max(from));
            match period.state.is_up() {
                Some(true) => sum.up += length,
                Some(false) => sum.down += length,
                None => {}
            }
        }
        sum
    }

    /// The share of the known time that it was available, from 0 to 1; `None` if no time is known.
    pub(crate) fn share(self) -> Option<f64> {
        let known = self.up + self.down;
        (!known.is_zero()).then(|| self.up.as_secs_f64() / known.as_secs_f64())
    }
}

/// The past of a target until `now`.
pub(crate) struct Past<'a> {
    target: &'a TargetState,
    since: Timestamp,
    now: Timestamp,
    changes: HashMap<&'a str, Vec<&'a StatusChange>>,
    /// The times in which polls failed.
    failing: Vec<(Timestamp, Timestamp)>,
    gaps: &'a [(Timestamp, Timestamp)],
}

impl<'a> Past<'a> {
    pub(crate) fn new(target: &'a TargetState, history: &'a History, now: Timestamp) -> Self {
        let mut changes: HashMap<&str, Vec<&StatusChange>> = HashMap::new();
        for change in &history.statuses {
            changes.entry(&change.dependency).or_default().push(change);
        }
        let (mut failing, mut since) = (Vec::new(), None);
        for change in &history.polls {
            match (&change.failure, since) {
                (Some(_), None) => since = Some(change.at),
                (None, Some(from)) => {
                    failing.push((from, change.at));
                    since = None;
                }
                _ => {}
            }
        }
        failing.extend(since.map(|from| (from, now)));
        Self { target, since: history.since, now, changes, failing, gaps: &history.gaps }
    }

    /// The periods of a dependency.
    pub(crate) fn of_dependency(&self, dependency: &DependencyState) -> Vec<Period> {
        let periods = self.reported(dependency);
        overlaid(&overlaid(&periods, &self.failing, State::Stale), self.gaps, State::NoData)
    }

    /// The periods of the target: the worst state of its dependencies, or unreachable.
    pub(crate) fn of_target(&self) -> Vec<Period> {
        // The number of dependencies in each state changes at the borders of their periods.
        let mut borders: Vec<(Timestamp, State, i64)> = Vec::new();
        for dependency in self.target.observed.dependencies.iter() {
            for period in self.reported(dependency) {
                borders.push((period.from, period.state, 1));
                borders.push((period.to, period.state, -1));
            }
        }
        borders.sort_unstable_by_key(|(at, ..)| *at);
        let (mut periods, mut counts, mut from) = (Vec::new(), [0_i64; State::ALL.len()], self.since);
        for (at, state, change) in borders {
            if at > from {
                push(&mut periods, Period { from, to: at, state: worst(&counts) });
                from = at;
            }
            counts[state as usize] += change;
        }
        if self.now > from {
            push(&mut periods, Period { from, to: self.now, state: worst(&counts) });
        }
        overlaid(&overlaid(&periods, &self.failing, State::Unreachable), self.gaps, State::NoData)
    }

    /// The periods of a dependency as it was reported.
    fn reported(&self, dependency: &DependencyState) -> Vec<Period> {
        let record = &dependency.record;
        let changes = self.changes.get(record.reported.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let first = changes.first().map_or(record.reported.status, |change| change.previous);
        let begin = record.first_seen.max(self.since).min(self.now);
        let end = record.missing_since.unwrap_or(self.now).clamp(begin, self.now);
        let mut periods = Vec::new();
        push(&mut periods, Period { from: self.since, to: begin, state: State::NoData });
        let (mut from, mut state) = (begin, State::from(first));
        for change in changes {
            let at = change.at.clamp(from, end);
            push(&mut periods, Period { from, to: at, state });
            (from, state) = (at, State::from(change.current));
        }
        push(&mut periods, Period { from, to: end, state });
        push(&mut periods, Period { from: end, to: self.now, state: State::NoData });
        periods
    }
}

fn worst(counts: &[i64; State::ALL.len()]) -> State {
    State::ALL.into_iter().rev().find(|state| counts[*state as usize] > 0).unwrap_or(State::NoData)
}

/// Appends a period that is not empty, and merges it with the last one if their states are the same.
fn push(periods: &mut Vec<Period>, period: Period) {
    if period.to <= period.from {
        return;
    }
    match periods.last_mut() {
        Some(last) if last.state == period.state => last.to = period.to,
        _ => periods.push(period),
    }
}

/// Returns the periods with `state` during the spans, which are in order.
fn overlaid(periods: &[Period], spans: &[(Timestamp, Timestamp)], state: State) -> Vec<Period> {
    let (mut result, mut next) = (Vec::with_capacity(periods.len()), 0);
    for period in periods {
        let mut from = period.from;
        while let Some((begin, end)) = spans.get(next).filter(|(begin, _)| *begin < period.to) {
            push(&mut result, Period { from, to: (*begin).max(from), state: period.state });
            from = from.max((*begin).max(from));
            let to = (*end).clamp(from, period.to);
            push(&mut result, Period { from, to, state });
            from = to;
            if *end > period.to {
                break;
            }
            next += 1;
        }
        push(&mut result, Period { from, to: period.to, state: period.state });
    }
    result
}

/// Returns the greatest state of each of `count` equal parts of the time between two times.
pub(crate) fn columns(periods: &[Period], (from, to): (Timestamp, Timestamp), count: usize) -> Vec<State> {
    let mut columns = vec![State::NoData; count];
    let width = (to.as_millis() - from.as_millis()).max(1) as f64 / count as f64;
    let place = |at: Timestamp| (at.as_millis() - from.as_millis()) as f64 / width;
    for period in periods.iter().filter(|period| period.to > from && period.from < to) {
        let first = place(period.from).floor().clamp(0.0, count as f64) as usize;
        let end = place(period.to).ceil().clamp(0.0, count as f64) as usize;
        for column in &mut columns[first..end] {
            *column = (*column).max(period.state);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::{dependency, target, with};
    use model::{FailureCategory, PollChange};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn reporting(dependencies: &[(&str, Status)]) -> TargetState {
        with(target("t"), |observed| {
            let all = dependencies.iter().map(|(name, status)| dependency(name, *status));
            observed.dependencies = Arc::new(all.collect());
        })
    }

    fn change(name: &str, seconds: i64, previous: Status, current: Status) -> StatusChange {
        StatusChange { dependency: name.to_owned(), previous, current, at: at(seconds) }
    }

    fn words(periods: &[Period]) -> Vec<(i64, i64, &'static str)> {
        let seconds = |at: Timestamp| at.as_millis() / 1000;
        periods.iter().map(|period| (seconds(period.from), seconds(period.to), period.state.as_str())).collect()
    }

    fn fails(seconds: i64) -> PollChange {
        let failure = (FailureCategory::Transient, "timeout".to_owned(), "it did not answer".to_owned());
        PollChange { failure: Some(failure), at: at(seconds) }
    }

    #[test]
    fn periods_follow_from_changes_failures_and_gaps() {
        let mut target = reporting(&[("a", Status::Ok), ("b", Status::Critical)]);
        let observed = Arc::make_mut(&mut target.observed);
        let second = &mut Arc::make_mut(&mut observed.dependencies)[1];
        Arc::make_mut(&mut second.record).first_seen = at(300);
        let history = History {
            since: at(100),
            statuses: vec![
                change("a", 200, Status::Ok, Status::Warning),
                change("a", 250, Status::Warning, Status::Ok),
                change("b", 800, Status::Ok, Status::Critical),
            ],
            polls: vec![fails(400), fails(410), PollChange { failure: None, at: at(500) }],
            gaps: vec![(at(600), at(700))],
            ..History::default()
        };
        let past = Past::new(&target, &history, at(1000));
        let of = |n: usize| words(&past.of_dependency(&target.observed.dependencies[n]));
        let a = [
            (100, 200, "ok"),
            (200, 250, "warning"),
            (250, 400, "ok"),
            (400, 500, "stale"),
            (500, 600, "ok"),
            (600, 700, "no_data"),
            (700, 1000, "ok"),
        ];
        assert_eq!(of(0), a);
        let b = [
            (100, 300, "no_data"),
            (300, 400, "ok"),
            (400, 500, "stale"),
            (500, 600, "ok"),
            (600, 700, "no_data"),
            (700, 800, "ok"),
            (800, 1000, "critical"),
        ];
        assert_eq!(of(1), b);
        let periods = past.of_target();
        let all = [
            (100, 200, "ok"),
            (200, 250, "warning"),
            (250, 400, "ok"),
            (400, 500, "unreachable"),
            (500, 600, "ok"),
            (600, 700, "no_data"),
            (700, 800, "ok"),
            (800, 1000, "critical"),
        ];
        assert_eq!(words(&periods), all);
        let availability = Availability::of(&periods, (at(0), at(1000)));
        assert_eq!((availability.up.as_secs(), availability.down.as_secs()), (500, 300));
        assert_eq!(availability.share(), Some(0.625));
        let recent = Availability::of(&periods, (at(900), at(1000)));
        assert_eq!(recent.share(), Some(0.0));
        assert_eq!(Availability::of(&periods, (at(620), at(680))).share(), None);
        let states = columns(&periods, (at(0), at(1000)), 10).into_iter().map(State::as_str).collect::<Vec<_>>();
        let expected = ["no_data", "ok", "warning", "ok", "unreachable", "ok", "no_data", "ok", "critical", "critical"];
        assert_eq!(states, expected);
    }

    #[test]
    fn a_target_without_reports_has_no_data_until_polls_fail() {
        let target = reporting(&[]);
        let history = History { since: at(0), polls: vec![fails(-50)], ..History::default() };
        let past = Past::new(&target, &history, at(10));
        assert_eq!(words(&past.of_target()), [(0, 10, "unreachable")]);
        let quiet = History::default();
        let none = Past::new(&target, &quiet, at(10));
        assert_eq!(words(&none.of_target()), [(0, 10, "no_data")]);
    }

    proptest! {
        /// Whatever is stored, in whatever order a clock that jumps may cause, the periods cover the time without
        /// overlap.
        #[test]
        fn periods_cover_the_time(
            changes in prop::collection::vec((-100_i64..300, 0_usize..4, 0_usize..4), 0..12),
            polls in prop::collection::vec((-100_i64..300, any::<bool>()), 0..8),
            mut gaps in prop::collection::vec((-100_i64..300, 0_i64..50), 0..4),
            first_seen in -100_i64..300,
            missing in prop::option::of(-100_i64..300),
        ) {
            let mut target = reporting(&[("a", Status::Ok)]);
            let observed = Arc::make_mut(&mut target.observed);
            let record = Arc::make_mut(&mut Arc::make_mut(&mut observed.dependencies)[0].record);
            (record.first_seen, record.missing_since) = (at(first_seen), missing.map(at));
            gaps.sort_unstable();
            let history = History {
                since: at(0),
                statuses: (changes.into_iter())
                    .map(|(seconds, from, to)| change("a", seconds, Status::ALL[from], Status::ALL[to]))
                    .collect(),
                polls: (polls.into_iter())
                    .map(|(seconds, failed)| if failed { fails(seconds) } else { PollChange { failure: None, at: at(seconds) } })
                    .collect(),
                gaps: gaps.into_iter().map(|(begin, length)| (at(begin), at(begin + length))).collect(),
                ..History::default()
            };
            let past = Past::new(&target, &history, at(200));
            for periods in [past.of_dependency(&target.observed.dependencies[0]), past.of_target()] {
                prop_assert_eq!(periods.first().map(|period| period.from), Some(at(0)));
                prop_assert_eq!(periods.last().map(|period| period.to), Some(at(200)));
                prop_assert!(periods.iter().all(|period| period.from < period.to));
                prop_assert!(periods.windows(2).all(|pair| pair[0].to == pair[1].from && pair[0].state != pair[1].state));
            }
        }
    }
}
