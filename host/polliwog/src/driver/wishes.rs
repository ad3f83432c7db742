//! What people want of the running host: that a target is polled, that another configuration is in force, how things stand.

use super::{Configured, Driver, MAX_WAITING, Snapshot, Step};
use crate::estate::Published;
use model::{Kind, TargetId};
use scheduler::{Ask, BreakerState, Cadence, Change, Input, Place, TargetStatus};
use std::time::Duration;
use web::CommandError;

impl Driver {
    pub(super) fn ask(&mut self, id: &TargetId, ask: Ask) -> Result<(), CommandError> {
        let Some(status) = self.scheduler.status(id, self.parts.clock.now()) else {
            return Err(CommandError::NoTarget(id.to_string()));
        };
        match (ask, status.place) {
            (_, _) if self.pending.get(id).is_some_and(|waiting| waiting.len() >= MAX_WAITING) => {
                return Err(CommandError::Conflict("the database does not take results: see the log".to_owned()));
            }
            (Ask::Retry, _) if status.schedule.dead.is_none() => {
                return Err(CommandError::Conflict(format!("target {id} is no dead letter")));
            }
            (_, Place::Disabled) => {
                return Err(CommandError::Conflict(format!("target {id} is disabled: enable it first")));
            }
            (_, Place::NoPlugin) => {
                return Err(CommandError::Conflict(format!(
                    "no plugin serves the kind of target {id}: drop one into the plugin directory"
                )));
            }
            (Ask::ResetBreaker, _)
                if status.schedule.breaker.state == BreakerState::Closed && status.schedule.failures == 0 =>
            {
                return Err(CommandError::Conflict(format!("the breaker of target {id} is closed")));
            }
            // It is being polled already.
            (Ask::PollNow, Place::InFlight) => return Ok(()),
            _ => {}
        }
        self.apply(Input::Asked(id.clone(), ask), None);
        Ok(())
    }

    /// Forgets what is missing of a target, as an operator wants it.
    pub(super) fn dismiss(&mut self, id: &TargetId, name: Option<&str>) -> Result<usize, CommandError> {
        let Some(target) = self.targets.get(id).cloned() else {
            return Err(CommandError::NoTarget(id.to_string()));
        };
        if self.pending.get(id).is_some_and(|waiting| waiting.len() >= MAX_WAITING) {
            return Err(CommandError::Conflict("the database does not take results: see the log".to_owned()));
        }
        let (changes, shown) = {
            let mut known = target.known();
            let changes = known.dismiss(name);
            (changes, Published::of(&known, target.published().samples.clone()))
        };
        let count = changes.forgotten.len();
        if count == 0 {
            let what = name.map_or_else(|| "nothing".to_owned(), |name| format!("no dependency {name:?}"));
            return Err(CommandError::Conflict(format!("{what} is missing from target {id}")));
        }
        tracing::info!("{count} missing from target {id}: dismissed");
        self.settle(id, Step { urgent: true, dismissed: Some((changes, shown)), ..Step::default() });
        Ok(count)
    }

    /// Takes up what is different from what runs.
    pub(super) fn configure(&mut self, configured: Configured) {
        let Configured { settings, changed, removed, aliases, plugins, plugged } = configured;
        self.parts.aliases = aliases;
        let unplugged = plugged.as_ref().filter(|kind| plugins.get(kind).is_none());
        if let Some(kind) = unplugged {
            // Before its plugin is gone: nothing more is to be started.
            self.apply(Input::KindServed(kind.clone(), false), None);
        }
        self.parts.plugins = plugins;
        if settings != *self.scheduler.settings() {
            self.apply(Input::Settings(settings), None);
        }
        if removed.iter().any(|id| self.dirty.contains_key(id)) {
            // What is known of them is on disk, in case they come back.
            self.flush_all();
        }
        for id in removed {
            self.forget(&id);
        }
        for (target, change) in changed {
            let id = target.id().clone();
            let kind = &target.config.kind;
            if self.parts.plugins.get(kind).is_none() {
                self.apply(Input::KindServed(kind.clone(), false), None);
            }
            if change == Some(Change::Reset) {
                self.parts.sandbox.forget(&id);
            }
            if let Some(before) = self.targets.get(&id) {
                target.take_over_from(before);
            }
            let before = self.targets.insert(id.clone(), target.clone());
            if before.is_some_and(|before| before.config.kind != target.config.kind) {
                self.parts.metrics.forget(&id);
            }
            let input = match change {
                Some(change) => Input::Changed(target.spec(), change),
                None => Input::Added(target.spec()),
            };
            self.apply(input, None);
        }
        if let Some(kind) = plugged.filter(|kind| self.parts.plugins.get(kind).is_some()) {
            self.apply(Input::KindServed(kind.clone(), true), None);
            self.try_again(&kind);
        }
        let ids: Vec<TargetId> = self.targets.keys().cloned().collect();
        let now = self.parts.clock.now();
        for id in ids {
            // What waits for the database is shown when it is on disk.
            if !self.pending.contains_key(&id) {
                self.note_status(&id, now);
            }
        }
    }

    /// Another plugin serves a kind: what failed with the one before may work with this one, and need not wait for its time.
    fn try_again(&mut self, kind: &Kind) {
        let now = self.parts.clock.now();
        let fails = |id: &TargetId| {
            let schedule = self.scheduler.status(id, now).map(|status| status.schedule);
            schedule.is_some_and(|schedule| schedule.failures > 0 || schedule.plugin_faults > 0)
        };
        let of_kind = self.targets.iter().filter(|(_, target)| target.config.kind == *kind && target.config.enabled);
        let failing: Vec<TargetId> = of_kind.map(|(id, _)| id).filter(|id| fails(id)).cloned().collect();
        for id in failing {
            self.apply(Input::Asked(id, Ask::PollNow), None);
        }
    }

    /// A target is gone: nothing that it left behind is shown any more. What is on disk goes by age, in case it comes back.
    fn forget(&mut self, id: &TargetId) {
        self.apply(Input::Removed(id.clone()), None);
        self.targets.remove(id);
        self.statuses.remove(id);
        self.dirty.remove(id);
        let waiting = self.pending.remove(id).unwrap_or_default();
        let commits = waiting.iter().filter(|pending| pending.commits).count();
        if commits > 0 {
            *self.gone.entry(id.clone()).or_default() += commits;
        }
        self.parts.sandbox.forget(id);
        self.parts.metrics.forget(id);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        const DUE_SOON: Duration = Duration::from_secs(12);
        // Pulse's longest interval, where nobody set one.
        const OVERDUE: Duration = Duration::from_secs(300);
        let now = self.parts.clock.now();
        let targets: Vec<_> = (self.targets.iter())
            .filter_map(|(id, target)| {
                let mut shown = self.statuses.get(id)?.clone();
                let live = self.scheduler.status(id, now)?;
                // Where it is, how stale it is and that a probe is under way are no results; they are as they are now.
                (shown.place, shown.staleness, shown.enabled) = (live.place, live.staleness, live.enabled);
                if live.schedule.breaker.state == BreakerState::HalfOpen {
                    shown.schedule.breaker = live.schedule.breaker;
                }
                Some((target.clone(), shown))
            })
            .collect();
        let most = self.scheduler.settings().max.unwrap_or(OVERDUE);
        let late = |status: &TargetStatus| status.place.waits() && now.since(status.schedule.due) > most;
        Snapshot {
            adaptive: self.scheduler.settings().cadence != Cadence::Fixed,
            depth: self.scheduler.depth(),
            due_soon: self.scheduler.due_within(now, DUE_SOON),
            depth_by_kind: self.scheduler.depth_by_kind(),
            in_flight: self.scheduler.in_flight().clone(),
            quarantined: self.scheduler.quarantined().map(|(kind, until)| (kind.clone(), until)).collect(),
            counters: self.scheduler.counters(),
            next: self.scheduler.next_due().map(|(target, due)| (target.clone(), due)),
            last_start: self.last_start,
            poll_time: self.poll_time,
            overdue: targets.iter().filter(|(_, status)| late(status)).count(),
            targets,
        }
    }
}
