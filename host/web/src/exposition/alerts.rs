//! The metrics of alerts, silences and channels.

use super::series::{Emit, register, register_value};
use crate::host::Host;
use model::{AlertState, ChannelState, SampleKind};
use prometheus_client::registry::Registry;
use std::sync::Arc;

pub(super) fn register_all(states: &mut Registry, host: &dyn Host) {
    let alerts = host.alerts();
    let counts =
        AlertState::ALL.map(|state| (state.as_str(), alerts.iter().filter(|alert| alert.state == state).count()));
    let by_state = move |emit: &mut Emit<'_>| {
        counts.iter().try_for_each(|(state, count)| emit(&[("state", state)], *count as f64))
    };
    register(states, SampleKind::Gauge, "polliwog_alerts", "Alerts by their state", by_state);
    let held = |is_held: fn(&model::AlertRecord) -> bool| {
        let open = alerts.iter().filter(|alert| alert.state == AlertState::Firing);
        open.filter(|alert| is_held(alert)).count() as f64
    };
    for (name, help, count) in [
        (
            "polliwog_alerts_suppressed",
            "Firing alerts that another one explains",
            held(|alert| alert.suppressed_by.is_some()),
        ),
        (
            "polliwog_alerts_silenced",
            "Firing alerts that a silence holds back",
            held(|alert| alert.silenced_by.is_some()),
        ),
        (
            "polliwog_silences_active",
            "Silences that are active",
            host.silences().iter().filter(|silence| silence.is_active).count() as f64,
        ),
    ] {
        register_value(states, SampleKind::Gauge, name, help, count);
    }
    channels(states, host);
}

fn channels(states: &mut Registry, host: &dyn Host) {
    let (all, now) = (Arc::new(host.channels()), host.now());
    if all.is_empty() {
        return;
    }
    type Value = fn(&ChannelState, model::Timestamp) -> f64;
    const GAUGES: [(&str, &str, Value); 3] = [
        (
            "polliwog_channel_up",
            "1 while a channel delivers or has not failed, 0 while it does not deliver",
            |channel, _| f64::from(u8::from(channel.problem.is_none())),
        ),
        ("polliwog_channel_waiting", "Notifications of a channel that wait", |channel, _| channel.waiting as f64),
        (
            "polliwog_channel_oldest_waiting_seconds",
            "The age of the oldest notification of a channel that waits; 0 if none waits",
            |channel, now| channel.oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64()),
        ),
    ];
    for (name, help, value) in GAUGES {
        let channels = all.clone();
        let each = move |emit: &mut Emit<'_>| {
            channels.iter().try_for_each(|channel| emit(&[("channel", &channel.name)], value(channel, now)))
        };
        register(states, SampleKind::Gauge, name, help, each);
    }
    type Count = fn(&ChannelState) -> u64;
    const RESULTS: [(&str, Count); 3] = [
        ("delivered", |channel| channel.delivered),
        ("failed_attempt", |channel| channel.failed_attempts),
        ("undeliverable", |channel| channel.undeliverable),
    ];
    let results = move |emit: &mut Emit<'_>| {
        all.iter().try_for_each(|channel| {
            RESULTS.iter().try_for_each(|(result, count)| {
                emit(&[("channel", &channel.name), ("result", result)], count(channel) as f64)
            })
        })
    };
    let help = "Notifications and attempts since the start of the host, by their result";
    register(states, SampleKind::Counter, "polliwog_deliveries", help, results);
}
