//! The Prometheus text: Pulse's seven metrics, RedFlag's metrics, and plugins' samples.
//!
//! Counters come from [`Metrics`]. States are read from the host at each scrape, so that the series of a removed target
//! disappear.

mod format;
mod samples;
mod series;

pub(crate) use format::Format;

use crate::host::Host;
use crate::status::TargetStatus;
use crate::totals::Totals;
use metrics::{FloatCounter, FloatGauge, Labels, Metrics, Reading, instance, with};
use model::{DependencyState, PluginState, PluginUsage, ServedPlugin, Status, TargetState, Timestamp};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use series::{Value, family};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A target's constant labels. A label from the configuration is renamed if Prometheus would refuse its name.
fn info(target: &TargetState) -> Labels {
    let info = &target.info;
    let mut labels = instance(&info.kind, &info.id);
    for (name, value) in [("name", &*info.name), ("url", &info.url), ("kind", info.kind.as_str())] {
        labels.push((name.to_owned(), value.to_owned()));
    }
    for (name, value) in &info.labels {
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

/// All metrics, in OpenMetrics' text format.
pub(crate) fn render(metrics: &Metrics, host: &dyn Host) -> String {
    let states = states(metrics.prefix(), host);
    let mut text = String::new();
    // Encoding to a string fails only if a label cannot be encoded; ours are plain text.
    for registry in [metrics.registry(), &states] {
        if let Err(error) = encode_registry(&mut text, registry) {
            tracing::error!("cannot encode the metrics: {error}");
        }
    }
    let _ = encode_eof(&mut text);
    text
}

fn states(prefix: &str, host: &dyn Host) -> Registry {
    let (targets, scheduler, now) = (host.targets(), host.scheduler(), host.now());
    let totals = Totals::of(&targets, now, scheduler.overdue_after);
    let mut states = Registry::default();
    of_targets(&mut states, prefix, &targets, now);
    let mut gauge = |name: String, help: &str, value: f64| {
        let gauge = FloatGauge::default();
        gauge.set(value);
        states.register(name, help, gauge);
    };
    gauge(format!("{prefix}_poll_queue_depth"), "Targets that wait for a poll", totals.depth as f64);
    gauge(
        "polliwog_scheduler_overdue".to_owned(),
        "Targets overdue by more than the longest interval",
        totals.overdue as f64,
    );
    gauge(
        format!("{prefix}_loop_messages"),
        "Messages handled in the last iteration of the scheduling loop",
        scheduler.turns.messages as f64,
    );
    gauge(
        format!("{prefix}_loop_channel_capacity"),
        "Capacity of the channel to the scheduling loop, in messages",
        scheduler.turns.capacity as f64,
    );
    let in_flight = scheduler.in_flight.iter();
    let in_flight = in_flight.map(|(kind, n)| (vec![("instance_type".to_owned(), kind.to_string())], *n as f64));
    let in_flight: Vec<Value> = in_flight.collect();
    states.register(format!("{prefix}_poll_inflight"), "Polls in flight", family(&in_flight, FloatGauge::set));
    for Reading { name, help, is_counter, value } in host.process() {
        if is_counter {
            let counter = FloatCounter::default();
            counter.inc_by(value);
            states.register(name, help, counter);
        } else {
            let gauge = FloatGauge::default();
            gauge.set(value);
            states.register(name, help, gauge);
        }
    }
    plugins(&mut states, prefix, &host.plugins());
    let answering = targets.iter().filter(|target| !target.is_stale());
    let samples = answering.flat_map(|target| {
        let labels = instance(&target.info.kind, &target.info.id);
        target.observed.samples.iter().map(move |sample| (labels.clone(), sample))
    });
    samples::register(&mut states, samples);
    states
}

fn of_targets(states: &mut Registry, prefix: &str, targets: &[Arc<TargetState>], now: Timestamp) {
    let mut gauges = |name: &str, help: &str, values: Vec<Value>| {
        states.register(format!("{prefix}_{name}"), help, family(&values, FloatGauge::set));
    };
    let named = |target: &TargetState| instance(&target.info.kind, &target.info.id);
    let by_target = |value: &dyn Fn(&TargetState) -> Option<f64>| -> Vec<Value> {
        targets.iter().filter_map(|target| Some((named(target), value(target)?))).collect()
    };
    let seconds = |at: Timestamp| at.as_millis() as f64 / 1000.0;
    gauges(
        "poll_staleness_seconds",
        "0 while the last poll succeeded, age of the last success while failing, -1 never",
        by_target(&|target| Some(staleness(target, now))),
    );
    gauges(
        "poll_last_success_timestamp",
        "Time of a target's last successful poll, in seconds since 1970",
        by_target(&|target| target.schedule.last_success.map(seconds)),
    );
    gauges(
        "target_status",
        "0 ok, 1 warning, 2 critical, 3 unknown, 4 unreachable or without a plugin",
        by_target(&|target| TargetStatus::of(target).number()),
    );
    gauges(
        "target_up",
        "1 while a target can be polled, 0 while it cannot",
        by_target(&|target| TargetStatus::of(target).number().map(|number| f64::from(u8::from(number < 4.0)))),
    );
    let info = targets.iter().map(|target| (info(target), 1.0));
    gauges("target_info", "A target's name, URL, kind and labels", info.collect());
    let dependencies = targets.iter().filter(|target| target.enabled).flat_map(|target| {
        let value = |found: &DependencyState| {
            (with(named(target), "dependency", &found.record.reported.name), number(target, found))
        };
        target.observed.dependencies.iter().map(value).collect::<Vec<_>>()
    });
    gauges(
        "dependency_status",
        "0 ok, 1 warning, 2 critical, 3 unknown, 4 stale: its target cannot be polled, 5 missing from the last report",
        dependencies.collect(),
    );
}

/// Adds each plugin's usage, labelled with the kind that it serves.
fn plugins(states: &mut Registry, prefix: &str, plugins: &[PluginState]) {
    let served: Vec<(Labels, &ServedPlugin)> = (plugins.iter().filter_map(|plugin| plugin.served.as_ref().ok()))
        .map(|served| (vec![("instance_type".to_owned(), served.kind.to_string())], served))
        .collect();
    let mut counter = |name: &str, help: &str, values: Vec<Value>| {
        states.register(format!("{prefix}_plugin_{name}"), help, family(&values, FloatCounter::inc_by));
    };
    type Read = fn(&PluginUsage) -> f64;
    let counters: [(&str, &str, Read); 6] = [
        ("polls", "Polls run by a plugin", |usage| usage.polls as f64),
        ("cpu_seconds", "CPU time used by a plugin", |usage| usage.cpu.as_secs_f64()),
        ("wall_seconds", "Wall-clock time of a plugin's polls, including waiting", |usage| usage.wall.as_secs_f64()),
        ("requests", "Requests made by a plugin", |usage| usage.requests as f64),
        ("body_bytes", "Bytes of response bodies received by a plugin", |usage| usage.bytes as f64),
        ("log_lines", "Log lines written by a plugin", |usage| usage.log_lines as f64),
    ];
    for (name, help, read) in counters {
        counter(name, help, served.iter().map(|(labels, view)| (labels.clone(), read(&view.usage))).collect());
    }
    let by_name = |label: &str, counts: fn(&PluginUsage) -> &BTreeMap<String, u64>| -> Vec<Value> {
        let of_view = |(labels, view): &(Labels, &ServedPlugin)| {
            let count = |(name, count): (&String, &u64)| (with(labels.clone(), label, name), *count as f64);
            counts(&view.usage).iter().map(count).collect::<Vec<_>>()
        };
        served.iter().flat_map(of_view).collect()
    };
    counter("faults", "Polls that failed because of the plugin", by_name("reason", |usage| &usage.faults_by_reason));
    counter("secret_uses", "Polls that used a secret", by_name("secret", |usage| &usage.secrets));
    let mut gauge = |name: &str, help: &str, values: Vec<Value>| {
        states.register(format!("{prefix}_plugin_{name}"), help, family(&values, FloatGauge::set));
    };
    let each =
        |read: fn(&ServedPlugin) -> f64| served.iter().map(|(labels, view)| (labels.clone(), read(view))).collect();
    gauge("peak_memory_bytes", "Peak memory of one poll of a plugin", each(|view| view.usage.peak_memory as f64));
    gauge(
        "quarantined",
        "1 while a plugin is in quarantine and runs only for probes",
        each(|view| f64::from(u8::from(view.quarantined_until.is_some()))),
    );
    let refused = FloatGauge::default();
    refused.set(plugins.iter().filter(|plugin| plugin.served.is_err()).count() as f64);
    states.register(format!("{prefix}_plugins_refused"), "Refused plugin files", refused);
}

fn staleness(target: &TargetState, now: Timestamp) -> f64 {
    match target.schedule.last_success {
        Some(_) if target.observed.failure.is_none() && !target.is_stale() => 0.0,
        Some(at) => now.since(at).as_secs_f64(),
        None => -1.0,
    }
}

fn number(target: &TargetState, dependency: &DependencyState) -> f64 {
    if dependency.record.missing_since.is_some() {
        return 5.0;
    }
    if target.is_stale() {
        return 4.0;
    }
    match dependency.record.reported.status {
        Status::Ok => 0.0,
        Status::Warning => 1.0,
        Status::Critical => 2.0,
        Status::Unknown => 3.0,
    }
}
