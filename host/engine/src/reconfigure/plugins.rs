//! Replaces the plugins of a running host.

use super::fit::{Candidate, misfit};
use super::reload::Fitted;
use super::{Reconfigurer, State};
use crate::prepare::Files;
use catalog::{Admit, PluginSet, Refused, Served};
use model::{Event, EventKind, Kind};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

impl Admit for Reconfigurer {
    async fn admit(&self, kind: &Kind, served: Option<Arc<Served>>) -> Result<(), String> {
        let mut state = self.state.lock().await;
        let _measure = self.measure();
        let plugins = self.plugins();
        let digest = |served: &Arc<Served>| (served.plugin.digest(), served.source.clone());
        if served.is_some() && plugins.get(kind).map(digest) == served.as_ref().map(digest) {
            // The file of the configuration was applied together with this plugin.
            return Ok(());
        }
        let plugins = plugins.with(kind, served);
        let written = state.running.written.clone();
        let problems = match self.fit(&state, &written, &Files::none(), &plugins).await {
            Ok(candidate) => return self.apply_with(&mut state, candidate, (&plugins, vec![kind.clone()])).await,
            Err(problems) => problems,
        };
        let Some((document, written)) = state.waiting.clone() else { return Err(misfit(&problems)) };
        match self.fit_plugins(&state, &written, &Files::All, plugins).await {
            Ok(Fitted { candidate, plugins, mut plugged }) => {
                plugged.push(kind.clone());
                let fitted = Fitted { candidate, plugins, plugged };
                self.take(&mut state, document, fitted).await.map_err(|problems| misfit(&problems))
            }
            Err(problems) => Err(misfit(&problems)),
        }
    }

    fn publish(&self, refused: Vec<Refused>, candidates: Vec<Arc<Served>>) {
        let mut plugins = self.plugins.write().unwrap_or_else(PoisonError::into_inner);
        *plugins = Arc::new(plugins.refusing(refused, candidates));
    }

    async fn reconfigured(&self) {
        self.reloaded.notified().await;
    }

    fn kinds_in_use(&self) -> BTreeSet<Kind> {
        let config = &self.shown().config;
        config.targets.iter().chain(&config.channels).map(|target| target.kind.clone()).collect()
    }

    fn record(&self, event: EventKind) {
        self.store.writer().event(Event { at: self.clock.wall(), kind: event });
    }
}

impl Reconfigurer {
    /// Makes a candidate the running configuration, and the plugins of the kinds in `plugged` serve.
    pub(super) async fn apply_with(
        &self,
        state: &mut State,
        candidate: Candidate,
        (plugins, plugged): (&PluginSet, Vec<Kind>),
    ) -> Result<(), String> {
        let before = self.serve(plugins, &plugged);
        let applied = self.apply(state, candidate, plugged.clone()).await;
        if applied.is_err() {
            self.serve(&before, &plugged);
        }
        applied
    }

    /// Makes the plugins of these kinds serve. Returns the set before. The catalog publishes refused files at any time,
    /// so only these kinds change.
    fn serve(&self, plugins: &PluginSet, plugged: &[Kind]) -> Arc<PluginSet> {
        let mut serving = self.plugins.write().unwrap_or_else(PoisonError::into_inner);
        let before = serving.clone();
        if !plugged.is_empty() {
            let with = |set: PluginSet, kind: &Kind| set.with(kind, plugins.get(kind).cloned());
            *serving = Arc::new(plugged.iter().fold((*before).clone(), with));
        }
        before
    }
}
