//! `check`: validates the configuration, the plugins and the settings.

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

/// Prints every problem. Returns exit code 0 without problems, else 1.
pub(crate) async fn check(common: &Common, json: bool, allow_missing_plugins: bool) -> anyhow::Result<u8> {
    let (config, mut problems) = examine(&common.places())?;
    let (mut warnings, mut targets) = (Vec::new(), 0);
    if let Some(config) = config {
        targets = config.targets.len();
        let findings = inspect(&config).await?;
        problems.extend(findings.problems);
        problems.extend(unknown_variables(&config));
        warnings = findings.warnings;
        if allow_missing_plugins { &mut warnings } else { &mut problems }.extend(findings.unserved);
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

/// The problems of a configuration's plugins and targets.
struct Findings {
    problems: Vec<Problem>,
    /// Valid configuration that is probably a mistake.
    warnings: Vec<Problem>,
    /// Targets of kinds that no plugin serves.
    unserved: Vec<Problem>,
}

async fn inspect(config: &Config) -> anyhow::Result<Findings> {
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
            "target {:?}: no plugin serves kind {}{}; copy one into {}, or use --allow-missing-plugins if it comes \
             later",
            target.id,
            target.kind,
            near(&plugins, &target.kind),
            config.plugin_dir.display()
        ),
    });
    let warnings = idle.chain(unmeant(config)).collect();
    Ok(Findings { problems, warnings, unserved: unserved.collect() })
}

/// Polls a target with an empty recording instead of the network. Returns a problem if a request is refused before it
/// is sent, because the first real poll would fail as well.
async fn refused_request(
    config: &Config,
    target: &Arc<RuntimeTarget>,
    (sandbox, plugins): (&Sandbox, &PluginSet),
    now: Timestamp,
) -> Option<Problem> {
    /// Error codes that are caused by the configuration, not by the server.
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
            // Requests are checked as usual; the recording answers none of them.
            tape: Tape::Replay(Arc::new(Player::new(Vec::new()))),
        })
        .await;
    let Outcome::Failure(failure) = done.outcome else { return None };
    CERTAIN.contains(&failure.code.as_str()).then(|| Problem {
        place: format!("{}:{}", config.file, target.config.line),
        message: format!("target {:?}: its first poll would fail: {}", target.id(), failure.message),
    })
}

/// Returns a warning for each part of the configuration that is valid but probably a mistake.
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
                "its timeout ({}) is longer than its interval ({}): a poll that hangs delays the next one",
                show_duration(timeout),
                show_duration(interval)
            ));
        }
        if target.url.scheme() == "http" && target.tls != TlsConfig::default() {
            note("it sets tls, but its url is http://: nothing is encrypted".to_owned());
        }
    }
    if config.targets.is_empty() {
        let message = "the configuration has no [[target]]: nothing would be polled".to_owned();
        found.push(Problem { place: config.file.clone(), message });
    }
    if config.sources.contains_key("plugins.dir") && !config.plugin_dir.is_dir() {
        let message = format!("no folder {}: no plugins are loaded from it", config.plugin_dir.display());
        found.push(Problem { place: format!("{}: [plugins] dir", config.file), message });
    }
    found
}

fn near(plugins: &PluginSet, kind: &model::Kind) -> String {
    let kinds: Vec<&str> = plugins.served().map(|served| served.plugin.descriptor().kind.as_str()).collect();
    suggestion(kind.as_str(), &kinds)
}
