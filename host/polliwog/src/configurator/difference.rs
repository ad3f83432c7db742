//! What is different after a configuration was read again, in words for the log.

use super::Fitted;
use config::{Config, Overrides, TargetConfig, scheduler_values, show_duration};
use scheduler::Change;
use std::fmt::Write;

/// Targets that are named; more are counted.
const NAMED: usize = 8;

/// One line: which targets came, went and changed, and which settings.
pub(super) fn between(before: &Fitted, after: &Fitted) -> String {
    let added = after.targets.keys().filter(|id| !before.targets.contains_key(*id)).map(ToString::to_string);
    let removed = before.targets.keys().filter(|id| !after.targets.contains_key(*id)).map(ToString::to_string);
    let changed = after.targets.iter().filter_map(|(id, target)| {
        let earlier = before.targets.get(id)?;
        let different = target.change_from(earlier) != Change::Nothing;
        different.then(|| format!("{id} ({})", keys(&earlier.config, &target.config)))
    });
    let (earlier, later) = (scheduler_values(&before.config.scheduler), scheduler_values(&after.config.scheduler));
    let shown = |value: Option<String>| value.unwrap_or_else(|| "unset".to_owned());
    let settings = earlier.into_iter().zip(later).filter(|(earlier, later)| earlier != later);
    let settings = settings.map(|((key, from), (_, to))| format!("{key} {} is now {}", shown(from), shown(to)));
    let parts = [
        listed("added", added.collect()),
        listed("removed", removed.collect()),
        listed("changed", changed.collect()),
        listed("settings:", settings.collect()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "no target is different".to_owned() } else { parts.join("; ") }
}

/// Keys whose value in the file has changed without effect, because a setting wins over it.
pub(super) fn outvoted((before, after): (&Config, &Config), overrides: &Overrides) -> Vec<String> {
    let value = |config: &Config, key: &str| {
        let of_scheduler =
            scheduler_values(&config.scheduler).into_iter().map(|(name, value)| (name.to_owned(), value));
        let of_targets = config.targets.iter().flat_map(TargetConfig::changeable);
        of_scheduler.chain(of_targets).find(|(name, _)| name == key).and_then(|(_, value)| value)
    };
    overrides.keys().filter(|key| value(before, key) != value(after, key)).cloned().collect()
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

/// What of a target is different, by its keys, with both values where they are short and no secret's.
fn keys(before: &TargetConfig, after: &TargetConfig) -> String {
    let duration = |duration: Option<std::time::Duration>| duration.map_or_else(|| "unset".to_owned(), show_duration);
    let cadence = |config: &TargetConfig| config.cadence.map_or("unset", scheduler::Cadence::as_str).to_owned();
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
        ("settings", before.settings != after.settings),
    ];
    let named = named.into_iter().filter(|(_, different)| *different).map(|(key, _)| key.to_owned());
    let all: Vec<String> = values.chain(named).collect();
    // The file of a secret or of a certificate holds something else.
    if all.is_empty() { "what a file of it holds".to_owned() } else { all.join(", ") }
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
