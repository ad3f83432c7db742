//! Targets that are made, changed and deleted while the host runs.

use super::fit::{Fit, all};
use super::{Reconfigurer, State};
use crate::message::Message;
use crate::prepare::Files;
use crate::target::RuntimeTarget;
use catalog::Served;
use config::{
    CHANGEABLE, Made, alias_key, assignment_key, definition_key, deployment_key, made_by, setting, silence_key,
    silence_text,
};
use model::{CommandError, Definition, TargetId, TargetSource, Tested};
use notify::{Silence, SilenceTime, TakenOver};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of silences.
const SILENCES: usize = 1_000;
/// How long a silence is kept after its end.
const KEPT_SILENCES: Duration = Duration::from_secs(86_400);

impl Reconfigurer {
    /// Makes, changes or deletes a target that is not in the file. The change goes on after its caller has left.
    ///
    /// # Errors
    /// If the file defines the target, it exists already or does not exist, or its definition is not valid.
    pub async fn define(self: Arc<Self>, id: TargetId, definition: Definition) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        let changed = tokio::spawn(async move {
            let mut state = self.state.lock().await;
            let changes = state.may_define(&id, definition)?;
            self.carry_out(&mut state, changes).await
        });
        changed.await.map_err(|_| ending())?
    }

    /// Makes or changes an alias that is not in the file; without a canonical name, deletes it.
    ///
    /// # Errors
    /// If the file has the alias, or it does not exist and cannot be deleted.
    pub async fn alias(self: Arc<Self>, name: String, canonical: Option<String>) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        let changed = tokio::spawn(async move {
            let mut state = self.state.lock().await;
            let key = alias_key(&name);
            let known = state.running.overrides.contains_key(&key);
            if canonical.is_none() && !known {
                return Err(match state.running.config.aliases.contains_key(&name) {
                    true => CommandError::InFile(format!(
                        "the alias {name:?} is in {}: delete it there",
                        state.document.name
                    )),
                    false => CommandError::Missing(format!(
                        "there is no alias {name:?}: GET /api/v1/aliases lists all aliases"
                    )),
                });
            }
            if state.running.written.config().aliases.contains_key(&name) && canonical.is_some() {
                let file = &state.document.name;
                return Err(CommandError::InFile(format!("the alias {name:?} is in {file}: change it there")));
            }
            self.carry_out(&mut state, vec![(key, canonical)]).await
        });
        changed.await.map_err(|_| ending())?
    }

    /// Makes or changes a silence with an end; without one, ends the silence with this id. Silences that ended more
    /// than a day ago are deleted with it.
    ///
    /// # Errors
    /// If the silence is not valid, there are too many, or it does not exist and cannot be ended.
    pub async fn silence(self: Arc<Self>, id: String, silence: Option<Silence>) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        let changed = tokio::spawn(async move {
            let mut state = self.state.lock().await;
            let key = silence_key(&id);
            let in_file = state.running.written.config().silences.iter().any(|silence| silence.id == id);
            if in_file {
                let file = &state.document.name;
                return Err(CommandError::InFile(format!("the silence {id:?} is in {file}: change it there")));
            }
            if silence.is_none() && !state.running.overrides.contains_key(&key) {
                let why = format!("there is no silence {id:?}: GET /api/v1/silences lists all silences");
                return Err(CommandError::Missing(why));
            }
            if silence.is_some() && state.running.config.silences.len() >= SILENCES {
                let why = format!("there are {SILENCES} silences already: end some first");
                return Err(CommandError::Conflict(why));
            }
            let now = self.clock.wall();
            let is_old = |silence: &&Silence| match silence.time {
                SilenceTime::Once(_, end) => now.since(end) > KEPT_SILENCES,
                SilenceTime::Recurring(_) => false,
            };
            let old =
                state.running.config.silences.iter().filter(is_old).map(|silence| (silence_key(&silence.id), None));
            let mut changes: Vec<_> = old.collect();
            changes.retain(|(other, _)| *other != key);
            changes.push((key, silence.as_ref().and_then(silence_text)));
            self.carry_out(&mut state, changes).await
        });
        changed.await.map_err(|_| ending())?
    }

    /// Every silence, and whether the file has it.
    pub fn silences(&self) -> Vec<(Silence, bool)> {
        let shown = self.shown();
        let is_made = |silence: &Silence| shown.overrides.contains_key(&silence_key(&silence.id));
        shown.config.silences.iter().map(|silence| (silence.clone(), !is_made(silence))).collect()
    }

    /// Applies the deployments that the operator of the fleet assigned, by name: each as
    /// [`config::stored_assignment`] returns it.
    /// Deployments that are not among them end. Targets that do not fit are not polled, and the report about their
    /// deployment names the reason.
    ///
    /// # Errors
    /// If the host is ending, or the database does not take the change.
    pub async fn assign(self: Arc<Self>, deployments: BTreeMap<String, String>) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        let changed = tokio::spawn(async move {
            let mut state = self.state.lock().await;
            let held = &state.running.overrides;
            let withdrawn = held.keys().filter(|key| match made_by(key) {
                Some(Made::Assignment(name)) => !deployments.contains_key(name),
                _ => false,
            });
            let mut changes: Vec<_> = withdrawn.map(|key| (key.clone(), None)).collect();
            let assigned = deployments.into_iter().map(|(name, targets)| (assignment_key(&name), Some(targets)));
            changes.extend(assigned.filter(|(key, targets)| held.get(key) != targets.as_ref()));
            match changes.is_empty() {
                true => Ok(()),
                false => self.carry_out(&mut state, changes).await,
            }
        });
        changed.await.map_err(|_| ending())?
    }

    /// Continues the alerts of a deployment of which one device polls at a time: this one, from now on. Returns when
    /// they are on disk.
    ///
    /// # Errors
    /// If the host is busy or ending.
    pub async fn take_over(&self, taken: TakenOver) -> Result<(), CommandError> {
        self.mailbox.request(|reply| Message::TakenOver(taken, reply)).await
    }

    /// Stores the definition of a deployment of the fleet that this host operates; without one, deletes it.
    ///
    /// # Errors
    /// If the host is ending, or the database does not take the change.
    pub async fn deploy(self: Arc<Self>, name: String, definition: Option<String>) -> Result<(), CommandError> {
        let ending = || CommandError::Conflict("the host is ending".to_owned());
        let changed = tokio::spawn(async move {
            let mut state = self.state.lock().await;
            self.carry_out(&mut state, vec![(deployment_key(&name), definition)]).await
        });
        changed.await.map_err(|_| ending())?
    }

    /// Every alias by name: its canonical name, and whether the file has it.
    pub fn aliases(&self) -> Vec<(String, String, TargetSource)> {
        let shown = self.shown();
        let source = |name: &str| match shown.inactive.contains_key(&alias_key(name))
            || !shown.overrides.contains_key(&alias_key(name))
        {
            true => TargetSource::File,
            false => TargetSource::Api,
        };
        let aliases = shown.config.aliases.iter();
        let mut aliases: Vec<_> =
            aliases.map(|(name, canonical)| (name.clone(), canonical.clone(), source(name))).collect();
        aliases.sort_by(|left, right| left.0.cmp(&right.0));
        aliases
    }

    /// Returns a target as it would be polled, and its plugin. A target that does not exist yet is checked like one
    /// that is made, and changes nothing.
    ///
    /// # Errors
    /// If the target does not exist, is not valid, or no plugin serves its kind.
    pub async fn tested(&self, tested: Tested) -> Result<(Arc<RuntimeTarget>, Arc<Served>), CommandError> {
        let state = self.state.lock().await;
        let plugins = self.plugins();
        let target = match tested {
            Tested::Known(id) => {
                state.running.targets.get(&id).cloned().ok_or_else(|| CommandError::NoTarget(id.to_string()))?
            }
            Tested::Defined(id, json) => {
                let key = definition_key(&id);
                let mut overrides = state.running.overrides.clone();
                overrides.insert(key.clone(), json);
                let written = state.running.written.clone();
                let (before, channels) = (&state.running.targets, &state.running.channels);
                let fit = Fit { written, overrides, plugins: &plugins, before, channels, files: &Files::none() };
                let candidate = self.validator.fit(fit).await;
                let candidate = candidate.map_err(|problems| CommandError::Invalid(all(&problems)))?;
                let found = candidate.prepared.targets.get(&id).filter(|_| !candidate.inactive.contains_key(&key));
                let why = || candidate.inactive.get(&key).cloned().unwrap_or_default();
                found.cloned().ok_or_else(|| CommandError::Invalid(why()))?
            }
        };
        let kind = &target.config.kind;
        let unserved = || {
            CommandError::Conflict(format!("no plugin serves kind {kind}: copy its .wasm into the plugin directory"))
        };
        let served = plugins.get(kind).cloned().ok_or_else(unserved)?;
        Ok((target, served))
    }

    /// The definition of a target that was made through the API, as JSON; `None` for other targets.
    pub fn definition(&self, id: &TargetId) -> Option<String> {
        self.shown().overrides.get(&definition_key(id)).cloned()
    }
}

impl State {
    /// Checks that a target may be made, changed or deleted. Returns the changes of settings that do it.
    fn may_define(&self, id: &TargetId, definition: Definition) -> Result<Vec<(String, Option<String>)>, CommandError> {
        let in_file = self.running.written.config().targets.iter().any(|target| target.id == *id);
        if in_file {
            return Err(CommandError::InFile(format!(
                "{id} is defined in {}: change it there, or choose another id",
                self.document.name
            )));
        }
        let key = definition_key(id);
        match (definition, self.running.overrides.contains_key(&key)) {
            (Definition::New(_), true) => {
                Err(CommandError::Conflict(format!("there is a target {id} already: change it, or choose another id")))
            }
            (Definition::Changed(_) | Definition::Deleted, false) => Err(CommandError::NoTarget(id.to_string())),
            (Definition::New(json) | Definition::Changed(json), _) => Ok(vec![(key, Some(json))]),
            (Definition::Deleted, true) => {
                // A later target with this id must not inherit its settings.
                let own = CHANGEABLE.map(|what| setting(id, what)).into_iter();
                let own = own.filter(|key| self.running.overrides.contains_key(key));
                Ok([key].into_iter().chain(own).map(|key| (key, None)).collect())
            }
        }
    }
}
