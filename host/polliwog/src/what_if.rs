//! Replays the recorded changes of this host under other cadences and intervals.

use model::{History, Replay, ReplayRow, Status, TargetId, Timestamp};
use scheduler::simulator::{Change, Recorded, Replayed, replay};
use scheduler::{Settings, TargetSpec};
use std::collections::HashMap;
use std::time::Duration;
use store::{ReadError, Reader};

/// The maximum number of polls of one replay at the targets' intervals. Five replays of them take a few seconds.
const POLLS: f64 = 300_000.0;
/// The share of them for targets with changes. Others show only what a cadence costs.
const OF_CHANGED: f64 = 0.75;
/// At least this number of targets is replayed, in a shorter time if need be.
const TARGETS: usize = 12;
/// The interval of a target without a configured one.
const INTERVAL: Duration = Duration::from_secs(10);

/// The running host, as far as a replay needs it.
pub(crate) struct Present {
    pub settings: Settings,
    pub specs: Vec<TargetSpec>,
    /// The current interval of each target.
    pub intervals: HashMap<TargetId, Duration>,
    /// The mean duration of a poll.
    pub latency: Duration,
    /// The processor time of a poll.
    pub cpu: Option<Duration>,
}

/// Replays the changes since a time. Blocks.
pub(crate) fn what_if(
    reader: &Reader,
    present: Present,
    (since, now): (Timestamp, Timestamp),
) -> Result<Replay, ReadError> {
    let Present { settings, mut specs, intervals, latency, cpu } = present;
    let span = now.since(since);
    let interval = |spec: &TargetSpec| {
        let configured = spec.interval.or(spec.kind_interval).or(settings.base);
        intervals.get(&spec.id).copied().or(configured).unwrap_or(INTERVAL).max(Duration::from_secs(1))
    };
    specs.retain(|spec| spec.enabled);
    let of = specs.len();
    // The hash of the URL chooses the same part each time, whatever the targets' names.
    specs.sort_by_key(|spec| spec.url_hash);
    let rate: f64 = specs.iter().take(TARGETS).map(|spec| interval(spec).as_secs_f64().recip()).sum();
    let span = span.min(Duration::try_from_secs_f64(POLLS / rate).unwrap_or(span));
    let since = now.before(span);
    let (mut changed, mut quiet) = (Vec::new(), Vec::new());
    for spec in specs {
        let changes = changes(&reader.history(&spec.id, since)?, since);
        let part = if changes.is_empty() { &mut quiet } else { &mut changed };
        part.push(Recorded { interval: interval(&spec), spec, latency, weight: 1.0, changes });
    }
    let mut recorded = sample(changed, (span, POLLS * OF_CHANGED));
    recorded.extend(sample(quiet, (span, POLLS * (1.0 - OF_CHANGED))));
    let changes = recorded.iter().map(|recorded| recorded.changes.len()).sum();
    let rows = replay(&recorded, span, &settings, 1);
    let row = |Replayed { name, row, mean }: Replayed| ReplayRow {
        name,
        current: name == settings.cadence.as_str(),
        polls: row.polls,
        changes: row.changes,
        missed: row.missed,
        mean: row.mean,
        p95: row.p95,
        likely: mean,
    };
    Ok(Replay { targets: recorded.len(), of, changes, span, cpu, rows: rows.into_iter().map(row).collect() })
}

/// Takes as many targets as a number of polls allows, but at least one. They stand for all of these targets.
fn sample(all: Vec<Recorded>, (span, polls): (Duration, f64)) -> Vec<Recorded> {
    let count = all.len();
    let mut sum = 0.0;
    let fits = |recorded: &Recorded| {
        let is_first = sum == 0.0;
        sum += span.as_secs_f64() / recorded.interval.as_secs_f64();
        is_first || sum <= polls
    };
    let mut chosen: Vec<Recorded> = all.into_iter().take_while(fits).collect();
    let weight = count as f64 / chosen.len().max(1) as f64;
    chosen.iter_mut().for_each(|recorded| recorded.weight = weight);
    chosen
}

/// The changes of a target, in order, by their time since the begin.
fn changes(history: &History, since: Timestamp) -> Vec<(Duration, Change)> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut statuses: HashMap<usize, Status> = HashMap::new();
    let mut changes = Vec::new();
    for change in history.statuses.iter().filter(|change| change.at >= since) {
        let next = numbers.len();
        let dependency = *numbers.entry(&change.dependency).or_insert(next);
        // A dependency that was missing may return with another status than it had.
        let before = statuses.insert(dependency, change.current).unwrap_or(change.previous);
        if before != change.current {
            changes.push((change.at.since(since), Change::Status { dependency, before, after: change.current }));
        }
    }
    let mut fails = None;
    for change in &history.polls {
        let now_fails = change.failure.is_some();
        if fails.replace(now_fails) != Some(now_fails) && change.at >= since {
            changes.push((change.at.since(since), Change::Reach { fails: now_fails }));
        }
    }
    changes.sort_by_key(|(at, _)| *at);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{FailureCategory, PollChange, StatusChange};

    #[test]
    fn recorded_changes_become_a_sequence_of_states() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let change = |seconds, dependency: &str, previous, current| StatusChange {
            dependency: dependency.to_owned(),
            previous,
            current,
            at: at(seconds),
        };
        let poll = |seconds, code: Option<&str>| PollChange {
            failure: code.map(|code| (FailureCategory::Transient, code.to_owned(), String::new())),
            at: at(seconds),
        };
        let history = History {
            since: at(0),
            statuses: vec![
                change(5, "db", Status::Ok, Status::Critical),
                change(110, "db", Status::Ok, Status::Critical),
                change(120, "web", Status::Ok, Status::Warning),
                change(130, "db", Status::Critical, Status::Ok),
                change(140, "db", Status::Critical, Status::Ok),
            ],
            // Polls failed already; another reason for failing is no change.
            polls: vec![poll(90, Some("timeout")), poll(115, Some("refused")), poll(125, None)],
            errors: Vec::new(),
            gaps: Vec::new(),
        };
        let status = |dependency, before, after| Change::Status { dependency, before, after };
        let expected = [
            (10, status(0, Status::Ok, Status::Critical)),
            (20, status(1, Status::Ok, Status::Warning)),
            (25, Change::Reach { fails: false }),
            (30, status(0, Status::Critical, Status::Ok)),
        ];
        let expected: Vec<_> = expected.map(|(seconds, change)| (Duration::from_secs(seconds), change)).into();
        assert_eq!(changes(&history, at(100)), expected);
    }
}
