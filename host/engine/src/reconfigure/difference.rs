//! The differences between two configurations, in words for the log.

use super::fit::Candidate;
use super::running::Running;
use config::{Config, Difference, Overrides, TargetConfig, scheduler_values, show_duration};
use scheduler::Change;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Most targets that are named. Further ones are counted.
const NAMED: usize = 8;

/// One line: which targets were added, removed and changed, and which settings.
pub(super) fn between(before: &Running, after: &Candidate) -> String {
    let named = |targets: &mut dyn Iterator<Item = String>| targets.collect::<Vec<_>>();
    let changed = after.prepared.changed.iter().filter_map(|(target, change)| {
        change.filter(|change| *change != Change::Nothing)?;
        let earlier = before.targets.get(target.id())?;
        Some(format!("{} ({})", target.id(), keys(&earlier.config, &target.config)))
    });
    let added = after.prepared.changed.iter().filter(|(_, change)| change.is_none());
    let (earlier, later) = (scheduler_values(&before.config.scheduler), scheduler_values(&after.config.scheduler));
    let shown = |value: Option<String>| value.unwrap_or_else(|| "unset".to_owned());
    let settings = earlier.into_iter().zip(later).filter(|(earlier, later)| earlier != later);
    let settings = settings.map(|((key, from), (_, to))| format!("{key} {} is now {}", shown(from), shown(to)));
    let parts = [
        listed("added", named(&mut added.map(|(target, _)| target.id().to_string()))),
        listed("removed", named(&mut after.prepared.removed.iter().map(ToString::to_string))),
        listed("changed", changed.collect()),
        listed("settings:", settings.collect()),
        listed("changed:", other_parts(&before.config, &after.config)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "no target changed".to_owned() } else { parts.join("; ") }
}

/// Returns the changes from one configuration to another, one line each.
pub fn changes(before: &Config, after: &Config) -> Vec<String> {
    let find = |config: &Config, id: &model::TargetId| config.targets.iter().find(|target| target.id == *id).cloned();
    let mut lines = Vec::new();
    for target in &after.targets {
        match find(before, &target.id) {
            None => lines.push(format!("+ target {}: {} at {}", target.id, target.kind, target.url)),
            Some(earlier) if earlier.difference(target) != Difference::None => {
                lines.push(format!("~ target {}: {}", target.id, keys(&earlier, target)));
            }
            Some(_) => {}
        }
    }
    let removed = before.targets.iter().filter(|target| find(after, &target.id).is_none());
    lines.extend(removed.map(|target| format!("- target {}: {} at {}", target.id, target.kind, target.url)));
    let (earlier, later) = (scheduler_values(&before.scheduler), scheduler_values(&after.scheduler));
    let shown = |value: Option<String>| value.unwrap_or_else(|| "unset".to_owned());
    for ((key, from), (_, to)) in earlier.into_iter().zip(later).filter(|(earlier, later)| earlier != later) {
        lines.push(format!("~ {key}: {} is now {}", shown(from), shown(to)));
    }
    let names: BTreeSet<&String> = before.aliases.keys().chain(after.aliases.keys()).collect();
    for name in names {
        match (before.aliases.get(name), after.aliases.get(name)) {
            (None, Some(canonical)) => lines.push(format!("+ alias {name:?}: {canonical:?}")),
            (Some(canonical), None) => lines.push(format!("- alias {name:?}: {canonical:?}")),
            (Some(from), Some(to)) if from != to => lines.push(format!("~ alias {name:?}: {from:?} is now {to:?}")),
            _ => {}
        }
    }
    lines.extend(other_parts(before, after).into_iter().map(|part| format!("~ {part}")));
    let restart = needs_restart(before, after).into_iter();
    lines.extend(restart.map(|part| format!("~ {part}: takes effect when the host is started again")));
    lines
}

/// The changed parts that are neither targets nor settings.
fn other_parts(before: &Config, after: &Config) -> Vec<String> {
    let parts = [
        ("[[status_page]]", before.status_pages != after.status_pages),
        ("[alerts]", before.alerts != after.alerts),
        ("[[channel]]", before.channels != after.channels),
        ("[[route]]", before.routes != after.routes),
        ("[[silence]]", before.silences != after.silences),
        ("[secrets]", format!("{:?}", before.secrets) != format!("{:?}", after.secrets)),
        ("egress.api_target_cidrs", before.api_target_cidrs != after.api_target_cidrs),
        ("[plugins.limits]", format!("{:?}", before.limits) != format!("{:?}", after.limits)),
    ];
    parts.into_iter().filter(|(_, changed)| *changed).map(|(part, _)| part.to_owned()).collect()
}

/// Keys whose value in the file changed without effect, because a changed setting overrides it.
pub(super) fn outvoted((before, after): (&Config, &Config), overrides: &Overrides) -> Vec<String> {
    let value = |config: &Config, key: &str| match key.strip_prefix("target.").and_then(|rest| rest.rsplit_once('.')) {
        Some((id, _)) => {
            let target = config.targets.iter().find(|target| target.id.as_str() == id)?;
            target.changeable().find(|setting| setting.key == key)?.value
        }
        None => scheduler_values(&config.scheduler).into_iter().find(|(name, _)| *name == key)?.1,
    };
    overrides.keys().filter(|key| value(before, key) != value(after, key)).cloned().collect()
}

/// The changed parts of a configuration that are read only at a start.
pub(super) fn needs_restart(before: &Config, after: &Config) -> Vec<&'static str> {
    let store = |config: &Config| {
        let store = &config.store;
        (store.path.clone(), store.history_days, store.history_rows, store.history_bytes)
    };
    let checks = [
        ("server.listen", before.listen != after.listen),
        ("server.time_zone", before.time_zone != after.time_zone),
        ("server.metrics_listen", before.metrics_listen != after.metrics_listen),
        ("server.hosts", before.hosts != after.hosts),
        ("server.proxy_user_header", before.proxy != after.proxy),
        ("[fleet]", before.fleet != after.fleet),
        ("[otlp]", before.otlp != after.otlp),
        ("metrics.prefix", before.metrics_prefix != after.metrics_prefix),
        ("[store]", store(before) != store(after)),
        ("egress.max_requests_per_host", before.max_requests_per_host != after.max_requests_per_host),
        ("egress.max_body_bytes_in_flight", before.max_body_bytes_in_flight != after.max_body_bytes_in_flight),
        ("plugins.dir", before.plugin_dir != after.plugin_dir),
        ("plugins.trust", before.trusted_plugins != after.trusted_plugins),
        ("plugins.instance_slots", before.instance_slots != after.instance_slots),
    ];
    checks.into_iter().filter(|(_, changed)| *changed).map(|(what, _)| what).collect()
}

fn listed(what: &str, mut names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let mut text = format!("{what} {}", names.join(", "));
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    (!names.is_empty()).then_some(text)
}

/// The keys of a target that changed, with both values if they are short and not secret.
fn keys(before: &TargetConfig, after: &TargetConfig) -> String {
    let duration = |duration: Option<std::time::Duration>| duration.map_or_else(|| "unset".to_owned(), show_duration);
    let cadence = |config: &TargetConfig| config.cadence.map_or("unset", model::Cadence::as_str).to_owned();
    let values = [
        ("kind", before.kind.to_string(), after.kind.to_string()),
        ("url", before.url.to_string(), after.url.to_string()),
        ("interval", duration(before.interval), duration(after.interval)),
        ("min_interval", duration(before.min_interval), duration(after.min_interval)),
        ("max_interval", duration(before.max_interval), duration(after.max_interval)),
        ("timeout", duration(before.timeout), duration(after.timeout)),
        ("cadence", cadence(before), cadence(after)),
        ("enabled", before.enabled.to_string(), after.enabled.to_string()),
        ("name", before.name.clone(), after.name.clone()),
    ];
    let values = values.into_iter().filter(|(_, before, after)| before != after);
    let values = values.map(|(key, before, after)| format!("{key} {before} is now {after}"));
    let named = [
        ("also", before.also != after.also),
        ("tls", before.tls != after.tls),
        ("secrets", before.secrets != after.secrets),
        ("labels", before.labels != after.labels),
        ("alerts", before.alerts != after.alerts),
        ("settings", before.settings != after.settings),
        ("the networks that it may reach", before.reach != after.reach),
    ];
    let named = named.into_iter().filter(|(_, different)| *different).map(|(key, _)| key.to_owned());
    let all: Vec<String> = values.chain(named).collect();
    // Otherwise a file of a secret or of a certificate changed, or the limits of the plugin.
    if all.is_empty() {
        "the content of a file that it names, or the limits of its kind".to_owned()
    } else {
        all.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_counted() {
        let names = (0..10).map(|number| format!("t{number}")).collect();
        assert_eq!(listed("added", names).unwrap(), "added t0, t1, t2, t3, t4, t5, t6, t7 and 2 more");
        assert_eq!(listed("added", Vec::new()), None);
    }
}
