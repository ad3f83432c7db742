//! Counters and histograms of polls and of the driver's loop, with a handle for each target.
//!
//! A handle is made once for a target, so that counting a poll builds no labels. States (gauges of the present) are not
//! kept here: `web` reads them from the read model when Prometheus asks.

#![forbid(unsafe_code)]

use model::{FailureCategory, Kind, TargetId};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Pulse's buckets for the duration of a poll, with two smaller ones for fast targets.
const DURATIONS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0];
/// Pulse's buckets for the time that a due poll waits, with smaller ones, because most polls wait a few milliseconds.
const WAITS: [f64; 21] = [
    0.000_5, 0.001, 0.001_5, 0.002, 0.002_5, 0.003, 0.004, 0.005, 0.007_5, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];
/// Buckets for turns of the driver's loop and for reconfigurations, which take microseconds to milliseconds.
const TURNS: [f64; 12] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

/// One counter or gauge of the process, without labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The whole name.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// Whether it is a counter: it never decreases.
    pub is_counter: bool,
    /// The value.
    pub value: f64,
}

impl Reading {
    /// A counter.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, is_counter: true, value: value as f64 }
    }

    /// A gauge.
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { name, help, is_counter: false, value }
    }
}

/// Names and values of a series' labels.
type Labels = Vec<(String, String)>;

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Everything that is counted.
pub struct Metrics {
    prefix: String,
    registry: Registry,
    series: Series,
    turns: Histogram,
    oldest: Histogram,
    reconfigurations: Histogram,
}

/// The families that have a series for each target or kind.
#[derive(Clone)]
struct Series {
    polls: Family<Labels, Counter>,
    durations: Histograms,
    errors: Family<Labels, Counter>,
    waits: Histograms,
}

/// The series of one target. Each is created when it is first counted.
#[derive(Clone)]
pub struct TargetMetrics(Arc<Inner>);

struct Inner {
    labels: Labels,
    series: Series,
    success: OnceLock<Counter>,
    error: OnceLock<Counter>,
    errors: [OnceLock<Counter>; FailureCategory::ALL.len()],
    duration: OnceLock<Histogram>,
    wait: Histogram,
    forgotten: AtomicBool,
}

/// The label with a target's kind.
pub const INSTANCE_TYPE: &str = "instance_type";
/// The label with a target's id.
pub const INSTANCE: &str = "instance";

/// The labels that name a target.
fn instance(kind: &Kind, target: &TargetId) -> Labels {
    vec![(INSTANCE_TYPE.to_owned(), kind.to_string()), (INSTANCE.to_owned(), target.to_string())]
}

/// The same labels and one more.
fn with(mut labels: Labels, name: &str, value: &str) -> Labels {
    labels.push((name.to_owned(), value.to_owned()));
    labels
}

impl Metrics {
    /// An empty set whose names begin with `prefix`.
    pub fn new(prefix: &str) -> Self {
        let mut registry = Registry::default();
        let name = |name: &str| format!("{prefix}_{name}");
        let histograms = |buckets: fn() -> Histogram| Histograms::new_with_constructor(buckets);
        let series = Series {
            polls: Family::default(),
            durations: histograms(|| Histogram::new(DURATIONS)),
            errors: Family::default(),
            waits: histograms(|| Histogram::new(WAITS)),
        };
        let (turns, oldest, reconfigurations) = (Histogram::new(TURNS), Histogram::new(TURNS), Histogram::new(TURNS));
        registry.register(name("poll"), "Polls by result", series.polls.clone());
        registry.register(name("poll_duration_seconds"), "How long polls took", series.durations.clone());
        registry.register(name("poll_errors"), "Failed polls by category", series.errors.clone());
        registry.register(
            name("scheduler_queue_wait_seconds"),
            "How long after their due time polls started",
            series.waits.clone(),
        );
        registry.register(name("loop_turn_seconds"), "How long turns of the scheduling loop took", turns.clone());
        registry.register(
            name("loop_oldest_message_seconds"),
            "How long the oldest message of a turn of the scheduling loop had waited",
            oldest.clone(),
        );
        registry.register(
            name("reconfiguration_seconds"),
            "How long changes of the configuration took to be checked and applied",
            reconfigurations.clone(),
        );
        Self { prefix: prefix.to_owned(), registry, series, turns, oldest, reconfigurations }
    }

    /// The first word of every name.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The families, to be encoded.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The handle for a target.
    pub fn target(&self, kind: &Kind, target: &TargetId) -> TargetMetrics {
        let of_kind = vec![(INSTANCE_TYPE.to_owned(), kind.to_string())];
        TargetMetrics(Arc::new(Inner {
            labels: instance(kind, target),
            series: self.series.clone(),
            success: OnceLock::new(),
            error: OnceLock::new(),
            errors: [const { OnceLock::new() }; FailureCategory::ALL.len()],
            duration: OnceLock::new(),
            wait: self.series.waits.get_or_create_owned(&of_kind),
            forgotten: AtomicBool::new(false),
        }))
    }

    /// Counts a change of the configuration, and how long it took.
    pub fn reconfiguration(&self, took: Duration) {
        self.reconfigurations.observe(took.as_secs_f64());
    }

    /// Counts a turn of the driver's loop: how long it took, and how long its oldest message had waited.
    pub fn turn(&self, took: Duration, oldest: Option<Duration>) {
        self.turns.observe(took.as_secs_f64());
        if let Some(oldest) = oldest {
            self.oldest.observe(oldest.as_secs_f64());
        }
    }
}

impl TargetMetrics {
    /// Counts a poll that ended after `wall`; `failure` is the category of its failure, if it failed.
    pub fn poll(&self, wall: Duration, failure: Option<FailureCategory>) {
        let Inner { labels, series, success, error, errors, duration, forgotten, .. } = &*self.0;
        // A result that was committed late must not bring back the series of a removed target.
        if forgotten.load(Ordering::Relaxed) {
            return;
        }
        let result = |word: &str| series.polls.get_or_create_owned(&with(labels.clone(), "result", word));
        match failure {
            None => success.get_or_init(|| result("success")).inc(),
            Some(category) => {
                error.get_or_init(|| result("error")).inc();
                let count = || series.errors.get_or_create_owned(&with(labels.clone(), "category", category.as_str()));
                errors[index(category)].get_or_init(count).inc()
            }
        };
        duration.get_or_init(|| series.durations.get_or_create_owned(labels)).observe(wall.as_secs_f64());
    }

    /// Counts a start, and how long after its due time it came.
    pub fn start(&self, late: Duration) {
        self.0.wait.observe(late.as_secs_f64());
    }

    /// Removes the target's series.
    pub fn forget(&self) {
        let Inner { labels, series, forgotten, .. } = &*self.0;
        forgotten.store(true, Ordering::Relaxed);
        series.durations.remove(labels);
        for result in ["success", "error"] {
            series.polls.remove(&with(labels.clone(), "result", result));
        }
        for category in FailureCategory::ALL {
            series.errors.remove(&with(labels.clone(), "category", category.as_str()));
        }
    }
}

const fn index(category: FailureCategory) -> usize {
    match category {
        FailureCategory::Transient => 0,
        FailureCategory::Permanent => 1,
        FailureCategory::Misconfigured => 2,
        FailureCategory::Plugin => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode_registry;

    #[test]
    fn series_exist_once_counted_and_go_with_their_target() {
        let metrics = Metrics::new("p");
        let (kind, id) = (Kind::new("http").unwrap(), TargetId::new("a").unwrap());
        let target = metrics.target(&kind, &id);
        let series = || {
            let mut text = String::new();
            encode_registry(&mut text, metrics.registry()).unwrap();
            text.lines().filter(|line| line.contains("instance=\"a\"") && !line.contains("_bucket")).count()
        };
        assert_eq!(series(), 0);
        let wall = Duration::from_millis(20);
        target.poll(wall, None);
        assert_eq!(series(), 3, "one result, and sum and count of the duration");
        target.poll(wall, Some(FailureCategory::Permanent));
        assert_eq!(series(), 5, "another result, and a category");
        target.forget();
        target.poll(wall, None);
        assert_eq!(series(), 0, "a late result brings nothing back");
    }
}
