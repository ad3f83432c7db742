//! Settings as readers see them, and which of them may be changed.

use super::{Shown, State};
use config::{CHANGEABLE, Config, Made, TargetConfig, made_by, scheduler_values, suggestion};
use model::{CommandError, Setting, SettingSource, TargetId};
use std::collections::HashSet;

impl State {
    pub(super) fn shown(&self) -> Shown {
        Shown {
            file: self.document.name.clone(),
            problems: self.problems.clone(),
            config: self.running.config.clone(),
            overrides: self.running.overrides.clone(),
            inactive: self.running.inactive.clone(),
        }
    }

    /// Checks that a setting exists and, for `set`, that nothing overrides it.
    pub(super) fn may_change(&self, key: &str, set: bool) -> Result<(), CommandError> {
        if self.running.overrides.contains_key(key) && !set && made_by(key).is_none() {
            return Ok(());
        }
        self.is_setting(key).map_err(CommandError::Missing)?;
        match self.running.config.sources.get(key) {
            Some(SettingSource::Environment(variable)) if set => Err(CommandError::Conflict(format!(
                "{key} is set by the environment variable {variable}, which wins: unset the variable and restart the host"
            ))),
            _ => Ok(()),
        }
    }

    fn is_setting(&self, key: &str) -> Result<(), String> {
        if let Some((target, what)) = of_target(key) {
            return match TargetId::new(target) {
                Ok(id) if self.running.targets.contains_key(&id) && CHANGEABLE.contains(&what) => Ok(()),
                Ok(id) if self.running.targets.contains_key(&id) => {
                    Err(format!("of a target, {} can be set while the host runs, not {what:?}", CHANGEABLE.join(", ")))
                }
                _ => Err(format!("there is no setting {key:?}, because there is no target {target:?}")),
            };
        }
        let known = scheduler_values(&self.running.config.scheduler).map(|(key, _)| key);
        if known.contains(&key) {
            return Ok(());
        }
        let near = suggestion(key, &known);
        Err(format!("there is no setting {key:?} that can be changed while the host runs{near}"))
    }
}

/// The target and the field that a key such as `target.ID.interval` names.
fn of_target(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("target.")?.rsplit_once('.')
}

fn of_scheduler(config: &Config) -> impl Iterator<Item = Setting> {
    scheduler_values(&config.scheduler).into_iter().map(|(key, value)| {
        let source = config.sources.get(key).cloned().unwrap_or(SettingSource::Default);
        Setting { key: key.to_owned(), value, source }
    })
}

impl Shown {
    pub(super) fn problems(&self) -> Vec<String> {
        let inactive = self.inactive.iter().map(|(key, why)| {
            if let Some(made @ Made::Assignment(_)) = made_by(key) {
                return format!("the {made}: {why}");
            }
            if let Some(made) = made_by(key) {
                return format!(
                    "the {made}, made through the API, is kept and not active: {why}; change it, or delete it"
                );
            }
            let value = self.overrides.get(key).map_or("", String::as_str);
            format!("the setting {key} = {value} is kept and not active: {why}; unset it, or set it again")
        });
        self.problems.iter().cloned().chain(inactive).collect()
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        let targets = self.config.targets.iter().flat_map(|target| target.changeable());
        let mut settings: Vec<Setting> = of_scheduler(&self.config).chain(targets).collect();
        let known: HashSet<&str> = settings.iter().map(|setting| setting.key.as_str()).collect();
        // The setting of a removed target is kept until it is unset.
        let is_orphan = |key: &str| !known.contains(key) && made_by(key).is_none();
        let orphans = self.overrides.iter().filter(|(key, _)| is_orphan(key));
        let orphans: Vec<Setting> = orphans.map(orphan).collect();
        settings.extend(orphans);
        settings
    }

    pub(super) fn settings_of(&self, target: &TargetId) -> Vec<Setting> {
        self.target(target.as_str()).map(|target| target.changeable().collect()).unwrap_or_default()
    }

    pub(super) fn setting(&self, key: &str) -> Option<Setting> {
        let found = match of_target(key).and_then(|(target, _)| self.target(target)) {
            Some(target) => target.changeable().find(|setting| setting.key == key),
            None => of_scheduler(&self.config).find(|setting| setting.key == key),
        };
        let kept = self.overrides.get_key_value(key).filter(|(key, _)| made_by(key).is_none());
        found.or_else(|| kept.map(orphan))
    }

    fn target(&self, id: &str) -> Option<&TargetConfig> {
        self.config.targets.iter().find(|target| target.id.as_str() == id).map(|target| &**target)
    }
}

fn orphan((key, value): (&String, &String)) -> Setting {
    Setting { key: key.clone(), value: Some(value.clone()), source: SettingSource::Orphan }
}
