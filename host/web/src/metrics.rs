//! What Prometheus sees: Pulse's seven metrics, RedFlag's, and what plugins report.
//!
//! What is counted is kept here; what is a state of the host is taken from an [`Overview`] when somebody asks, so that a
//! series goes when its target goes.

mod exposition;
mod samples;

pub(crate) use exposition::Format;

use crate::host::{DependencyView, Overview, PluginUsage, PluginView, TargetView};
use model::{FailureCategory, Kind, Status, TargetId, Timestamp};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Pulse's buckets, and two below them for what answers fast.
const BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0];

/// Pulse's buckets for the time that a due poll waits, and finer ones below them: that is where it belongs.
const WAITS: [f64; 16] =
    [0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

type Labels = Vec<(String, String)>;
/// One line of a family.
type Value = (Labels, f64);
type FloatGauge = Gauge<f64, AtomicU64>;
type FloatCounter = Counter<f64, AtomicU64>;

/// Everything that is counted.
pub struct Metrics {
    prefix: String,
    registry: Registry,
    polls: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    errors: Family<Labels, Counter>,
    waits: Family<Labels, Histogram, fn() -> Histogram>,
    /// Label sets of each target, to be removed with it.
    series: Mutex<BTreeMap<TargetId, Kind>>,
}

/// How a poll went.
#[derive(Clone, Copy, Debug)]
pub struct PollMeasure {
    /// How long it took.
    pub wall: Duration,
    /// Why there is no report.
    pub failure: Option<FailureCategory>,
}

fn instance(kind: &Kind, target: &TargetId) -> Labels {
    vec![("instance_type".to_owned(), kind.to_string()), ("instance".to_owned(), target.to_string())]
}

fn with(mut labels: Labels, name: &str, value: &str) -> Labels {
    labels.push((name.to_owned(), value.to_owned()));
    labels
}

/// What is known of a target beside its state. Labels of an operator's keep their names where Prometheus takes them.
fn info(target: &TargetView) -> Labels {
    let mut labels = instance(&target.kind, &target.id);
    for (name, value) in [("name", &*target.name), ("url", &target.url), ("kind", target.kind.as_str())] {
        labels.push((name.to_owned(), value.to_owned()));
    }
    for (name, value) in &target.labels {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut plain: String = name.chars().map(plain).collect();
        let taken = |name: &str| labels.iter().any(|(held, _)| held == name);
        if plain.starts_with(|c: char| c.is_ascii_digit()) || plain.starts_with("__") || taken(&plain) {
            plain = format!("label_{plain}");
        }
        if !taken(&plain) {
            labels.push((plain, value.clone()));
        }
    }
    labels
}

impl Metrics {
    /// With `polliwog` or another prefix.
    pub fn new(prefix: &str) -> Self {
        let mut registry = Registry::default();
        let polls = Family::default();
        let durations: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let errors = Family::default();
        registry.register(format!("{prefix}_poll"), "Polls by result", polls.clone());
        registry.register(format!("{prefix}_poll_duration_seconds"), "How long polls took", durations.clone());
        registry.register(format!("{prefix}_poll_errors"), "Failed polls by category", errors.clone());
        let waits: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(|| Histogram::new(WAITS));
        let help = "How long polls waited from their due time to their start";
        registry.register(format!("{prefix}_scheduler_queue_wait_seconds"), help, waits.clone());
        Self { prefix: prefix.to_owned(), registry, polls, durations, errors, waits, series: Mutex::default() }
    }

    /// Counts a poll.
    pub fn poll(&self, kind: &Kind, target: &TargetId, measure: PollMeasure) {
        let labels = instance(kind, target);
        self.series.lock().unwrap_or_else(PoisonError::into_inner).insert(target.clone(), kind.clone());
        let result = if measure.failure.is_some() { "error" } else { "success" };
        self.polls.get_or_create(&with(labels.clone(), "result", result)).inc();
        if let Some(category) = measure.failure {
            self.errors.get_or_create(&with(labels.clone(), "category", category.as_str())).inc();
        }
        self.durations.get_or_create(&labels).observe(measure.wall.as_secs_f64());
    }

    /// Counts a start, and how long after its due time it came.
    pub fn start(&self, kind: &Kind, late: Duration) {
        let labels = vec![("instance_type".to_owned(), kind.to_string())];
        self.waits.get_or_create(&labels).observe(late.as_secs_f64());
    }

    /// Takes a target's series away.
    pub fn forget(&self, target: &TargetId) {
        let kind = self.series.lock().unwrap_or_else(PoisonError::into_inner).remove(target);
        let Some(kind) = kind else { return };
        let labels = instance(&kind, target);
        self.durations.remove(&labels);
        for result in ["success", "error"] {
            self.polls.remove(&with(labels.clone(), "result", result));
        }
        for category in [FailureCategory::Transient, FailureCategory::Permanent, FailureCategory::Plugin] {
            self.errors.remove(&with(labels.clone(), "category", category.as_str()));
        }
    }

    /// All of them, in OpenMetrics' text format.
    pub(crate) fn render(&self, overview: &Overview, now: Timestamp) -> String {
        let states = self.states(overview, now);
        let mut text = String::new();
        // Writing to a string fails only when a label's own encoding does, and ours are plain text.
        for registry in [&self.registry, &states] {
            if let Err(error) = encode_registry(&mut text, registry) {
                tracing::error!("metrics could not be written: {error}");
            }
        }
        let _ = encode_eof(&mut text);
        text
    }

    fn states(&self, overview: &Overview, now: Timestamp) -> Registry {
        let mut states = Registry::default();
        let prefix = &self.prefix;
        let mut gauges = |name: &str, help: &str, values: Vec<(Labels, f64)>| {
            states.register(format!("{prefix}_{name}"), help, family(&values, FloatGauge::set));
        };
        let by_target = |value: &dyn Fn(&TargetView) -> Option<f64>| -> Vec<(Labels, f64)> {
            overview.targets.iter().filter_map(|t| Some((instance(&t.kind, &t.id), value(t)?))).collect()
        };
        let seconds = |at: Timestamp| at.as_millis() as f64 / 1000.0;
        gauges(
            "poll_staleness_seconds",
            "0 while the last poll succeeded, age of the last success while failing, -1 never",
            by_target(&|target| Some(staleness(target, now))),
        );
        gauges(
            "poll_last_success_timestamp",
            "When a target last answered, in seconds since 1970",
            by_target(&|target| target.last_success.map(seconds)),
        );
        let kinds = overview.in_flight.iter();
        let in_flight = kinds.map(|(kind, n)| (vec![("instance_type".to_owned(), kind.to_string())], *n as f64));
        gauges("poll_inflight", "Polls in flight", in_flight.collect());
        gauges(
            "target_status",
            "0 ok, 1 warning, 2 critical, 3 unknown, 4 unreachable or without a plugin",
            by_target(&|target| target.status().number()),
        );
        gauges(
            "target_up",
            "1 while a target can be polled, 0 while it cannot",
            by_target(&|target| target.status().number().map(|number| f64::from(u8::from(number < 4.0)))),
        );
        let info = overview.targets.iter().map(|target| (info(target), 1.0));
        gauges("target_info", "What a target is: its name, URL, kind and labels", info.collect());
        let dependencies = overview.targets.iter().filter(|target| target.enabled).flat_map(|target| {
            let named = |name: &str| with(instance(&target.kind, &target.id), "dependency", name);
            target.dependencies.iter().map(move |found| (named(&found.name), number(target, found)))
        });
        gauges(
            "dependency_status",
            "0 ok, 1 warning, 2 critical, 3 unknown, 4 stale: its target cannot be polled, 5 missing from the last report",
            dependencies.collect(),
        );
        let depth = FloatGauge::default();
        depth.set(overview.depth as f64);
        states.register(format!("{prefix}_poll_queue_depth"), "Targets that wait for their turn", depth);
        for (name, help, counts, value) in &overview.process.numbers {
            if *counts {
                let counter = FloatCounter::default();
                counter.inc_by(*value);
                states.register(*name, *help, counter);
            } else {
                let gauge = FloatGauge::default();
                gauge.set(*value);
                states.register(*name, *help, gauge);
            }
        }
        plugins(&mut states, prefix, &overview.plugins);
        let answering = overview.targets.iter().filter(|target| !target.is_stale());
        let samples = answering
            .flat_map(|target| target.samples.iter().map(|sample| (instance(&target.kind, &target.id), sample)));
        samples::register(&mut states, samples);
        states
    }
}

/// What each plugin has used, by the kind that it serves.
fn plugins(states: &mut Registry, prefix: &str, plugins: &[PluginView]) {
    let of = |view: &PluginView| -> Option<Labels> {
        Some(vec![("instance_type".to_owned(), view.kind.as_ref()?.to_string())])
    };
    let served: Vec<(Labels, &PluginView)> = plugins.iter().filter_map(|view| Some((of(view)?, view))).collect();
    let mut counter = |name: &str, help: &str, values: Vec<Value>| {
        states.register(format!("{prefix}_plugin_{name}"), help, family(&values, FloatCounter::inc_by));
    };
    type Read = fn(&PluginUsage) -> f64;
    let counters: [(&str, &str, Read); 6] = [
        ("polls", "Polls that a plugin ran", |usage| usage.polls as f64),
        ("cpu_seconds", "CPU time that a plugin used", |usage| usage.cpu.as_secs_f64()),
        ("wall_seconds", "Time that a plugin's polls took, waiting included", |usage| usage.wall.as_secs_f64()),
        ("requests", "Requests that a plugin made", |usage| usage.requests as f64),
        ("body_bytes", "Bytes of bodies that a plugin received", |usage| usage.bytes as f64),
        ("log_lines", "Log lines that a plugin wrote", |usage| usage.log_lines as f64),
    ];
    for (name, help, read) in counters {
        counter(name, help, served.iter().map(|(labels, view)| (labels.clone(), read(&view.usage))).collect());
    }
    let by_name = |label: &str, counts: fn(&PluginUsage) -> &BTreeMap<String, u64>| -> Vec<Value> {
        let of_view = |(labels, view): &(Labels, &PluginView)| {
            let count = |(name, count): (&String, &u64)| (with(labels.clone(), label, name), *count as f64);
            counts(&view.usage).iter().map(count).collect::<Vec<_>>()
        };
        served.iter().flat_map(of_view).collect()
    };
    counter("faults", "Polls that ended in a plugin's own fault", by_name("reason", |usage| &usage.faults_by_reason));
    counter("secret_uses", "Polls that used a secret", by_name("secret", |usage| &usage.secrets));
    let mut gauge = |name: &str, help: &str, values: Vec<Value>| {
        states.register(format!("{prefix}_plugin_{name}"), help, family(&values, FloatGauge::set));
    };
    let each =
        |read: fn(&PluginView) -> f64| served.iter().map(|(labels, view)| (labels.clone(), read(view))).collect();
    gauge("peak_memory_bytes", "Memory of the poll that had most", each(|view| view.usage.peak_memory as f64));
    gauge(
        "quarantined",
        "1 while a plugin is not run but for probes",
        each(|view| f64::from(u8::from(view.quarantined_until.is_some()))),
    );
    let refused = FloatGauge::default();
    refused.set(plugins.iter().filter(|view| view.refusal.is_some()).count() as f64);
    states.register(format!("{prefix}_plugins_refused"), "Plugin files that are refused", refused);
}

/// A family with these values, each set in its own way.
fn family<M: Default, R>(values: &[Value], set: impl Fn(&M, f64) -> R) -> Family<Labels, M> {
    let family = Family::<Labels, M>::default();
    for (labels, value) in values {
        set(&family.get_or_create(labels), *value);
    }
    family
}

fn staleness(target: &TargetView, now: Timestamp) -> f64 {
    match target.last_success {
        Some(_) if target.last_error.is_none() && !target.is_stale() => 0.0,
        Some(at) => now.since(at).as_secs_f64(),
        None => -1.0,
    }
}

fn number(target: &TargetView, dependency: &DependencyView) -> f64 {
    if dependency.missing_since.is_some() {
        return 5.0;
    }
    if target.is_stale() {
        return 4.0;
    }
    match dependency.status {
        Status::Ok => 0.0,
        Status::Warning => 1.0,
        Status::Critical => 2.0,
        Status::Unknown => 3.0,
    }
}
