//! `poll`: polls once, in this process, without storing anything.

pub(crate) mod output;

use crate::cli::{PollArguments, USAGE};
use crate::commands::plugin::recording;
use crate::configuration::{Unusable, nearby, read};
use crate::output::{complain, counted, print, print_json};
use crate::plugins::{say_compiling, serving, small_sandbox};
use anyhow::{Context, anyhow, bail};
use config::{Config, SecretSource, TargetConfig, TlsConfig};
use egress::{Fingerprint, Origin, Recorder, Tape};
use engine::{Clock, RuntimeTarget, runtime_target};
use model::{Kind, TargetId};
use sandbox::{Backtrace, Plugin, Recording, Role, Sandbox, SettingsVersion, Timing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The id of a target that is not configured.
const AD_HOC: &str = "ad-hoc";
/// After the source of a secret on the command line: its value may be too short to be masked.
const SHORT: &str = ",short";

/// Polls once, or several times in a row. The exit code is the worst status of the last poll, or [`output::FAILED`] if
/// the poll fails.
pub(crate) async fn poll(arguments: PollArguments) -> anyhow::Result<u8> {
    Ok(poll_once(arguments).await.unwrap_or_else(|error| {
        complain(format_args!("polliwog: {error:#}"));
        output::FAILED
    }))
}

async fn poll_once(arguments: PollArguments) -> anyhow::Result<u8> {
    let clock = Clock::start();
    if let Some(Err(why)) = arguments.record.as_deref().map(recording::may_be_written) {
        complain(format_args!("polliwog: --record: {why}"));
        return Ok(USAGE);
    }
    let (config, mut target) = match wanted(&arguments) {
        Ok(found) => found,
        Err(Unusable::Usage(error)) => {
            complain(format_args!("polliwog: {error:#}"));
            return Ok(USAGE);
        }
        Err(Unusable::Other(error)) => return Err(error),
    };
    let (sandbox, plugin) = match &arguments.plugin {
        Some(file) => {
            let (sandbox, plugin) = given(&config, file).await?;
            target.kind = plugin.descriptor().kind.clone();
            (sandbox, plugin)
        }
        None => {
            let sandbox = Arc::new(small_sandbox(&config, Backtrace::default())?);
            let served = match serving(&config, &sandbox, &target.kind).await {
                Ok(served) => served,
                Err(error) => {
                    complain(format_args!("polliwog: {error}"));
                    return Ok(output::FAILED);
                }
            };
            (sandbox, served.plugin.clone())
        }
    };
    if plugin.descriptor().role != Role::Poller {
        complain(format_args!("polliwog: kind {} sends notifications: use `polliwog plugin send`", target.kind));
        return Ok(USAGE);
    }
    let version = target.settings_version.map_or(SettingsVersion::Assumed(1), SettingsVersion::Written);
    let accepted = sandbox.accept_settings(&plugin, &target.settings, version).await;
    let accepted = match accepted.map_err(|why| anyhow!("settings: {why}"))? {
        Ok(accepted) => accepted,
        Err(problems) => {
            problems.iter().for_each(|problem| complain(format_args!("polliwog: settings: {problem}")));
            return Ok(USAGE);
        }
    };
    let limits = config.limits.get(&target.kind).cloned().unwrap_or_default();
    let ready = runtime_target(&Arc::new(target), Some(&plugin), limits);
    let ready = ready.map_err(|problems| anyhow!(problems.join("; ")))?.with_settings(&accepted);
    poll_in_a_row(&arguments, (&sandbox, &plugin), &ready, clock).await
}

/// Polls as often as the command line says, prints each result, and writes the recording. Returns the exit code.
async fn poll_in_a_row(
    arguments: &PollArguments,
    (sandbox, plugin): (&Arc<Sandbox>, &Plugin),
    ready: &RuntimeTarget,
    clock: Clock,
) -> anyhow::Result<u8> {
    let (mut all, mut recorded, mut exchanges, mut code) = (Vec::new(), None::<Recording>, 0, output::FAILED);
    for _ in 0..arguments.polls {
        let (now, recorder) = (clock.wall(), arguments.record.as_ref().map(|_| Arc::new(Recorder::default())));
        let tape = recorder.clone().map_or(Tape::Off, Tape::Record);
        let done = ready.keep(sandbox.poll(ready.job(plugin, now, tape)).await, now);
        if arguments.json {
            all.push(output::json(ready, plugin, &done));
        } else {
            print(output::text(ready, &done).trim_end())?;
        }
        code = output::exit_code(&done.outcome);
        let Some(recorder) = recorder else { continue };
        exchanges += recorder.exchanges().len();
        recorded = Some(match recorded {
            Some(before) => before.with_later(now, recorder.exchanges()),
            None => {
                let timing = Timing { now, timeout: ready.timeout, zone: sandbox.zone().clone() };
                Recording::of(&ready.config.kind, &ready.prepared, timing, recorder.exchanges())
            }
        });
    }
    // Nothing of this process is kept, so it is the end of all sessions.
    if let Some(closing) = sandbox.last_session(ready.job(plugin, clock.wall(), Tape::Off)) {
        sandbox.close(closing).await;
    }
    match &all[..] {
        [] => {}
        [one] => print_json(one)?,
        several => print_json(&several.into())?,
    }
    if let (Some(file), Some(recorded)) = (&arguments.record, recorded) {
        recording::write(&recorded, file)?;
        complain(format_args!("{} written to {}", counted(exchanges, "exchange"), file.display()));
    }
    Ok(code)
}

/// Loads a plugin file that was passed on the command line.
async fn given(config: &Config, file: &Path) -> anyhow::Result<(Arc<Sandbox>, Plugin)> {
    let refused = |why: String| anyhow!("{} is refused: {why}", file.display());
    let content = catalog::read(file).map_err(refused)?;
    let sandbox = Arc::new(small_sandbox(config, Backtrace::of(&content))?);
    say_compiling(&sandbox, &content, file);
    let plugin = sandbox.load(&content).await.map_err(|refusal| refused(refusal.message))?;
    Ok((sandbox, plugin))
}

fn wanted(arguments: &PollArguments) -> Result<(Config, TargetConfig), Unusable> {
    if let Some(id) = &arguments.target {
        let config = read(&arguments.common.places()).map_err(Unusable::Other)?;
        let config = config.map_err(Unusable::listed)?;
        let found = config.targets.iter().find(|target| target.id.as_str() == id).cloned();
        let target = found.map(|target| TargetConfig::clone(&target)).ok_or_else(|| {
            let known: Vec<&str> = config.targets.iter().map(|target| target.id.as_str()).collect();
            Unusable::Usage(anyhow!("there is no target {id:?} in {}: there are {}", config.file, known.join(", ")))
        })?;
        return Ok((config, target));
    }
    let target = ad_hoc(arguments).map_err(Unusable::Usage)?;
    let config = nearby(&arguments.common)?;
    Ok((config, target))
}

fn ad_hoc(arguments: &PollArguments) -> anyhow::Result<TargetConfig> {
    // A plugin file defines its kind itself.
    let kind = arguments.kind.as_deref().unwrap_or(if arguments.plugin.is_some() { "given" } else { "" });
    let kind = Kind::new(kind).context("--kind")?;
    let (url, _) = Origin::parse(arguments.url.as_deref().unwrap_or_default()).context("--url")?;
    let settings = match &arguments.settings {
        Some(text) => serde_json::from_str(text).context("--settings is not JSON")?,
        None => serde_json::json!({}),
    };
    let fingerprints = match &arguments.fingerprint {
        Some(text) => BTreeSet::from([Fingerprint::parse(text).context("--fingerprint")?]),
        None => BTreeSet::new(),
    };
    let NamedSecrets { sources, short } = named_secrets(&arguments.secret)?;
    Ok(TargetConfig {
        name: url.to_string(),
        tls: TlsConfig { fingerprints, insecure: arguments.insecure, ..TlsConfig::default() },
        secrets: sources,
        short_secrets: short,
        settings,
        ..TargetConfig::new(TargetId::new(AD_HOC)?, kind, url)
    })
}

/// Secrets from the command line.
pub(crate) struct NamedSecrets {
    /// The source of each secret, by name.
    pub sources: BTreeMap<String, SecretSource>,
    /// The names of those that may be too short to be masked.
    pub short: BTreeSet<String>,
}

/// Parses the secrets of the command line, each `NAME=SOURCE`.
pub(crate) fn named_secrets(texts: &[String]) -> anyhow::Result<NamedSecrets> {
    let (mut sources, mut short) = (BTreeMap::new(), BTreeSet::new());
    for text in texts {
        let (text, is_short) = text.strip_suffix(SHORT).map_or((text.as_str(), false), |text| (text, true));
        let (name, source) = secret(text)?;
        if is_short {
            short.insert(name.clone());
        }
        if sources.insert(name.clone(), source).is_some() {
            bail!("--secret: the secret {name:?} is given twice: pass it once");
        }
    }
    Ok(NamedSecrets { sources, short })
}

fn secret(text: &str) -> anyhow::Result<(String, SecretSource)> {
    let wrong = || {
        anyhow!(
            "--secret: write NAME=env:VARIABLE or NAME=file:PATH, never the value itself; {SHORT} after it permits a value \
             under 8 bytes"
        )
    };
    let (name, source) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let source = match source.split_once(':') {
        Some((_, "")) => return Err(wrong()),
        Some(("env", variable)) => SecretSource::Variable(variable.to_owned()),
        Some(("file", path)) => SecretSource::File(PathBuf::from(path)),
        _ => return Err(wrong()),
    };
    Ok((name.to_owned(), source))
}
