//! `plugin send`: sends one notification of a made-up alert, in this process, without storing anything.

use super::project::Project;
use super::recording;
use crate::cli::SendArguments;
use crate::commands::poll::{NamedSecrets, named_secrets};
use crate::output::{complain, counted, print};
use anyhow::{Context, anyhow, bail};
use config::TargetConfig;
use egress::{Origin, Recorder, Tape};
use engine::{Clock, runtime_target, sample_notification};
use model::TargetId;
use sandbox::{Attempt, Collected, Recording, Role, Sent, SettingsVersion, Timing};
use std::sync::Arc;

/// The name of the channel, as in the replay of a recording.
const AD_HOC: &str = "recorded";

/// Sends the notification. Returns exit code 0 if the receiver took it, else 1.
pub(crate) async fn send(arguments: &SendArguments) -> anyhow::Result<u8> {
    let clock = Clock::start();
    if let Some(Err(why)) = arguments.record.as_deref().map(recording::may_be_written) {
        bail!("--record: {why}");
    }
    let (url, _) = Origin::parse(&arguments.url).context("--url")?;
    let settings = match &arguments.settings {
        Some(text) => serde_json::from_str(text).context("--settings is not JSON")?,
        None => serde_json::json!({}),
    };
    let NamedSecrets { sources, short } = named_secrets(&arguments.secret)?;
    let project = Project::find(&arguments.path)?;
    project.warn_when_stale();
    let (sandbox, plugin) = project.load().await?;
    let kind = plugin.descriptor().kind.clone();
    if plugin.descriptor().role == Role::Poller {
        bail!("kind {kind} polls targets: use `polliwog poll --{} {}`", project.option(), project.component.display());
    }
    let accepted = sandbox.accept_settings(&plugin, &settings, SettingsVersion::Assumed(1)).await;
    let accepted = accepted.map_err(|why| anyhow!("settings: {why}"))?.map_err(|problems| {
        anyhow!("settings: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })?;
    let channel = TargetConfig {
        secrets: sources,
        short_secrets: short,
        settings,
        is_channel: true,
        ..TargetConfig::new(TargetId::new(AD_HOC)?, kind, url)
    };
    let ready = runtime_target(&Arc::new(channel), Some(&plugin), config::Limits::default());
    let ready = ready.map_err(|problems| anyhow!(problems.join("; ")))?.with_settings(&accepted);
    let (now, event) = (clock.wall(), arguments.event.into());
    let recorder = arguments.record.as_ref().map(|_| Arc::new(Recorder::default()));
    let tape = recorder.clone().map_or(Tape::Off, Tape::Record);
    let notification = sample_notification(ready.id().as_str(), (event, arguments.alerts), now);
    let progress = Arc::new(Collected::default());
    let attempt = Attempt::first(notification, now, progress.clone());
    let Sent { result, usage, .. } = sandbox.send(ready.job(&plugin, now, tape), attempt).await;
    if let (Some(file), Some(recorder)) = (&arguments.record, recorder) {
        let timing = Timing { now, timeout: ready.timeout, zone: sandbox.zone().clone() };
        let recorded = Recording::of(&ready.config.kind, &ready.prepared, timing, recorder.exchanges());
        recording::write(&recorded.with_event(event, arguments.alerts), file)?;
        complain(format_args!("{} written to {}", counted(recorder.exchanges().len(), "exchange"), file.display()));
    }
    if let Some(why) = progress.take().into_iter().find_map(|alert| alert.refused) {
        bail!("the receiver refuses the alert: {why}");
    }
    if let Err(failure) = result {
        let wait = failure.retry_after.map_or_else(String::new, |wait| format!(", not before {wait:?} are over"));
        bail!("it was not taken ({}, {}{wait}): {}", failure.code, failure.category.as_str(), failure.message);
    }
    let (wall, cpu) = (usage.wall.as_secs_f64() * 1000.0, usage.cpu.as_secs_f64() * 1000.0);
    let requests = counted(usage.requests as usize, "request");
    print(&format!("it was taken: {requests}, {wall:.1} ms, of it {cpu:.1} ms of processor time"))?;
    Ok(0)
}
