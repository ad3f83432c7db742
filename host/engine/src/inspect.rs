//! Finds the problems of a configuration whose plugins are loaded. Nothing is sent.

use crate::clock::Clock;
use crate::prepare::{Converted, PreparedConfig, prepare_all};
use crate::sample::test_notification;
use crate::target::{RuntimeTarget, collector_access};
use catalog::{PluginSet, Served};
use config::{Config, Problem, TargetConfig, suggestion, toml_of, unmet, warnings};
use egress::{ErrorClass, Player, Seen, Tape};
use model::{Failure, FailureCategory, Kind, Outcome, Timestamp};
use sandbox::{Attempt, Collected, Plugin, Sandbox};
use std::sync::Arc;

/// The problems of a configuration's plugins and targets.
#[derive(Debug)]
pub struct Findings {
    /// Refused plugin files, and targets whose polls would fail.
    pub problems: Vec<Problem>,
    /// Valid configuration that is probably a mistake.
    pub warnings: Vec<Problem>,
    /// Targets and channels of kinds that no plugin serves.
    pub unserved: Vec<Problem>,
    /// Conditions of routes and silences that no target in the file meets.
    pub unmet: Vec<Problem>,
}

/// Inspects a configuration: its plugins, the settings and secrets of its targets, and the requests of their polls.
pub async fn inspect(config: &Config, sandbox: &Sandbox, plugins: &PluginSet) -> Findings {
    let refused = plugins.refused().iter();
    let mut problems: Vec<Problem> =
        refused.map(|refused| Problem { place: refused.file.clone(), message: refused.reason.clone() }).collect();
    let PreparedConfig { targets, channels, problems: found, converted } = prepare_all(config, sandbox, plugins).await;
    problems.extend(found);
    if let Some(otlp) = &config.otlp {
        let place = format!("{}:{}", config.file, otlp.collector.line);
        let found = collector_access(otlp).err().into_iter().flatten();
        problems.extend(found.map(|message| Problem { place: place.clone(), message }));
    }
    let now = Clock::start().wall();
    for target in targets.values().filter(|target| target.config.enabled) {
        let Some(served) = plugins.get(&target.config.kind) else { continue };
        let failure = certain_failure(sandbox, &served.plugin, target, now).await;
        problems.extend(failure.map(|why| Problem {
            place: format!("{}:{}", config.file, target.config.line),
            message: format!("target {:?}: its first poll would fail: {why}", target.id()),
        }));
    }
    for channel in channels.values() {
        let Some(served) = plugins.get(&channel.config.kind) else { continue };
        let failure = certain_send_failure(sandbox, &served.plugin, channel, now).await;
        problems.extend(failure.map(|why| Problem {
            place: format!("{}:{}", config.file, channel.config.line),
            message: format!("channel {:?}: its first notification would fail: {why}", channel.id()),
        }));
    }
    let idle = config.limits.keys().filter(|kind| plugins.get(kind).is_none()).map(|kind| Problem {
        place: format!("{}: [plugins.limits.{kind}]", config.file),
        message: format!("no plugin serves kind {kind}{}; these limits are unused", near(plugins.pollers(), kind)),
    });
    let all = config.targets.iter().chain(&config.channels);
    let unserved = all.filter(|target| plugins.get(&target.kind).is_none() && !target.kind.is_email());
    let unserved = unserved.map(|target| Problem {
        place: format!("{}:{}", config.file, target.line),
        message: format!(
            "{} {:?}: no plugin serves kind {}{}; copy one into {}",
            target.noun(),
            target.id,
            target.kind,
            near_of(plugins, target),
            config.plugin_dir.display()
        ),
    });
    let converted = converted.iter().map(|converted| of_conversion(&config.file, converted));
    let (warnings, unserved) = (idle.chain(warnings(config)).chain(converted).collect(), unserved.collect());
    Findings { problems, warnings, unserved, unmet: unmet(config) }
}

/// Says how an operator can write converted settings.
fn of_conversion(file: &str, converted: &Converted) -> Problem {
    let place = format!("{file}:{}", converted.target.line_of(None));
    let settings = toml_of(&[converted.target.noun(), "settings"], &converted.settings);
    Problem { place, message: format!("{}\nwrite them as\n{settings}", converted.sentence()) }
}

/// Polls a target with an empty recording instead of the network. Requests are checked as usual; the recording answers
/// none of them. Returns the reason if the poll fails although no request got as far as the network, because the first
/// real poll would fail as well.
async fn certain_failure(sandbox: &Sandbox, plugin: &Plugin, target: &RuntimeTarget, now: Timestamp) -> Option<String> {
    let nothing = Tape::Replay(Arc::new(Player::new(Vec::new())));
    let done = sandbox.poll(target.job(plugin, now, nothing)).await;
    let Outcome::Failure(failure) = done.outcome else { return None };
    certain(failure, done.seen)
}

/// Returns the reason of a failure that the network does not change.
fn certain(failure: Failure, seen: Seen) -> Option<String> {
    let is_certain = failure.category != FailureCategory::Transient && !seen.has(ErrorClass::NotRecorded);
    is_certain.then_some(failure.message)
}

/// Like [`certain_failure`], with a notification of a made-up alert.
async fn certain_send_failure(
    sandbox: &Sandbox,
    plugin: &Plugin,
    channel: &RuntimeTarget,
    now: Timestamp,
) -> Option<String> {
    let nothing = Tape::Replay(Arc::new(Player::new(Vec::new())));
    let notification = test_notification(channel.id().as_str(), now);
    let attempt = Attempt::first(notification, now, Arc::new(Collected::default()));
    let sent = sandbox.send(channel.job(plugin, now, nothing), attempt).await;
    certain(sent.result.err()?, sent.seen)
}

/// Suggests a kind of the same role.
fn near_of(plugins: &PluginSet, target: &TargetConfig) -> String {
    match target.is_channel {
        true => near(plugins.notifiers(), &target.kind),
        false => near(plugins.pollers(), &target.kind),
    }
}

fn near<'a>(served: impl Iterator<Item = &'a Arc<Served>>, kind: &Kind) -> String {
    let kinds: Vec<&str> = served.map(|served| served.plugin.descriptor().kind.as_str()).collect();
    suggestion(kind.as_str(), &kinds)
}
