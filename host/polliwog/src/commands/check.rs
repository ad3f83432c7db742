//! `check`: everything that is wrong, before it is run.

use crate::cli::Common;
use crate::configuration::{examine, unknown_variables};
use crate::output::{counted, print, print_json};
use crate::plugins::{load, sandbox};
use catalog::{PluginSet, Uncompiled};
use config::{Config, Problem, TlsConfig, line, show_duration, suggestion};
use egress::{Player, Tape};
use engine::{Clock, RuntimeTarget, prepare_all};
use model::{Outcome, Timestamp};
use sandbox::{Job, Sandbox};
use serde_json::json;
use std::sync::Arc;

/// Validates; 0 when all is well, 1 when something is wrong.
pub(crate) async fn check(common: &Common, json: bool, allow_missing_plugins: bool) -> anyhow::Result<u8> {
    let (config, mut problems) = examine(&common.places())?;
    let (mut warnings, mut targets) = (Vec::new(), 0);
    if let Some(config) = config {
        targets = config.targets.len();
        let looked_at = look(&config).await?;
        problems.extend(looked_at.problems);
        problems.extend(unknown_variables(&config));
        warnings = looked_at.warnings;
        if allow_missing_plugins { &mut warnings } else { &mut problems }.extend(looked_at.unserved);
        problems.sort_by_key(|problem| line(&problem.place));
    }
    if json {
        let list = |all: &[Problem]| -> Vec<_> {
            all.iter().map(|p| json!({ "place": p.place, "message": p.message })).collect()
        };
        let found = json!({ "ok": problems.is_empty(), "problems": list(&problems), "warnings": list(&warnings) });
        print_json(&found)?;
    } else {
        let problem_lines = problems.iter().map(ToString::to_string);
        let warning_lines = warnings.iter().map(|warning| format!("{warning} (a warning)"));
        let verdict = match problems.len() {
            0 => format!("all is well: {}", counted(targets, "target")),
            count => counted(count, "problem"),
        };
        let lines: Vec<String> = problem_lines.chain(warning_lines).chain([verdict]).collect();
        print(&lines.join("\n"))?;
    }
    Ok(u8::from(!problems.is_empty()))
}

/// What a configuration's plugins and targets are like.
struct LookedAt {
    problems: Vec<Problem>,
    /// What its operator may not have meant.
    warnings: Vec<Problem>,
    /// Targets of kinds that no plugin serves.
    unserved: Vec<Problem>,
}

async fn look(config: &Config) -> anyhow::Result<LookedAt> {
    let sandbox = sandbox(config)?;
    let plugins = load(config, sandbox.clone(), Uncompiled::Compile).await.set().clone();
    let refused = plugins.refused().iter();
    let mut problems: Vec<Problem> =
        refused.map(|refused| Problem { place: refused.file.clone(), message: refused.reason.clone() }).collect();
    match prepare_all(config, &sandbox, &plugins).await {
        Ok(targets) => {
            let now = Clock::start().wall();
            for target in targets.values().filter(|target| target.config.enabled) {
                problems.extend(refused_request(config, target, (&sandbox, &plugins), now).await);
            }
        }
        Err(found) => problems.extend(found),
    }
    let idle = config.limits.keys().filter(|kind| plugins.get(kind).is_none()).map(|kind| Problem {
        place: format!("{}: [plugins.limits.{kind}]", config.file),
        message: format!("no plugin serves kind {kind}{}; these limits are unused", near(&plugins, kind)),
    });
    let unserved = config.targets.iter().filter(|target| plugins.get(&target.kind).is_none());
    let unserved = unserved.map(|target| Problem {
        place: format!("{}:{}", config.file, target.line),
        message: format!(
            "target {:?}: no plugin serves kind {}{}; drop one into {}, or say that it comes later with \
             --allow-missing-plugins",
            target.id,
            target.kind,
            near(&plugins, &target.kind),
            config.plugin_dir.display()
        ),
    });
    let warnings = idle.chain(unmeant(config)).collect();
    Ok(LookedAt { problems, warnings, unserved: unserved.collect() })
}

/// Polls a target with an empty recording in the place of the network: a request that would be refused before it is sent is
/// certain to fail at the first real poll.
async fn refused_request(
    config: &Config,
    target: &Arc<RuntimeTarget>,
    (sandbox, plugins): (&Sandbox, &PluginSet),
    now: Timestamp,
) -> Option<Problem> {
    /// Codes that say what is wrong with the configuration rather than with the server.
    const CERTAIN: [&str; 4] = ["denied", "secret_unknown", "bad_request", "bad_settings"];
    let plugin = plugins.get(&target.config.kind)?.plugin.clone();
    let done = sandbox
        .poll(Job {
            plugin,
            target: target.prepared.clone(),
            grant: target.grant.clone(),
            limits: target.limits.poll,
            timeout: target.timeout,
            now,
            // A request is checked as ever, and the recording answers none.
            tape: Tape::Replay(Arc::new(Player::new(Vec::new()))),
        })
        .await;
    let Outcome::Failure(failure) = done.outcome else { return None };
    CERTAIN.contains(&failure.code.as_str()).then(|| Problem {
        place: format!("{}:{}", config.file, target.config.line),
        message: format!("target {:?}: its first poll would fail: {}", target.id(), failure.message),
    })
}

/// Configuration that is valid and probably not meant.
fn unmeant(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    for target in &config.targets {
        let mut note = |message: String| {
            let message = format!("target {:?}: {message}", target.id);
            found.push(Problem { place: format!("{}:{}", config.file, target.line), message });
        };
        if let (Some(interval), Some(timeout)) = (target.interval, target.timeout)
            && timeout > interval
        {
            note(format!(
                "its timeout ({}) is longer than its interval ({}): while it hangs it is polled less often than that",
                show_duration(timeout),
                show_duration(interval)
            ));
        }
        if target.url.scheme() == "http" && target.tls != TlsConfig::default() {
            note("it has tls, and its url is http://: nothing is encrypted".to_owned());
        }
    }
    if config.targets.is_empty() {
        let message = "it has no [[target]]: nothing would be polled".to_owned();
        found.push(Problem { place: config.file.clone(), message });
    }
    if config.sources.contains_key("plugins.dir") && !config.plugin_dir.is_dir() {
        let message = format!("there is no folder {}: no plugin is taken from it", config.plugin_dir.display());
        found.push(Problem { place: format!("{}: [plugins] dir", config.file), message });
    }
    found
}

fn near(plugins: &PluginSet, kind: &model::Kind) -> String {
    let kinds: Vec<&str> = plugins.served().map(|served| served.plugin.descriptor().kind.as_str()).collect();
    suggestion(kind.as_str(), &kinds)
}
