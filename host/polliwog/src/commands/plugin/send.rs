//! `plugin send`: sends one notification of a made-up alert, in this process, without storing anything.

use super::project::Project;
use crate::cli::SendArguments;
use crate::commands::poll::named_secrets;
use crate::output::print;
use anyhow::{Context, anyhow, bail};
use config::TargetConfig;
use egress::{Origin, Tape};
use engine::{Clock, runtime_target, test_notification};
use model::TargetId;
use sandbox::{Role, Sent};
use std::sync::Arc;

/// The name of the channel.
const AD_HOC: &str = "ad-hoc";

/// Sends the notification. Returns exit code 0 if the receiver took it, else 1.
pub(crate) async fn send(arguments: &SendArguments) -> anyhow::Result<u8> {
    let clock = Clock::start();
    let (url, _) = Origin::parse(&arguments.url).context("--url")?;
    let settings = match &arguments.settings {
        Some(text) => serde_json::from_str(text).context("--settings is not JSON")?,
        None => serde_json::json!({}),
    };
    let secrets = named_secrets(&arguments.secret)?;
    let project = Project::find(&arguments.path)?;
    project.warn_when_stale();
    let (sandbox, plugin) = project.load().await?;
    let kind = plugin.descriptor().kind.clone();
    if plugin.descriptor().role == Role::Poller {
        bail!("kind {kind} polls targets: use `polliwog poll --{} {}`", project.option(), project.component.display());
    }
    let problems = sandbox.check_settings(&plugin, &settings).await.map_err(|why| anyhow!("settings: {why}"))?;
    if !problems.is_empty() {
        bail!("settings: {}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let channel =
        TargetConfig { secrets, settings, is_channel: true, ..TargetConfig::new(TargetId::new(AD_HOC)?, kind, url) };
    let ready = runtime_target(&Arc::new(channel), Some(&plugin), config::Limits::default());
    let ready = ready.map_err(|problems| anyhow!(problems.join("; ")))?;
    let now = clock.wall();
    let Sent { result, usage, .. } =
        sandbox.send(ready.job(&plugin, now, Tape::Off), &test_notification(AD_HOC, now)).await;
    if let Err(failure) = result {
        bail!("it was not taken ({}): {}", failure.code, failure.message);
    }
    let (wall, cpu) = (usage.wall.as_secs_f64() * 1000.0, usage.cpu.as_secs_f64() * 1000.0);
    print(&format!("it was taken: {} requests, {wall:.1} ms, of it {cpu:.1} ms of processor time", usage.requests))?;
    Ok(0)
}
