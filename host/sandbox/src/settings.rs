//! The settings of a plugin: checked, converted from an earlier version, and completed with defaults.

use crate::call::Call;
use crate::host::State;
use crate::host::v0_1::definition;
use crate::load::{MESSAGE, SCHEMA};
use crate::plugin::Plugin;
use crate::run::Sandbox;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use model::{Failure, clean};
use schema::{SettingsProblem, with_defaults};
use serde_json::Value;
use tokio::time::timeout;
use wasmtime::Store;

/// Maximum length of the place of a problem in bytes.
const POINTER: usize = 1024;
/// Maximum number of problems that are shown.
const PROBLEMS: usize = 20;
/// Maximum length of converted settings in bytes.
const LONGEST: usize = 64 << 10;

/// The version of the shape of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettingsVersion {
    /// An operator wrote it.
    Written(u32),
    /// A plugin with this version accepted the same settings last, or 1.
    Assumed(u32),
}

/// Settings that a plugin accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptedSettings {
    /// The settings in the plugin's version, without defaults.
    pub settings: Value,
    /// The settings with the defaults of the schema, as the plugin gets them.
    pub complete: Value,
    /// The version that they were written for.
    pub version: u32,
}

/// The problems of settings, or why the plugin cannot check any settings.
type Checked = Result<Result<AcceptedSettings, Vec<SettingsProblem>>, String>;

/// Why settings of an earlier version were not converted.
enum Unconverted {
    /// The plugin refuses them, or failed.
    Failed(String),
    /// The plugin's own result is not valid.
    Invalid(String),
}

fn unconverted(version: u32, why: &str) -> SettingsProblem {
    let message = format!("their conversion from version {version} failed: {why}");
    SettingsProblem { setting: None, message }
}

impl Sandbox {
    /// Checks settings, after converting them if they are of an earlier version: against the schema, and if it finds no
    /// problem, with the plugin. Fails with the reason if the plugin cannot check any settings.
    pub fn accept_settings<'a>(
        &'a self,
        plugin: &'a Plugin,
        settings: &'a Value,
        version: SettingsVersion,
    ) -> BoxFuture<'a, Checked> {
        self.accepted(plugin, settings, version).boxed()
    }

    async fn accepted(&self, plugin: &Plugin, settings: &Value, version: SettingsVersion) -> Checked {
        let current = plugin.descriptor().settings_version;
        let earlier = match version {
            SettingsVersion::Written(version) if version > current => {
                let message = format!(
                    "they are of version {version}, and this version of the plugin knows version {current}: install a later \
                     version of the plugin, or correct settings_version"
                );
                return Ok(Err(vec![SettingsProblem { setting: None, message }]));
            }
            SettingsVersion::Written(version) if version < current => {
                let converted = self.converted(plugin, settings, version).await?;
                return Ok(converted.map_err(|(Unconverted::Failed(why) | Unconverted::Invalid(why))| {
                    vec![unconverted(version, &why)]
                }));
            }
            SettingsVersion::Written(_) => None,
            SettingsVersion::Assumed(version) => Some(version).filter(|version| *version < current),
        };
        let problems = self.schema_problems(plugin, settings).await?;
        if problems.is_empty() {
            return self.complete(plugin, settings.clone(), current).await;
        }
        let Some(version) = earlier else { return Ok(Err(problems)) };
        Ok(match self.converted(plugin, settings, version).await? {
            Ok(accepted) => Ok(accepted),
            // Nothing says that they are of version 1 rather than wrong in the present one.
            Err(Unconverted::Invalid(_)) if version == 1 => Err(problems),
            Err(Unconverted::Failed(why) | Unconverted::Invalid(why)) => {
                Err(problems.into_iter().chain([unconverted(version, &why)]).collect())
            }
        })
    }

    /// Converts settings of an earlier version, and checks the result.
    async fn converted(
        &self,
        plugin: &Plugin,
        settings: &Value,
        version: u32,
    ) -> Result<Result<AcceptedSettings, Unconverted>, String> {
        let failed = |why: String| Ok(Err(Unconverted::Failed(why)));
        let invalid = |first: String| Ok(Err(Unconverted::Invalid(format!("the result is not valid: {first}"))));
        let text = match self.migrate(plugin, settings, version).await {
            Ok(Ok(text)) => text,
            Ok(Err(problem)) => return failed(shown(&problem).message),
            Err(fault) => return failed(fault.message),
        };
        if text.len() > LONGEST {
            return failed(format!("the result has {} bytes, more than {LONGEST}", text.len()));
        }
        let converted = match serde_json::from_str::<Value>(&text) {
            Ok(converted @ Value::Object(_)) => converted,
            _ => return failed("the plugin returned no JSON object".to_owned()),
        };
        let problems = self.schema_problems(plugin, &converted).await?;
        if let Some(first) = problems.first() {
            return invalid(first.to_string());
        }
        Ok(match self.complete(plugin, converted, version).await? {
            Ok(accepted) => Ok(accepted),
            Err(problems) => {
                let reason = problems.first().map(ToString::to_string).unwrap_or_default();
                return invalid(reason);
            }
        })
    }

    /// Fills in the defaults of settings that the schema accepts, and lets the plugin check them.
    async fn complete(&self, plugin: &Plugin, settings: Value, version: u32) -> Checked {
        let complete = match with_defaults(&plugin.descriptor().settings_schema, &settings) {
            Ok(complete) => complete,
            Err(message) => return Ok(Err(vec![SettingsProblem { setting: None, message }])),
        };
        let problems = self.own_problems(plugin, &complete).await?;
        Ok(if problems.is_empty() { Ok(AcceptedSettings { settings, complete, version }) } else { Err(problems) })
    }

    async fn schema_problems(&self, plugin: &Plugin, settings: &Value) -> Result<Vec<SettingsProblem>, String> {
        let (checked, held) = (plugin.clone(), settings.clone());
        let check = move || checked.schema().problems(&checked.descriptor().settings_schema, &held);
        let checked = timeout(SCHEMA, tokio::task::spawn_blocking(check)).await;
        let Ok(Ok(problems)) = checked else {
            return Err("the validation by its schema took too long: simplify the schema or the settings".to_owned());
        };
        Ok(problems)
    }

    /// Returns the problems that the plugin finds.
    async fn own_problems(&self, plugin: &Plugin, settings: &Value) -> Result<Vec<SettingsProblem>, String> {
        let could_not = |fault: Failure| format!("the plugin could not check them: {}", fault.message);
        let (text, exports) = (settings.to_string(), self.exports(plugin).await.map_err(could_not)?);
        let enter = move |mut store: Store<State>| async move {
            let checked = async {
                let instance = exports.pre.instantiate_async(&mut store).await?;
                let definition = exports.definition.load(&mut store, &instance)?;
                definition.call_check_settings(&mut store, &text).await
            };
            (checked.await, store)
        };
        let called = self.caller.call(Call::pure(plugin.descriptor().kind.as_str(), self.slot().await), enter).await;
        let problems = called.result.map_err(could_not)?;
        let more = problems.len().saturating_sub(PROBLEMS);
        let rest = (more > 0).then(|| SettingsProblem::at("", format!("{more} more problems")));
        Ok(problems.iter().take(PROBLEMS).map(shown).chain(rest).collect())
    }

    async fn migrate(
        &self,
        plugin: &Plugin,
        settings: &Value,
        version: u32,
    ) -> Result<Result<String, definition::SettingsProblem>, Failure> {
        let (text, exports) = (settings.to_string(), self.exports(plugin).await?);
        let enter = move |mut store: Store<State>| async move {
            let migrated = async {
                let instance = exports.pre.instantiate_async(&mut store).await?;
                let definition = exports.definition.load(&mut store, &instance)?;
                definition.call_migrate_settings(&mut store, version, &text).await
            };
            (migrated.await, store)
        };
        self.caller.call(Call::pure(plugin.descriptor().kind.as_str(), self.slot().await), enter).await.result
    }
}

fn shown(problem: &definition::SettingsProblem) -> SettingsProblem {
    let setting = problem.setting.as_deref().filter(|setting| setting.len() <= POINTER);
    let setting = setting.map(|setting| clean(setting, POINTER));
    SettingsProblem::at(setting.as_deref().unwrap_or_default(), clean(&problem.message, MESSAGE))
}
