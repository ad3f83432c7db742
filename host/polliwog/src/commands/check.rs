//! `check`: validates the configuration, the plugins and the settings.

use crate::cli::Common;
use crate::configuration::{examine, unknown_variables};
use crate::fleet_host;
use crate::output::{counted, print, print_json};
use crate::plugins::{compiling, load, sandbox};
use catalog::Uncompiled;
use config::{Problem, line};
use engine::inspect;
use serde_json::json;

/// The findings in a configuration.
#[derive(Default)]
pub(super) struct Examined {
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// Targets whose kind no plugin serves.
    pub unserved: Vec<Problem>,
    /// Conditions of routes and silences that no target in the file meets.
    pub unmet: Vec<Problem>,
    pub targets: usize,
}

/// Validates the configuration, its plugins and its settings.
pub(super) async fn examined(common: &Common) -> anyhow::Result<Examined> {
    let (config, problems) = examine(&common.places())?;
    let Some(config) = config else { return Ok(Examined { problems, ..Examined::default() }) };
    let sandbox = sandbox(&config)?;
    let plugins = load(&config, sandbox.clone(), Uncompiled::Compile(compiling)).await;
    let findings = inspect(&config, &sandbox, plugins.set()).await;
    let mut found = Examined { problems, targets: config.targets.len(), ..Examined::default() };
    found.problems.extend(findings.problems);
    found.problems.extend(unknown_variables(&config));
    found.problems.extend(fleet_host::problems(&config));
    found.warnings = findings.warnings;
    (found.unserved, found.unmet) = (findings.unserved, findings.unmet);
    found.problems.sort_by_key(|problem| line(&problem.place));
    Ok(found)
}

/// Parts that a configuration need not have yet.
#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    pub missing_plugins: bool,
    pub missing_targets: bool,
}

/// Prints every problem. Returns exit code 0 without problems, else 1.
pub(crate) async fn check(common: &Common, json: bool, allowed: Allowed) -> anyhow::Result<u8> {
    let Examined { mut problems, mut warnings, unserved, unmet, targets } = examined(common).await?;
    let with =
        |hint: &'static str| move |Problem { place, message }| Problem { place, message: format!("{message}{hint}") };
    let unserved = unserved
        .into_iter()
        .map(with(", name the host's --data-dir, or use --allow-missing-plugins if it comes later"));
    let unmet =
        unmet.into_iter().map(with(": correct it, or use --allow-missing-targets if such a target comes later"));
    if allowed.missing_plugins { &mut warnings } else { &mut problems }.extend(unserved);
    if allowed.missing_targets { &mut warnings } else { &mut problems }.extend(unmet);
    problems.sort_by_key(|problem| line(&problem.place));
    if json {
        let list = |all: &[Problem]| -> Vec<_> {
            all.iter().map(|p| json!({ "place": p.place, "message": p.message })).collect()
        };
        let found = json!({ "ok": problems.is_empty(), "problems": list(&problems), "warnings": list(&warnings) });
        print_json(&found)?;
    } else {
        let problem_lines = problems.iter().map(ToString::to_string);
        // Settings may follow the sentence.
        let warning = |warning: &Problem| match warning.to_string().split_once('\n') {
            Some((sentence, rest)) => format!("{sentence} (a warning)\n{rest}"),
            None => format!("{warning} (a warning)"),
        };
        let warning_lines = warnings.iter().map(warning);
        let verdict = match problems.len() {
            0 => format!("all is well: {}", counted(targets, "target")),
            count => counted(count, "problem"),
        };
        let lines: Vec<String> = problem_lines.chain(warning_lines).chain([verdict]).collect();
        print(&lines.join("\n"))?;
    }
    Ok(u8::from(!problems.is_empty()))
}
