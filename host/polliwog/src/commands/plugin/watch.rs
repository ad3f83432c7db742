//! `plugin watch`: builds and polls each time a source file is saved.

use super::project::{Project, newest_source};
use crate::cli::PollArguments;
use crate::output::complain;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Command;

/// The interval of the checks for changed sources. Checking works on every file system, unlike notifications.
const INTERVAL: Duration = Duration::from_millis(500);

/// Builds and polls until the process is interrupted.
pub(crate) async fn watch(path: &Path, arguments: PollArguments) -> anyhow::Result<u8> {
    let (program, words) = builder(path)?;
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut taken = None;
    loop {
        ticks.tick().await;
        let newest = newest_source(path);
        if newest == taken {
            continue;
        }
        if let Some((_, source)) = &newest {
            complain(format_args!("{} was saved: {program} {}", source.display(), words.join(" ")));
        }
        taken = newest;
        let built = Command::new(program).args(words).current_dir(path).status().await;
        let built: ExitStatus = built.with_context(|| format!("running {program}"))?;
        if !built.success() {
            complain("the build failed; it is repeated at the next save");
            continue;
        }
        // The build itself may write source files.
        taken = newest_source(path);
        let plugin = Project::find(path)?.component;
        complain(format_args!("polling with {}", plugin.display()));
        crate::commands::poll::poll(PollArguments { plugin: Some(plugin), ..arguments.clone() }).await?;
    }
}

/// Returns the build command of a project, chosen by its files.
fn builder(path: &Path) -> anyhow::Result<(&'static str, &'static [&'static str])> {
    for (file, program, words) in [
        ("Cargo.toml", "cargo", &["build", "--release", "--target", "wasm32-wasip2"][..]),
        ("package.json", "npm", &["run", "--silent", "build"]),
        ("build.sh", "sh", &["build.sh"]),
    ] {
        if path.join(file).is_file() {
            return Ok((program, words));
        }
    }
    bail!("{} contains no Cargo.toml, package.json or build.sh: pass the folder of a project", path.display())
}
