//! Applying a new configuration to the running targets.

use super::Driver;
use crate::message::Reconfigured;
use crate::read_model::info;
use crate::sessions::End;
use crate::target::RuntimeTarget;
use catalog::PluginSet;
use model::{Ask, Kind, TargetId};
use scheduler::{Change, Input};
use std::sync::Arc;

impl Driver {
    pub(super) fn reconfigure(&mut self, reconfigured: Reconfigured) {
        let Reconfigured { settings, changed, removed, aliases, plugins, plugged, alerts, deployments } = reconfigured;
        self.wiring.aliases = aliases;
        let (plugged, unplugged): (Vec<Kind>, Vec<Kind>) =
            plugged.into_iter().partition(|kind| plugins.get(kind).is_some());
        for kind in unplugged {
            // Before its plugin goes: no poll of the kind starts from now on.
            self.apply(Input::KindServed(kind, false));
        }
        let earlier = std::mem::replace(&mut self.wiring.plugins, plugins);
        let resettled = settings != *self.scheduler.settings();
        if resettled {
            self.apply(Input::Settings(settings));
        }
        if removed.iter().any(|id| self.dirty.contains_key(id) || self.gathering.contains(id)) {
            // Their known state goes to disk, in case they come back.
            self.flush_all();
        }
        for id in removed {
            self.forget(&id, &earlier);
        }
        let ids: Vec<TargetId> = changed.iter().map(|(target, _)| target.id().clone()).collect();
        for (target, change) in changed {
            self.replace(target, change, &earlier);
        }
        for kind in plugged {
            self.apply(Input::KindServed(kind.clone(), true));
            self.retry_failing(&kind);
        }
        // Settings of the scheduler concern every target, all other changes only the changed ones.
        let concerned = if resettled { self.targets.keys().cloned().collect() } else { ids };
        for id in concerned {
            self.refresh(&id);
        }
        self.configure_alerts(alerts);
        self.deploy(deployments);
    }

    /// Adds a target, or replaces its definition. `earlier`: the plugins that served so far.
    fn replace(&mut self, target: Arc<RuntimeTarget>, change: Option<Change>, earlier: &PluginSet) {
        let id = target.id().clone();
        let kind = &target.config.kind;
        if self.wiring.plugins.get(kind).is_none() {
            self.apply(Input::KindServed(kind.clone(), false));
        }
        if let Some(before) = self.targets.get(&id).map(|tracked| &tracked.target) {
            self.end_session_before((before, &target), change, earlier);
        }
        let Some(tracked) = self.targets.get_mut(&id) else {
            self.scheduler.apply(Input::Added(target.spec()), self.wiring.clock.now());
            self.track(target);
            return self.carry_out(None);
        };
        target.take_over_from(&tracked.target);
        if tracked.target.config.kind != *kind {
            tracked.metrics.forget();
            tracked.metrics = self.wiring.metrics.target(kind, &id);
        }
        tracked.target = target.clone();
        tracked.entry.update(|state| state.info = info(&target.config));
        self.apply(Input::Changed(target.spec(), change.unwrap_or(Change::Nothing)));
    }

    /// Publishes a target's present schedule and settings. The schedule is not published while results of the target
    /// are not on disk.
    fn refresh(&mut self, id: &TargetId) {
        let Some((tracked, status)) = self.targets.get(id).zip(self.scheduler.status(id)) else { return };
        let clock = self.wiring.clock;
        let is_written = tracked.entry.unwritten() == 0;
        tracked.entry.update(|state| {
            (state.enabled, state.cadence, state.longest) = (status.enabled, status.cadence, status.longest);
            if is_written {
                state.schedule = crate::schedule_time::to_wall(status.schedule, &clock);
                state.unreachable = status.unreachable;
            }
        });
    }

    /// Polls the failing targets of a kind whose plugin changed: the new plugin may work where the old one failed.
    fn retry_failing(&mut self, kind: &Kind) {
        let fails = |id: &TargetId| {
            let schedule = self.scheduler.status(id).map(|status| status.schedule);
            schedule.is_some_and(|schedule| schedule.failures > 0 || schedule.plugin_faults > 0)
        };
        let of_kind = self.targets.iter().filter(|(_, tracked)| {
            let config = &tracked.target.config;
            config.kind == *kind && config.enabled
        });
        let mut failing: Vec<TargetId> = of_kind.map(|(id, _)| id).filter(|id| fails(id)).cloned().collect();
        failing.sort_unstable();
        for id in failing {
            self.apply(Input::Asked(id, Ask::PollNow));
        }
    }

    /// Removes a target from everything that readers see. Its rows stay until they are too old, in case it is added
    /// again.
    fn forget(&mut self, id: &TargetId, earlier: &PluginSet) {
        self.apply(Input::Removed(id.clone()));
        self.dirty.remove(id);
        self.gathering.forget(id);
        self.wiring.read_model.remove(id);
        if let Some(tracked) = self.targets.remove(id) {
            self.end_session(&tracked.target, End::Gone, earlier);
            tracked.metrics.forget();
        }
    }
}
