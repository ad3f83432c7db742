//! A replay of recorded changes under other cadences.

use std::time::Duration;

/// Recorded changes, and what other cadences and intervals would have cost and detected.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The number of replayed targets. Of many targets, a part is replayed, and stands for all of them.
    pub targets: usize,
    /// The number of targets that are polled.
    pub of: usize,
    /// The number of recorded changes of the replayed targets.
    pub changes: usize,
    /// The time until now that was replayed. It is shorter than the requested time if that would take too long.
    pub span: Duration,
    /// The processor time of one poll, as a mean since the host started; `None` before the first poll.
    pub cpu: Option<Duration>,
    /// A row for each cadence.
    pub rows: Vec<ReplayRow>,
}

/// A cadence in a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayRow {
    /// The cadence and its intervals.
    pub name: &'static str,
    /// Whether the targets are polled this way now, unless a target has its own cadence.
    pub current: bool,
    /// The number of polls.
    pub polls: u64,
    /// The number of changes that a poll followed.
    pub changes: u64,
    /// The share of changes that were undone before a poll.
    pub missed: f64,
    /// The mean delay from a change to the next poll.
    pub mean: Duration,
    /// The 95th percentile of that delay.
    pub p95: Duration,
    /// The range of the mean, with a probability of 90 %, as far as the number of changes shows.
    pub likely: (Duration, Duration),
}
