//! `check`: everything that is wrong, before it is run.

use crate::cli::Common;
use crate::common::{compiler, counted, examine, print, print_json};
use crate::config::{Config, Problem, line, suggestion};
use crate::estate::{self, Files};
use crate::plugins::{Judging, Keeper, PluginSet, Trust};
use egress::Egress;
use sandbox::Sandbox;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Validates; 0 when all is well, 1 when something is wrong.
pub(crate) async fn check(common: &Common, json: bool) -> anyhow::Result<u8> {
    let (config, mut problems) = examine(&common.places())?;
    let (mut warnings, mut targets) = (Vec::new(), 0);
    if let Some(config) = config {
        targets = config.targets.len();
        let looked_at = look(&config).await?;
        problems.extend(looked_at.0);
        warnings = looked_at.1;
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

/// What is wrong with what a configuration names, and what its operator may not have meant.
async fn look(config: &Config) -> anyhow::Result<(Vec<Problem>, Vec<Problem>)> {
    let egress = Egress::new(egress::Config::default());
    let sandbox = Sandbox::new(sandbox::Config::default(), compiler(&config.data_dir)?, &egress)?;
    let sandbox = Arc::new(sandbox);
    let plugins =
        Keeper::start(sandbox.clone(), (&config.plugin_dir, &config.data_dir), Trust::of(config), Judging::All)
            .await
            .set()
            .clone();
    let refused = plugins.refused().iter();
    let mut problems: Vec<Problem> =
        refused.map(|refused| Problem { place: refused.file.clone(), message: refused.reason.clone() }).collect();
    let built = estate::build(config, (&sandbox, &plugins), &BTreeMap::new(), Files::Reread).await;
    problems.extend(built.err().into_iter().flatten());
    let idle = config.limits.keys().filter(|kind| plugins.get(kind).is_none()).map(|kind| Problem {
        place: format!("{}: [plugins.limits.{kind}]", config.file),
        message: format!("no plugin serves kind {kind}{}; these limits hold for nobody", near(&plugins, kind)),
    });
    let unserved = config.targets.iter().filter(|target| plugins.get(&target.kind).is_none());
    let warnings = unserved.map(|target| Problem {
        place: format!("{}:{}", config.file, target.line),
        message: format!(
            "target {:?}: no plugin serves kind {}{}; drop one into {}",
            target.id,
            target.kind,
            near(&plugins, &target.kind),
            config.plugin_dir.display()
        ),
    });
    Ok((problems, idle.chain(warnings).collect()))
}

fn near(plugins: &PluginSet, kind: &model::Kind) -> String {
    let kinds: Vec<&str> = plugins.served().map(|served| served.plugin.descriptor().kind.as_str()).collect();
    suggestion(kind.as_str(), &kinds)
}
