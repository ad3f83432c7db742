//! `plugin watch`: what an author saved is built and polled with at once.

use super::project::{Project, newest_source};
use crate::cli::PollArguments;
use crate::output::complain;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Command;

/// How often the sources are looked at. Looking works on every file system, unlike being told.
const LOOK: Duration = Duration::from_millis(500);

/// Builds and polls, until it is ended.
pub(crate) async fn watch(path: &Path, arguments: PollArguments) -> anyhow::Result<u8> {
    let (program, words) = builder(path)?;
    let mut ticks = tokio::time::interval(LOOK);
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
            complain("it was not built; the next save is tried again");
            continue;
        }
        // The build itself may write what counts as a source.
        taken = newest_source(path);
        let plugin = Project::find(path)?.component;
        complain(format_args!("polling with {}", plugin.display()));
        crate::commands::poll::poll(PollArguments { plugin: Some(plugin), ..arguments.clone() }).await?;
    }
}

/// What builds a project, by what lies in it.
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
    bail!("{} holds neither Cargo.toml nor package.json nor build.sh: give the folder of a project", path.display())
}
