//! The Prometheus text: Pulse's seven metrics, RedFlag's metrics, and plugins' samples.
//!
//! Counters come from [`Metrics`]. States are read from the host at each scrape, so that the series of a removed target
//! disappear.

mod alerts;
mod fleet;
mod format;
mod labels;
mod samples;
mod series;

pub(crate) use format::Format;

use crate::host::Host;
use crate::pauses::{PausingText, WithPauses as _};
use crate::status::TargetStatus;
use crate::totals::Totals;
use labels::{Targets, info, instance};
use metrics::{INSTANCE_TYPE, Metrics, Reading};
use model::{
    BreakerState, DependencyState, PluginState, PluginUsage, SampleKind, ServedPlugin, Status, TargetState, Timestamp,
};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;
use series::{Emit, register, register_value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All metrics, in OpenMetrics' text format.
pub fn render(metrics: &Metrics, host: &dyn Host) -> String {
    let states = states(metrics.prefix(), host);
    let mut text = PausingText::default();
    // Encoding to a string fails only if a label cannot be encoded; ours are plain text.
    for registry in [metrics.registry(), &states] {
        if let Err(error) = encode_registry(&mut text, registry) {
            tracing::error!("cannot encode the metrics: {error}");
        }
    }
    let _ = encode_eof(&mut text);
    text.into_string()
}

fn states(prefix: &str, host: &dyn Host) -> Registry {
    let (targets, scheduler, now) = (Targets::new(host.targets()), host.scheduler(), host.now());
    let totals = Totals::of(&targets, now, scheduler.overdue_after);
    let mut states = Registry::default();
    of_targets(&mut states, prefix, &targets, now);
    let mut gauge =
        |name: &str, help: &str, value: f64| register_value(&mut states, SampleKind::Gauge, name, help, value);
    gauge(&format!("{prefix}_poll_queue_depth"), "Targets that wait for a poll", totals.depth as f64);
    gauge("polliwog_scheduler_overdue", "Targets overdue by more than the longest interval", totals.overdue as f64);
    gauge(
        &format!("{prefix}_loop_messages"),
        "Messages handled in the last iteration of the scheduling loop",
        scheduler.turns.messages as f64,
    );
    gauge(
        &format!("{prefix}_loop_channel_capacity"),
        "Capacity of the channel to the scheduling loop, in messages",
        scheduler.turns.capacity as f64,
    );
    let in_flight = move |emit: &mut Emit<'_>| {
        scheduler.in_flight.iter().try_for_each(|(kind, n)| emit(&[(INSTANCE_TYPE, kind.as_str())], *n as f64))
    };
    register(&mut states, SampleKind::Gauge, &format!("{prefix}_poll_inflight"), "Polls in flight", in_flight);
    for Reading { name, help, is_counter, value } in host.process() {
        let kind = if is_counter { SampleKind::Counter } else { SampleKind::Gauge };
        register_value(&mut states, kind, name, help, value);
    }
    plugins(&mut states, prefix, host.plugins());
    alerts::register_all(&mut states, host);
    if let Some(fleet) = host.fleet() {
        fleet::register_all(&mut states, fleet);
    }
    samples::register_all(&mut states, &targets);
    states
}

fn of_targets(states: &mut Registry, prefix: &str, targets: &Targets, now: Timestamp) {
    type Value = fn(&TargetState, Timestamp) -> Option<f64>;
    let by_target: [(&str, &str, Value); 6] = [
        (
            "poll_staleness_seconds",
            "0 while the last poll succeeded, age of the last success while failing, -1 never",
            |target, now| Some(staleness(target, now)),
        ),
        (
            "poll_last_success_timestamp",
            "Time of a target's last successful poll, in seconds since 1970",
            |target, _| target.schedule.last_success.map(|at| at.as_millis() as f64 / 1000.0),
        ),
        ("breaker_state", "0 closed, 1 half open, 2 open", |target, _| {
            Some(match target.breaker_state() {
                BreakerState::Closed => 0.0,
                BreakerState::HalfOpen => 1.0,
                BreakerState::Open => 2.0,
            })
        }),
        (
            "dead_letter",
            "1 while a target is polled rarely, because it has failed for long, otherwise 0",
            |target, _| Some(f64::from(u8::from(target.enabled && target.schedule.dead.is_some()))),
        ),
        ("target_status", "0 ok, 1 warning, 2 critical, 3 unknown, 4 unreachable or without a plugin", |target, _| {
            TargetStatus::of(target).number()
        }),
        ("target_up", "1 while a target can be polled, 0 while it cannot", |target, _| {
            TargetStatus::of(target).number().map(|number| f64::from(u8::from(number < 4.0)))
        }),
    ];
    for (name, help, value) in by_target {
        let targets = targets.clone();
        let each = move |emit: &mut Emit<'_>| {
            let valued = targets.iter().with_pauses().filter_map(|target| Some((target, value(target, now)?)));
            valued.into_iter().try_for_each(|(target, value)| emit(&instance(target), value))
        };
        register(states, SampleKind::Gauge, &format!("{prefix}_{name}"), help, each);
    }
    let (of_info, of_dependencies) = (targets.clone(), targets.clone());
    let infos = move |emit: &mut Emit<'_>| {
        of_info.iter().with_pauses().try_for_each(|target| {
            let labels = info(target);
            let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            emit(&labels, 1.0)
        })
    };
    let help = "A target's name, URL, kind and labels";
    register(states, SampleKind::Gauge, &format!("{prefix}_target_info"), help, infos);
    let dependencies = move |emit: &mut Emit<'_>| {
        of_dependencies.iter().with_pauses().filter(|target| target.enabled).try_for_each(|target| {
            let [kind, id] = instance(target);
            target.observed.dependencies.iter().try_for_each(|dependency| {
                emit(&[kind, id, ("dependency", &dependency.record.reported.name)], number(target, dependency))
            })
        })
    };
    let help =
        "0 ok, 1 warning, 2 critical, 3 unknown, 4 stale: its target cannot be polled, 5 missing from the last report";
    register(states, SampleKind::Gauge, &format!("{prefix}_dependency_status"), help, dependencies);
}

/// Adds each plugin's usage, labelled with the kind that it serves.
fn plugins(states: &mut Registry, prefix: &str, plugins: Vec<PluginState>) {
    let refused = plugins.iter().filter(|plugin| plugin.served.is_err()).count();
    let served: Arc<Vec<ServedPlugin>> =
        Arc::new(plugins.into_iter().filter_map(|plugin| plugin.served.ok()).collect());
    let mut add = |kind: SampleKind, name: &str, help: &str, read: fn(&ServedPlugin) -> f64| {
        let served = served.clone();
        register(states, kind, &format!("{prefix}_plugin_{name}"), help, move |emit| {
            served.iter().try_for_each(|plugin| emit(&[(INSTANCE_TYPE, plugin.kind.as_str())], read(plugin)))
        });
    };
    let (counter, gauge) = (SampleKind::Counter, SampleKind::Gauge);
    add(counter, "polls", "Polls run by a plugin", |plugin| plugin.usage.polls as f64);
    add(counter, "cpu_seconds", "CPU time used by a plugin", |plugin| plugin.usage.cpu.as_secs_f64());
    add(counter, "wall_seconds", "Wall-clock time of a plugin's polls, including waiting", |plugin| {
        plugin.usage.wall.as_secs_f64()
    });
    add(counter, "requests", "Requests made by a plugin", |plugin| plugin.usage.requests as f64);
    add(counter, "body_bytes", "Bytes of response bodies received by a plugin", |plugin| plugin.usage.bytes as f64);
    add(counter, "log_lines", "Log lines written by a plugin", |plugin| plugin.usage.log_lines as f64);
    add(gauge, "peak_memory_bytes", "Peak memory of one poll of a plugin", |plugin| plugin.usage.peak_memory as f64);
    add(gauge, "quarantined", "1 while a plugin is in quarantine and runs only for probes", |plugin| {
        f64::from(u8::from(plugin.quarantined_until.is_some()))
    });
    let mut add_by_name = |name: &str, help: &str, label: &'static str, counts: Counts| {
        let served = served.clone();
        register(states, counter, &format!("{prefix}_plugin_{name}"), help, move |emit| {
            let each = served.iter().flat_map(|plugin| counts(&plugin.usage).iter().map(move |count| (plugin, count)));
            each.into_iter().try_for_each(|(plugin, (name, count))| {
                emit(&[(INSTANCE_TYPE, plugin.kind.as_str()), (label, name)], *count as f64)
            })
        });
    };
    let faults = "Polls that failed because of the plugin";
    add_by_name("faults", faults, "reason", |usage| &usage.faults_by_reason);
    add_by_name("secret_uses", "Polls that used a secret", "secret", |usage| &usage.secrets);
    register_value(states, gauge, &format!("{prefix}_plugins_refused"), "Refused plugin files", refused as f64);
}

/// Reads the counts by name of a plugin's usage.
type Counts = fn(&PluginUsage) -> &BTreeMap<String, u64>;

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
    if target.is_stale_in(dependency) {
        return 4.0;
    }
    match dependency.record.reported.status {
        Status::Ok => 0.0,
        Status::Warning => 1.0,
        Status::Critical => 2.0,
        Status::Unknown => 3.0,
    }
}
