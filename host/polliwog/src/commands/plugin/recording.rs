//! Files with recordings, and their replay. `poll --record` and `plugin send --record` write them; `plugin test` and
//! `plugin bench` replay them.

use crate::commands::poll::output::result_json;
use anyhow::Context;
use egress::{Seen, Tape};
use engine::sample_notification;
use model::{Failure, Outcome};
use sandbox::{Attempt, Collected, Done, Plugin, Recording, Role, Sandbox, Sent, SettingsVersion, Usage};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use store::{Aliases, KnownState};

/// The longest recording, in bytes.
const LONGEST: u64 = 256 << 20;

/// Checks whether a recording may be written to `file`. Fails with the reason if the file exists and is not a
/// recording, or if `plugin test` would not find it by its name.
pub(crate) fn may_be_written(file: &Path) -> Result<(), String> {
    let name = file.display();
    let words = file.file_name().unwrap_or_default().to_string_lossy();
    if !words.ends_with(".json") || words.ends_with(".report.json") {
        return Err(format!("the name of a recording must end in .json and not in .report.json: {name}"));
    }
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(format!("the folder {} does not exist: create it first", folder.display()));
    }
    match read(file) {
        Err(_) if file.exists() => Err(format!("{name} exists and is not a recording: choose another name")),
        _ => Ok(()),
    }
}

/// Writes a recording.
pub(crate) fn write(recording: &Recording, file: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(recording)?;
    std::fs::write(file, format!("{text}\n")).with_context(|| format!("writing the recording {}", file.display()))
}

/// Reads a recording. Fails with the reason if the file is not a valid recording.
pub(crate) fn read(file: &Path) -> Result<Recording, String> {
    Recording::parse(&config::read_text(file, LONGEST)?, &file.display().to_string())
}

/// The result of a plugin over a recording.
pub(crate) struct Replayed {
    /// The report, the failure, or that the receiver took the notification.
    pub result: Value,
    pub failure: Option<Failure>,
    pub usage: Usage,
    pub seen: Seen,
    /// How the requests differ from the recorded ones.
    pub differences: Vec<String>,
}

/// The state of the target of a recording between its polls.
#[derive(Default)]
pub(crate) struct Memory {
    known: KnownState,
    /// The settings as the plugin accepts them, in JSON. `None` before the first poll.
    settings: Option<String>,
}

impl Memory {
    /// Runs a plugin over all polls of a recording, from the first one.
    ///
    /// # Errors
    /// One sentence: why the recording does not fit the plugin.
    pub(crate) async fn replay_all(
        sandbox: &Sandbox,
        plugin: &Plugin,
        recording: &Recording,
    ) -> Result<Vec<Replayed>, String> {
        let (mut memory, mut all) = (Self::default(), Vec::new());
        for poll in 0..recording.polls() {
            all.push(replay(sandbox, plugin, recording, poll, &mut memory).await?);
        }
        Ok(all)
    }

    /// The settings of the recording as a host passes them to the plugin: converted, and with defaults.
    async fn settings(&mut self, sandbox: &Sandbox, plugin: &Plugin, recording: &Recording) -> Result<String, String> {
        if let Some(known) = &self.settings {
            return Ok(known.clone());
        }
        let accepted = sandbox.accept_settings(plugin, &recording.settings(), SettingsVersion::Assumed(1)).await?;
        let accepted = accepted.map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            format!("the plugin refuses the settings of the recording: {}", problems.join("; "))
        })?;
        Ok(self.settings.insert(accepted.complete.to_string()).clone())
    }
}

/// Runs a plugin over one poll of a recording. The first one forgets the plugin's cache.
///
/// # Errors
/// One sentence: why the recording does not fit the plugin.
pub(crate) async fn replay(
    sandbox: &Sandbox,
    plugin: &Plugin,
    recording: &Recording,
    poll: usize,
    memory: &mut Memory,
) -> Result<Replayed, String> {
    let kind = plugin.descriptor().kind.as_str();
    if recording.kind != kind {
        return Err(format!("it is a recording of kind {}, but the plugin serves {kind}", recording.kind));
    }
    let mut job = recording.job(plugin, poll, memory.settings(sandbox, plugin, recording).await?)?;
    if poll == 0 {
        sandbox.forget(&job.target.id, &plugin.descriptor().kind);
        memory.known = KnownState::default();
    }
    job.stored = memory.known.values.clone();
    let now = job.now;
    let tape = job.tape.clone();
    let (result, failure, usage, seen) = match (plugin.descriptor().role, recording.event()) {
        (Role::Poller, None) => {
            let Done { outcome, usage, seen, stored, .. } = sandbox.poll(job).await;
            let (outcome, _) = memory.known.keep(outcome, stored, now, &Aliases::new());
            let result = result_json(&outcome);
            let failure = if let Outcome::Failure(failure) = outcome { Some(failure) } else { None };
            (result, failure, usage, seen)
        }
        (Role::Notifier { .. }, Some(event)) => {
            let notification = sample_notification(job.target.id.as_str(), (event, recording.alerts()), job.now);
            let progress = Arc::new(Collected::default());
            let attempt = Attempt::first(notification, now, progress.clone());
            let Sent { result, usage, seen, .. } = sandbox.send(job, attempt).await;
            let failure = result.err();
            let failed = failure.clone().map(|failure| result_json(&Outcome::Failure(failure)));
            let mut result = failed.unwrap_or_else(|| json!({ "taken": true }));
            let recorded = progress.take();
            if !recorded.is_empty() {
                let shown =
                    recorded.iter().map(|alert| json!({ "fingerprint": alert.fingerprint, "refused": alert.refused }));
                result["progress"] = shown.collect();
            }
            (result, failure, usage, seen)
        }
        (Role::Poller, Some(_)) => return Err("it is a recording of a notification, but the plugin polls".to_owned()),
        (Role::Notifier { .. }, None) => {
            return Err("it is a recording of a poll, but the plugin sends notifications".to_owned());
        }
    };
    let differences = if let Tape::Replay(player) = &tape { player.differences() } else { Vec::new() };
    Ok(Replayed { result, failure, usage, seen, differences })
}
