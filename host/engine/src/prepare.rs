//! Preparing the targets of a configuration, and comparing them with those that run.

use crate::settings_versions::SettingsVersions;
use crate::target::{RuntimeTarget, email_settings, runtime_target};
use catalog::{BUILT_IN, PluginSet, Served};
use config::{Config, Difference, Limits, Problem, TargetConfig};
use model::{Kind, TargetId, TargetSource};
use sandbox::{AcceptedSettings, Role, Sandbox, SettingsProblem, SettingsVersion};
use scheduler::Change;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Targets by id.
pub type Targets = BTreeMap<TargetId, Arc<RuntimeTarget>>;

/// The files of secrets and certificates that are read again for targets that are otherwise unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// All of them.
    All,
    /// Only these, because they changed.
    Changed(HashSet<PathBuf>),
}

impl Files {
    /// None of them.
    pub fn none() -> Self {
        Self::Changed(HashSet::new())
    }

    fn concern(&self, target: &TargetConfig) -> bool {
        match self {
            Self::All => target.files().next().is_some(),
            Self::Changed(changed) if changed.is_empty() => false,
            Self::Changed(changed) => target.files().any(|file| changed.contains(file)),
        }
    }
}

/// The input of [`prepare`].
#[derive(Clone, Copy)]
pub(crate) struct Preparation<'a> {
    pub config: &'a Config,
    pub sandbox: &'a Sandbox,
    pub plugins: &'a PluginSet,
    /// The targets that run.
    pub before: &'a Targets,
    pub files: &'a Files,
}

/// The prepared targets, and how they differ from those that run.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Every target.
    pub targets: Targets,
    /// New and changed targets; the change is `None` for a new one.
    pub changed: Vec<(Arc<RuntimeTarget>, Option<Change>)>,
    /// Removed targets.
    pub removed: Vec<TargetId>,
    /// Targets made through the API that cannot be prepared, with all reasons. They are not in the other lists.
    pub unfit: BTreeMap<TargetId, String>,
    /// Settings that were written for an earlier version of a plugin.
    pub(crate) converted: Vec<Converted>,
}

/// Settings that were written for an earlier version of a plugin, and converted.
#[derive(Clone, Debug)]
pub(crate) struct Converted {
    pub target: Arc<TargetConfig>,
    /// The version that they were written for, and the present one.
    pub versions: (u32, u32),
    /// The converted settings.
    pub settings: serde_json::Value,
}

impl Converted {
    /// Says what was converted.
    pub(crate) fn sentence(&self) -> String {
        let ((written, current), TargetConfig { id, kind, .. }) = (self.versions, &*self.target);
        let noun = self.target.noun();
        format!(
            "{noun} {id:?}: its settings are of version {written}, and are converted to version {current} of kind {kind}"
        )
    }
}

/// The values that all targets of a kind share.
struct OfKind<'a> {
    limits: Limits,
    served: Option<&'a Arc<Served>>,
    /// Whether the plugin failed to check settings. It is then not asked again.
    unable: bool,
}

/// A prepared configuration that does not run.
pub(crate) struct PreparedConfig {
    pub targets: Targets,
    pub channels: Targets,
    /// Every problem of targets and channels that are in neither.
    pub problems: Vec<Problem>,
    pub converted: Vec<Converted>,
}

/// Prepares the valid targets and channels of a configuration that does not run.
pub(crate) async fn prepare_all(config: &Config, sandbox: &Sandbox, plugins: &PluginSet) -> PreparedConfig {
    let (before, files) = (&Targets::new(), &Files::All);
    let of = Preparation { config, sandbox, plugins, before, files };
    let (prepared, mut problems) = prepare_valid(of, &config.targets).await;
    let (channels, found) = prepare_valid(of, &config.channels).await;
    problems.extend(found);
    let converted = prepared.converted.into_iter().chain(channels.converted).collect();
    PreparedConfig { targets: prepared.targets, channels: channels.targets, problems, converted }
}

/// Prepares every target. Targets that did not change stay the same `Arc`.
///
/// # Errors
/// Every problem with its place.
pub(crate) async fn prepare(of: Preparation<'_>) -> Result<Prepared, Vec<Problem>> {
    result(prepare_valid(of, &of.config.targets).await)
}

/// Prepares every channel, as a target that is not polled. `of.before` are the channels that run.
///
/// # Errors
/// Every problem with its place.
pub(crate) async fn prepare_channels(of: Preparation<'_>) -> Result<Prepared, Vec<Problem>> {
    result(prepare_valid(of, &of.config.channels).await)
}

fn result((prepared, problems): (Prepared, Vec<Problem>)) -> Result<Prepared, Vec<Problem>> {
    if problems.is_empty() { Ok(prepared) } else { Err(problems) }
}

async fn prepare_valid<'a>(of: Preparation<'a>, all: &'a [Arc<TargetConfig>]) -> (Prepared, Vec<Problem>) {
    let mut kinds: HashMap<&Kind, OfKind<'_>> = HashMap::new();
    let mut checked = Checked { versions: SettingsVersions::read(&of.config.data_dir), known: HashMap::new() };
    let (mut prepared, mut problems) = (Prepared::default(), Vec::new());
    for written in all {
        let kind = kinds.entry(&written.kind).or_insert_with(|| OfKind {
            limits: of.config.limits.get(&written.kind).cloned().unwrap_or_default(),
            served: of.plugins.get(&written.kind),
            unable: false,
        });
        let before = of.before.get(&written.id);
        let kept = before.filter(|_| !of.files.concern(written)).and_then(|before| reuse(before, written, kind));
        let target = match kept {
            Some(kept) => Ok(kept),
            None => {
                let settings = accepted_settings(of, written, kind, &mut checked).await;
                let accepted = settings.as_ref().ok().and_then(Option::as_ref);
                let renewed = renew(written, kind, before, accepted);
                match (renewed, settings) {
                    (Ok(target), Ok(accepted)) => {
                        prepared.converted.extend(accepted.and_then(|accepted| converted(written, kind, &accepted)));
                        Ok(target)
                    }
                    (renewed, settings) => {
                        let place = format!("{}:{}", of.config.file, written.line);
                        let problem = |why| Problem { place: place.clone(), message: named(why, kind.served) };
                        let of_settings = settings.err().into_iter().flatten();
                        Err(renewed.err().into_iter().flatten().map(problem).chain(of_settings).collect::<Vec<_>>())
                    }
                }
            }
        };
        let target = match target {
            Ok(target) => target,
            // It cannot be corrected in the file, so it must not keep the rest from being applied.
            Err(found) if written.source != TargetSource::File => {
                let why: Vec<&str> = found.iter().map(|problem| problem.message.as_str()).collect();
                prepared.unfit.insert(written.id.clone(), why.join("; "));
                continue;
            }
            Err(found) => {
                problems.extend(found);
                continue;
            }
        };
        match before {
            Some(before) if Arc::ptr_eq(before, &target) => {}
            Some(before) => prepared.changed.push((target.clone(), Some(target.change_from(before)))),
            None => prepared.changed.push((target.clone(), None)),
        }
        prepared.targets.insert(written.id.clone(), target);
    }
    prepared.removed = of.before.keys().filter(|id| !prepared.targets.contains_key(*id)).cloned().collect();
    (prepared, problems)
}

/// The running target, possibly with another schedule or without its plugin; `None` if it must be prepared again.
fn reuse(before: &Arc<RuntimeTarget>, written: &Arc<TargetConfig>, kind: &OfKind<'_>) -> Option<Arc<RuntimeTarget>> {
    let difference = match Arc::ptr_eq(&before.config, written) {
        true => Difference::None,
        false => before.config.difference(written),
    };
    let digest = kind.served.map(|served| served.plugin.digest());
    if before.limits != kind.limits {
        return None;
    }
    match difference {
        Difference::None if before.plugin == digest => Some(before.clone()),
        Difference::Schedule if before.plugin == digest => Some(Arc::new(RuntimeTarget::rescheduled(before, written))),
        // Taking a plugin away must not fail: its targets' secrets are not checked any more.
        Difference::None if digest.is_none() => Some(Arc::new(RuntimeTarget::unserved(before))),
        _ => None,
    }
}

/// Fails if a plugin for notifications serves a target, or one for polls a channel.
fn check_role(written: &TargetConfig, served: Option<&Arc<Served>>) -> Result<(), Vec<String>> {
    let (kind, id) = (&written.kind, &written.id);
    let is_notifier = match served {
        Some(served) => matches!(served.plugin.descriptor().role, Role::Notifier { .. }),
        None if kind.is_email() => true,
        None => return Ok(()),
    };
    match (is_notifier, written.is_channel) {
        (true, false) => Err(vec![format!("target {id:?}: kind {kind} sends notifications: use it in a [[channel]]")]),
        (false, true) => Err(vec![format!("channel {id:?}: kind {kind} polls targets: use it in a [[target]]")]),
        _ => Ok(()),
    }
}

/// Prepares a target again. The result is `before` if nothing of it changed.
fn renew(
    written: &Arc<TargetConfig>,
    kind: &OfKind<'_>,
    before: Option<&Arc<RuntimeTarget>>,
    settings: Option<&Arc<AcceptedSettings>>,
) -> Result<Arc<RuntimeTarget>, Vec<String>> {
    check_role(written, kind.served)?;
    let target = runtime_target(written, kind.served.map(|served| &served.plugin), kind.limits.clone())?;
    let target = match settings {
        Some(accepted) => target.with_settings(accepted),
        None => target,
    };
    Ok(match before {
        Some(before) if target.is_same(before) => before.clone(),
        Some(before) => Arc::new(target.succeeding(before)),
        None => Arc::new(target),
    })
}

/// The result of a check of settings.
type CheckedSettings = Result<Arc<AcceptedSettings>, Vec<SettingsProblem>>;

/// Settings that were checked already. Thousands of targets may have the same settings.
struct Checked<'a> {
    versions: SettingsVersions,
    known: HashMap<(&'a Kind, SettingsVersion, String), CheckedSettings>,
}

/// Checks the target's settings with the plugin, or those of a channel to a mail server. `None` if no plugin checks
/// them.
async fn accepted_settings<'a>(
    of: Preparation<'a>,
    written: &'a TargetConfig,
    kind: &mut OfKind<'_>,
    checked: &mut Checked<'a>,
) -> Result<Option<Arc<AcceptedSettings>>, Vec<Problem>> {
    let place = |setting: Option<&str>| format!("{}:{}", of.config.file, written.line_of(setting));
    let noun = format!("{} {:?}", written.noun(), written.id);
    if written.is_email() {
        let problem = |mail::Problem { setting, message }| Problem {
            place: place(setting),
            message: format!("{noun}: settings: {message}"),
        };
        let found = email_settings(written).map(|_| None);
        return found.map_err(|problems| problems.into_iter().map(problem).collect());
    }
    let Some(served) = kind.served.filter(|_| !kind.unable) else { return Ok(None) };
    let assumed = || checked.versions.assumed(&written.kind, &written.settings);
    let version = written.settings_version.map_or_else(assumed, SettingsVersion::Written);
    let found = match checked.known.entry((&written.kind, version, written.settings.to_string())) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let found = of.sandbox.accept_settings(&served.plugin, &written.settings, version).await;
            new.insert(match found {
                Ok(found) => found.map(Arc::new),
                Err(why) => {
                    kind.unable = true;
                    Err(vec![SettingsProblem { setting: None, message: why }])
                }
            })
        }
    };
    let problem = |SettingsProblem { setting, message }: &SettingsProblem| {
        let message = named(format!("{noun}: settings: {message}"), Some(served));
        Problem { place: place(setting.as_deref()), message }
    };
    found.as_ref().map(|accepted| Some(accepted.clone())).map_err(|problems| problems.iter().map(problem).collect())
}

/// The settings of a target if they were converted.
fn converted(written: &Arc<TargetConfig>, kind: &OfKind<'_>, accepted: &AcceptedSettings) -> Option<Converted> {
    let current = kind.served?.plugin.descriptor().settings_version;
    let settings = accepted.settings.clone();
    (accepted.version < current).then(|| Converted {
        target: written.clone(),
        versions: (accepted.version, current),
        settings,
    })
}

/// Names the plugin in a problem, unless it is built in.
fn named(message: String, served: Option<&Arc<Served>>) -> String {
    match served.filter(|served| served.source != BUILT_IN) {
        Some(served) => {
            let kind = &served.plugin.descriptor().kind;
            format!("{message} (kind {kind} is served by {})", served.source)
        }
        None => message,
    }
}
