//! Commands for one target: poll it, dismiss its missing dependencies, explain its due time.

use super::Driver;
use super::carry_out::Step;
use crate::message::{Command, Explained};
use crate::read_model::observed;
use model::{Ask, BreakerState, CommandError, Place, Subject, TargetId};
use scheduler::{Input, MAX_UNWRITTEN};
use std::sync::Arc;

impl Driver {
    /// Carries out a command. A caller that has left does not receive its result.
    pub(super) fn command(&mut self, target: &TargetId, command: Command) {
        match command {
            Command::Ask(ask, reply) => {
                let _ = reply.send(self.ask(target, ask));
            }
            Command::Dismiss(name, reply) => {
                let _ = reply.send(self.dismiss(target, name.as_deref()));
            }
            Command::Explain(reply) => {
                let _ = reply.send(self.explain(target));
            }
        }
    }

    fn explain(&self, id: &TargetId) -> Option<Explained> {
        let explanation = self.scheduler.explain(id, self.wiring.clock.now())?;
        let failure = self.targets.get(id)?.entry.state().observed.failure.clone();
        Some(Explained { explanation, failure })
    }

    /// The refusal of a command while the database takes no results of the target.
    fn refuse_if_full(&self, id: &TargetId) -> Result<(), CommandError> {
        match self.targets.get(id) {
            Some(tracked) if tracked.entry.unwritten() >= MAX_UNWRITTEN => {
                Err(CommandError::Conflict("the database does not take results: see the log".to_owned()))
            }
            Some(_) => Ok(()),
            None => Err(CommandError::NoTarget(id.to_string())),
        }
    }

    fn ask(&mut self, id: &TargetId, ask: Ask) -> Result<(), CommandError> {
        self.refuse_if_full(id)?;
        let status = self.scheduler.status(id).ok_or_else(|| CommandError::NoTarget(id.to_string()))?;
        let schedule = &status.schedule;
        let is_healthy = schedule.breaker.state == BreakerState::Closed && schedule.failures == 0;
        let refusal = match (ask, status.place) {
            (Ask::Retry, _) if schedule.dead.is_none() => format!("target {id} is not a dead letter"),
            (_, Place::Disabled) => format!("target {id} is disabled: enable it first"),
            (_, Place::NoPlugin) => {
                format!("no plugin serves the kind of target {id}: drop one into the plugin directory")
            }
            (Ask::ResetBreaker, _) if is_healthy => format!("the breaker of target {id} is closed"),
            // The poll that is in flight answers the request.
            (Ask::PollNow, Place::InFlight) => return Ok(()),
            _ => {
                self.apply(Input::Asked(id.clone(), ask));
                return Ok(());
            }
        };
        Err(CommandError::Conflict(refusal))
    }

    /// Deletes missing dependencies of a target. Returns their number.
    fn dismiss(&mut self, id: &TargetId, name: Option<&str>) -> Result<usize, CommandError> {
        self.refuse_if_full(id)?;
        let Some(tracked) = self.targets.get(id) else { return Err(CommandError::NoTarget(id.to_string())) };
        let samples = tracked.entry.state().observed.samples.clone();
        let (changes, observed) = {
            let mut known = tracked.target.known();
            (known.dismiss(name), observed(&known, samples))
        };
        let known_elsewhere = self.notifier.known_elsewhere(id, name);
        let count = changes.forgotten.len() + known_elsewhere.len();
        if count == 0 {
            let what = name.map_or_else(|| "nothing".to_owned(), |name| format!("no dependency {name:?}"));
            return Err(CommandError::Conflict(format!("{what} is missing from target {id}")));
        }
        let forgotten = changes.forgotten.iter().map(|name| Subject::dependency(id, name.as_str()));
        let alerts = forgotten.chain(known_elsewhere).collect();
        tracing::info!("{count} missing from target {id}: dismissed");
        let dismissed = Some(Box::new((changes, Arc::new(observed))));
        self.settle(id, Step { urgent: true, dismissed, ..Step::default() });
        self.carry_out(None);
        self.apply_to_alerts(notify::Input::Dismissed(alerts));
        Ok(count)
    }
}
