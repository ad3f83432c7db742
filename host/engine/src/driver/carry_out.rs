//! Carrying out the scheduler's actions: starts, commits, events.

use super::deployments::Else;
use super::{Driver, Tracked, events, gathering, log, poll};
use crate::message::{Finished, Message};
use crate::read_model::Publication;
use crate::schedule_time::to_wall;
use model::{AlertChange, DeploymentReport, Event, EventKind, Failure, Moment, Observed, TargetId};
use scheduler::{Action, Input, MAX_UNWRITTEN};
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Changes, Commit, StoredSchedule};

/// The effects of one step of the scheduler on one target, and their cause.
#[derive(Default)]
pub(super) struct Step {
    pub events: Vec<Event>,
    /// The schedule must not be lost.
    pub urgent: bool,
    /// The poll that ended.
    pub finished: Option<Box<Finished>>,
    /// Changes that an operator made to the known state, and the state after them.
    pub dismissed: Option<Box<(Changes, Arc<Observed>)>>,
}

impl Driver {
    /// A poll ended: frees its slots, computes the next due time, and carries out what follows.
    pub(super) fn finished(&mut self, finished: Box<Finished>) {
        if let Some(measure) = &finished.measure {
            self.poll_time = (self.poll_time.0 + measure.wall, self.poll_time.1 + 1);
        }
        let id = finished.target.id();
        let input = Input::Finished(id.clone(), finished.finish);
        if !finished.merged {
            // The target is gone, or its definition changed: only the end of the poll counts.
            let present = self.targets.get(id).map(|tracked| &*tracked.target);
            let same = present.filter(|present| present.config.kind == finished.target.config.kind);
            let origins = same.map(|present| present.grant.origins.as_slice());
            self.wiring.sandbox.forget_earlier(id, &finished.target.config.kind, origins);
            self.apply(input);
        } else if self.targets.contains_key(id) {
            self.scheduler.apply(input, self.wiring.clock.now());
            self.carry_out(Some(finished));
        } else {
            self.keep(&finished);
            self.apply(input);
        }
    }

    /// Carries out all actions of the scheduler; `finished` is the poll that led to them.
    pub(super) fn carry_out(&mut self, finished: Option<Box<Finished>>) {
        let mut steps = BTreeMap::new();
        if let Some(finished) = finished {
            let id = finished.target.id().clone();
            steps.insert(id, Step { finished: Some(finished), ..Step::default() });
        }
        self.gather(&mut steps);
        while !steps.is_empty() {
            for (target, step) in std::mem::take(&mut steps) {
                self.settle(&target, step);
            }
            // Settling may tell the scheduler about results that wait, which may lead to more actions.
            self.gather(&mut steps);
        }
    }

    /// Drains the scheduler's actions: starts polls and moves places at once, and adds the rest to `steps`.
    fn gather(&mut self, steps: &mut BTreeMap<TargetId, Step>) {
        let clock = self.wiring.clock;
        // Most turns have no event.
        let at = LazyCell::new(move || clock.wall());
        for action in self.scheduler.drain() {
            match action {
                Action::Start(target, due) => self.start(&target, due),
                Action::Moved(target, place) => {
                    if let Some(tracked) = self.targets.get(&target) {
                        tracked.entry.set_place(place);
                    }
                }
                Action::Emit(kind) => match kind.target().cloned() {
                    Some(target) => steps.entry(target).or_default().events.push(Event { at: *at, kind }),
                    None => {
                        if matches!(kind, EventKind::PluginQuarantined { .. } | EventKind::PluginReleased { .. }) {
                            self.plugins_changed = true;
                        }
                        let failure = steps.values().find_map(|step| step.finished.as_ref()?.failure.as_ref());
                        log::of_plugin(&kind, &self.wiring.plugins, failure);
                        self.wiring.store.writer().event(Event { at: *at, kind });
                    }
                },
                Action::Persist { target, urgent } => steps.entry(target).or_default().urgent |= urgent,
            }
        }
    }

    /// Prepares a poll, which starts with the others of this turn.
    fn start(&mut self, id: &TargetId, due: Moment) {
        let now = self.wiring.clock.now();
        self.last_start = Some(now);
        let Some(Tracked { target, metrics, .. }) = self.targets.get(id) else { return };
        metrics.start(now.since(due));
        let Some(served) = self.wiring.plugins.get(&target.config.kind) else { return };
        let work = poll::Work {
            clock: self.wiring.clock,
            sandbox: self.wiring.sandbox.clone(),
            served: served.clone(),
            target: target.clone(),
            aliases: self.wiring.aliases.clone(),
            mailbox: self.wiring.mailbox.clone(),
        };
        self.starting.push((id.clone(), work));
    }

    /// Hands the polls of a turn to their lanes.
    pub(super) fn hand_over(&mut self) {
        if !self.starting.is_empty() {
            self.wiring.sandbox.lanes().spawn_all(self.starting.drain(..), poll::Work::run);
        }
    }

    /// Hands a step's result to the store if something changed, and publishes it at once otherwise.
    pub(super) fn settle(&mut self, id: &TargetId, step: Step) {
        let Step { mut events, urgent, finished, dismissed } = step;
        let known = self.targets.get_mut(id).zip(self.scheduler.status(id));
        let Some((tracked, status)) = known else {
            // The target is gone; that event is recorded all the same.
            log::of_target(&events, None);
            return events.into_iter().for_each(|event| self.wiring.store.writer().event(event));
        };
        let polled = finished.is_some();
        let mut publication = Publication {
            entry: tracked.entry.clone(),
            unreachable: status.unreachable,
            schedule: to_wall(status.schedule, &self.wiring.clock),
            observed: None,
            measure: None,
            passing: Vec::new(),
            bus: self.wiring.bus.clone(),
        };
        let mut changes = Changes::default();
        let mut outcome = None;
        if let Some(finished) = finished {
            let Finished { changes: found, observed, measure, passing, at, failure, finish, .. } = *finished;
            log::of_changes(id, &found, at);
            events.extend(events::of_poll(id, &found, failure.as_ref(), at));
            let failures = publication.schedule.failures.max(publication.schedule.plugin_faults);
            if let Some(kind) = tracked.reach(status.unreachable, failures, failure.as_ref()) {
                events.push(Event { at, kind });
            }
            log::of_target(&events, failure.as_ref());
            (changes, publication.observed, publication.passing) = (found, observed, passing);
            publication.measure = measure.map(|measure| (tracked.metrics.clone(), measure));
            outcome = Some((finish, failure));
        } else {
            log::of_target(&events, None);
        }
        if let Some(dismissed) = dismissed {
            let (forgotten, observed) = *dismissed;
            (changes, publication.observed) = (forgotten, Some(observed));
        }
        let observe =
            |(finish, failure): (_, Option<Failure>)| self.observe(id, (finish, changes.is_change()), failure.as_ref());
        let alerts = outcome.map(observe).unwrap_or_default();
        events.extend(alerts.events);
        let is_written = urgent || !alerts.changes.is_empty() || !events.is_empty() || changes.is_urgent();
        let report = self.report_of(id, if is_written { Else::Written } else { Else::Nothing });
        if is_written || report.is_some() {
            self.commit(id, (changes, alerts.changes), (events, report), publication);
        } else {
            gathering::merge(self.dirty.entry(id.clone()).or_default(), changes);
            match publication.entry.unwritten() {
                0 => publication.publish(Vec::new()),
                // Earlier results of the target are not on disk yet; they are shown first. A changed due time alone is
                // not a result: the next publication shows it.
                _ if polled => self.hand_in(id, publication, None),
                _ => {}
            }
        }
    }

    /// Hands changes and schedule to the store, to be published once they are on disk.
    fn commit(
        &mut self,
        id: &TargetId,
        (changes, alerts): (Changes, Vec<AlertChange>),
        (events, report): (Vec<Event>, Option<DeploymentReport>),
        publication: Publication,
    ) {
        let Some(saved) = self.scheduler.saved(id, self.wiring.clock.now()) else { return };
        // Details that wait for the flush stay there, except those that this commit supersedes.
        gathering::forget_details(self.waiting_changes(id), &changes);
        let Some(tracked) = self.targets.get(id) else { return };
        let schedule = to_wall(saved, &self.wiring.clock);
        let commit = Commit {
            target: id.clone(),
            kind: tracked.target.config.kind.clone(),
            at: self.wiring.clock.wall(),
            changes,
            schedule: Some(StoredSchedule { identity: tracked.target.identity, schedule }),
            events,
            alerts,
            report,
        };
        self.hand_in(id, publication, Some(commit));
    }

    /// Hands a publication to the writer's queue, which is the order of publications. Notifies the scheduler if the
    /// target has the maximum number of waiting results.
    fn hand_in(&mut self, id: &TargetId, publication: Publication, commit: Option<Commit>) {
        let waiting = publication.entry.hand_in();
        let (mailbox, target) = (self.wiring.mailbox.clone(), id.clone());
        // The driver may have ended.
        let drained = move || {
            mailbox.send(Message::Written(target));
        };
        let reported = commit.as_ref().filter(|commit| commit.report.is_some()).map(|_| self.wiring.reported.clone());
        let (read_model, outbox) = (self.wiring.read_model.clone(), self.outbox.clone());
        let alerts = commit.as_ref().map(|commit| commit.alerts.clone()).unwrap_or_default();
        let publish = Box::new(move |stored| {
            if !alerts.is_empty() {
                outbox.stored(&alerts);
                read_model.change_alerts(alerts);
            }
            publication.publish_written(stored, MAX_UNWRITTEN, drained);
            reported.into_iter().for_each(|reported| reported.notify_one());
        });
        match commit {
            Some(commit) => self.wiring.store.writer().commit(commit, Some(publish)),
            None => self.wiring.store.writer().publish(publish),
        }
        if waiting >= MAX_UNWRITTEN {
            self.scheduler.apply(Input::Unwritten(id.clone(), waiting), self.wiring.clock.now());
        }
    }

    /// The store has written results of a target whose queue was full.
    pub(super) fn written(&mut self, id: &TargetId) {
        if let Some(tracked) = self.targets.get(id) {
            let waiting = tracked.entry.unwritten();
            self.apply(Input::Unwritten(id.clone(), waiting));
        }
    }

    /// Stores the result of a poll whose target was removed during the poll.
    fn keep(&mut self, finished: &Finished) {
        let id = finished.target.id().clone();
        let Finished { changes, failure, at, .. } = finished;
        let events = events::of_poll(&id, changes, failure.as_ref(), *at);
        if changes.is_urgent() || !events.is_empty() {
            let commit = Commit {
                kind: finished.target.config.kind.clone(),
                at: self.wiring.clock.wall(),
                changes: changes.clone(),
                schedule: None,
                events,
                alerts: Vec::new(),
                report: None,
                target: id,
            };
            self.wiring.store.writer().commit(commit, None);
        }
    }
}
