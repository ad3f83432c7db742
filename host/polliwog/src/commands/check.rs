//! `check`: validates the configuration, the plugins and the settings.

use crate::cli::Common;
use crate::configuration::{examine, unknown_variables};
use crate::output::{counted, print, print_json};
use crate::plugins::{load, sandbox};
use catalog::{PluginSet, Uncompiled};
use config::{Config, Problem, line, suggestion, warnings};
use engine::{Clock, prepare_all, refused_request};
use serde_json::json;

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
                let Some(served) = plugins.get(&target.config.kind) else { continue };
                let refused = refused_request(&sandbox, &served.plugin, target, now).await;
                problems.extend(refused.map(|why| Problem {
                    place: format!("{}:{}", config.file, target.config.line),
                    message: format!("target {:?}: its first poll would fail: {why}", target.id()),
                }));
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
    let warnings = idle.chain(warnings(config)).collect();
    Ok(Findings { problems, warnings, unserved: unserved.collect() })
}

fn near(plugins: &PluginSet, kind: &model::Kind) -> String {
    let kinds: Vec<&str> = plugins.served().map(|served| served.plugin.descriptor().kind.as_str()).collect();
    suggestion(kind.as_str(), &kinds)
}
