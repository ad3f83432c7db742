//! Applies the configuration's file.

use super::fit::{Candidate, Fit};
use super::named_files::NamedFiles;
use super::{Reconfigurer, State, difference};
use crate::prepare::Files;
use catalog::{Admit, PluginSet};
use config::{Document, Invalid, Problem, Written};
use model::{EventKind, Kind};
use std::sync::Arc;

/// A candidate with the plugins that it fits.
pub(super) struct Fitted {
    pub candidate: Candidate,
    pub plugins: PluginSet,
    /// The kinds whose plugins are not those that serve.
    pub plugged: Vec<Kind>,
}

impl Reconfigurer {
    /// Reads the file again if its state changed, and the files in `changed`. Returns the files that it names now, if
    /// it could be parsed.
    pub(super) async fn reload(&self, changed: Files) -> Option<NamedFiles> {
        let mut state = self.state.lock().await;
        let _measure = self.measure();
        let named = self.reload_into(&mut state, changed).await;
        self.reloaded.notify_one();
        named
    }

    async fn reload_into(&self, state: &mut State, changed: Files) -> Option<NamedFiles> {
        let path = state.document.path.clone()?;
        let document = match Document::read(path) {
            Ok(document) => document,
            Err(message) => {
                let place = state.document.name.clone();
                self.refuse(state, &[Problem { place, message }]);
                return None;
            }
        };
        let same_text = document.text == state.document.text && state.problems.is_empty();
        let written = match same_text {
            true => Ok(state.running.written.clone()),
            false => {
                let before = (&state.document, &*state.running.written);
                document.parse_again(&self.validator.reading, before).map(Arc::new)
            }
        };
        let written = match written {
            Ok(written) => written,
            Err(Invalid { problems, .. }) => {
                self.refuse(state, &problems);
                return None;
            }
        };
        // Also for a file that is refused below: the problem may be a file that is not there yet.
        let named = NamedFiles::of(written.config());
        let fitted = self.fit_plugins(state, &written, &changed, (*self.plugins()).clone()).await;
        let taken = match fitted {
            Ok(fitted) => self.take(state, document.clone(), fitted).await,
            Err(problems) => Err(problems),
        };
        if let Err(problems) = taken {
            self.refuse(state, &problems);
            state.waiting = Some((document, written));
        }
        Some(named)
    }

    /// Keeps the running configuration, and shows why until the file is applied.
    pub(super) fn refuse(&self, state: &mut State, problems: &[Problem]) {
        for problem in problems {
            tracing::error!("{problem}");
        }
        tracing::error!("{} is not applied; the host keeps its running configuration", state.document.name);
        state.problems = problems.iter().map(ToString::to_string).collect();
        state.waiting = None;
        self.show(state);
    }

    /// Fits a parsed file to plugins. If it does not fit them, plugins that wait for a configuration replace those of
    /// their kinds where that solves problems.
    ///
    /// # Errors
    /// The problems that no waiting plugin solves.
    pub(super) async fn fit_plugins(
        &self,
        state: &State,
        written: &Arc<Written>,
        files: &Files,
        mut plugins: PluginSet,
    ) -> Result<Fitted, Vec<Problem>> {
        let mut problems = match self.fit(state, written, files, &plugins).await {
            Ok(candidate) => return Ok(Fitted { candidate, plugins, plugged: Vec::new() }),
            Err(problems) => problems,
        };
        let mut plugged = Vec::new();
        for (kind, waiting) in plugins.candidates().clone() {
            let other = plugins.with(&kind, Some(waiting));
            let left = match self.fit(state, written, files, &other).await {
                Ok(candidate) => {
                    plugged.push(kind);
                    return Ok(Fitted { candidate, plugins: other, plugged });
                }
                Err(left) => left,
            };
            if left.len() < problems.len() {
                (plugins, problems) = (other, left);
                plugged.push(kind);
            }
        }
        Err(problems)
    }

    /// Fits a parsed file to plugins.
    pub(super) async fn fit(
        &self,
        state: &State,
        written: &Arc<Written>,
        files: &Files,
        plugins: &PluginSet,
    ) -> Result<Candidate, Vec<Problem>> {
        let fit = Fit {
            written: written.clone(),
            overrides: state.running.overrides.clone(),
            plugins,
            before: &state.running.targets,
            channels: &state.running.channels,
            files,
        };
        self.validator.fit(fit).await
    }

    /// Makes the file the running configuration, with the plugins that it fits.
    pub(super) async fn take(&self, state: &mut State, document: Document, fitted: Fitted) -> Result<(), Vec<Problem>> {
        let Fitted { candidate, plugins, plugged } = fitted;
        let name = document.name.clone();
        let failed = |message: String| vec![Problem { place: name.clone(), message }];
        if document.text == state.document.text && plugged.is_empty() && candidate.is_unchanged() {
            // A file was written again with the same content.
            tracing::info!("{name} was read again: nothing changed");
            self.taken(state, document);
            return Ok(());
        }
        if candidate.prepared.targets.is_empty() && !state.running.targets.is_empty() {
            let message =
                "it has no [[target]] any more, as if it had been cut short: restart the host if that is meant";
            return Err(failed(message.to_owned()));
        }
        let known = &state.running.inactive;
        for (key, problem) in candidate.inactive.iter().filter(|(key, _)| !known.contains_key(*key)) {
            tracing::warn!("the setting {key} is no longer active: {problem}");
        }
        let changes = difference::between(&state.running, &candidate);
        let (before, after) = (state.running.written.config(), candidate.written.config());
        for key in difference::outvoted((before, after), &candidate.overrides) {
            tracing::warn!(
                "{name}: the change of {key} has no effect while a setting wins over it: `polliwog settings unset {key}`"
            );
        }
        self.apply_with(state, candidate, (&plugins, plugged)).await.map_err(failed)?;
        self.taken(state, document);
        tracing::info!("{name} was read again: {changes}");
        self.record(EventKind::SettingsChanged { what: name, value: None });
        Ok(())
    }

    /// Notes that the present file is the running configuration.
    fn taken(&self, state: &mut State, document: Document) {
        if !state.problems.is_empty() {
            tracing::info!("{} is valid again, and active", document.name);
        }
        state.document = document;
        state.problems.clear();
        state.waiting = None;
        self.show(state);
    }
}
