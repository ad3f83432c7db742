//! One poll on its lane: run it, compare it with what is known, and say what it came to.

use crate::clock::Clock;
use crate::driver::Message;
use crate::estate::{Published, Target};
use crate::plugins::Served;
use egress::Tape;
use model::{Event, EventKind, Failure, FailureCategory, Outcome, TargetId, Timestamp};
use sandbox::{Done, Job, Sandbox};
use scheduler::{Finish, LONGEST_RETRY_AFTER};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use store::{Aliases, Changes};
use web::PollMeasure;

/// A poll that is to be run.
pub(crate) struct Work {
    pub clock: Clock,
    pub sandbox: Arc<Sandbox>,
    pub served: Arc<Served>,
    pub target: Arc<Target>,
    pub aliases: Arc<Aliases>,
    pub sender: SyncSender<Message>,
}

/// A poll that ended.
pub(crate) struct Finished {
    /// Whose.
    pub target: Arc<Target>,
    /// What it means for the next one.
    pub finish: Finish,
    /// Whether its result is part of what is known.
    pub learnt: bool,
    /// What it changed.
    pub changes: Changes,
    /// Why there is no report.
    pub failure: Option<Failure>,
    /// What is to be shown, when that is something else than before.
    pub shown: Option<Published>,
    /// What is to be counted.
    pub measure: Option<PollMeasure>,
    /// What is to be told and never stored.
    pub told: Vec<Event>,
    /// When it ended.
    pub at: Timestamp,
}

impl Work {
    /// Runs the poll and hands its result to the driver.
    pub(crate) async fn run(self) {
        let job = Job {
            plugin: self.served.plugin.clone(),
            target: self.target.told.clone(),
            grant: self.target.grant.clone(),
            limits: self.target.limits.poll,
            timeout: self.target.timeout,
            now: self.clock.wall(),
            tape: Tape::Off,
        };
        let mut guard = Guard { target: Some(self.target), clock: self.clock, sender: self.sender };
        let done = self.sandbox.poll(job).await;
        self.served.account.note(&done);
        let Some(target) = &guard.target else { return };
        target.note_skipped(matches!(done.outcome, Outcome::Skipped));
        let wall = self.clock.wall();
        // Comparing its report is work for its plugin too: a report can be made to be hard to compare.
        let (finished, took) = sandbox::measured(|| finished(target.clone(), done, wall, &self.aliases));
        self.served.account.charge(took);
        guard.target = None;
        // The driver is gone only when the host ends.
        let _ = guard.sender.send(Message::Finished(Box::new(finished)));
    }
}

/// Tells the driver that a poll ended even when it ended in a panic of ours: its slots must not be lost for ever.
struct Guard {
    target: Option<Arc<Target>>,
    clock: Clock,
    sender: SyncSender<Message>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(target) = self.target.take() else { return };
        if !std::thread::panicking() {
            // The lanes stop: the host ends.
            return;
        }
        tracing::error!("the poll of target {} ended in a panic of the host: please report this", target.id());
        let finished = Finished {
            target,
            finish: Finish::PluginFault,
            learnt: false,
            changes: Changes::default(),
            failure: None,
            shown: None,
            measure: None,
            told: Vec::new(),
            at: self.clock.wall(),
        };
        let _ = self.sender.send(Message::Finished(Box::new(finished)));
    }
}

fn finished(target: Arc<Target>, done: Done, at: Timestamp, aliases: &Aliases) -> Finished {
    let Done { outcome, usage } = done;
    let (failure, samples, reported) = match &outcome {
        Outcome::Success(report) => (None, Some(report.samples.clone()), report.dependencies.len()),
        Outcome::Failure(failure) => (Some(failure.clone()), None, 0),
        Outcome::Skipped => (None, None, 0),
    };
    let skipped = outcome == Outcome::Skipped;
    let mut known = target.known();
    // Of a target that is another one by now, or gone, nothing more is learnt.
    let learnt = !target.is_frozen();
    let changes = if learnt { known.learn(outcome, at, aliases) } else { Changes::default() };
    let finish = match &failure {
        _ if skipped => Finish::Skipped,
        None => Finish::Success { changed: !changes.transitions.is_empty(), critical: known.is_critical() },
        Some(Failure { category: FailureCategory::Plugin, .. }) => Finish::PluginFault,
        Some(failure @ Failure { category: FailureCategory::Transient, .. }) => {
            Finish::Transient { cause: failure.cause(), retry_after: failure.retry_after }
        }
        Some(failure) => Finish::Permanent { cause: failure.cause(), retry_after: failure.retry_after },
    };
    if let Some(asked) =
        failure.as_ref().and_then(|failure| failure.retry_after).filter(|asked| *asked > LONGEST_RETRY_AFTER)
    {
        let seconds = asked.as_secs();
        tracing::warn!("target {} asks to be left alone for {seconds} s; {LONGEST_RETRY_AFTER:?} count", target.id());
    }
    let samples = samples.map(Arc::new);
    let had_samples = !target.published().samples.is_empty();
    let other_samples = samples.as_ref().is_some_and(|samples| had_samples || !samples.is_empty());
    let differs = changes.is_urgent() || !changes.details.is_empty() || other_samples || failure.is_some();
    let shown = differs.then(|| Published::of(&known, samples.unwrap_or_default()));
    let complete = EventKind::PollComplete {
        target: target.id().clone(),
        success: failure.is_none(),
        dependencies: u32::try_from(reported).unwrap_or(u32::MAX),
        transitions: u32::try_from(changes.transitions.len()).unwrap_or(u32::MAX),
        latency_ms: usage.wall.as_secs_f64() * 1000.0,
        error: failure.as_ref().map(|failure| failure.message.clone()),
        warnings: u32::try_from(known.warnings.len()).unwrap_or(u32::MAX),
    };
    drop(known);
    // An error that is the same as before is told again, and not stored again.
    let same_error = failure.as_ref().filter(|_| changes.poll_error.is_none()).map(|f| poll_error(target.id(), f));
    let told = [complete].into_iter().chain(same_error).map(|kind| Event { at, kind });
    let category = failure.as_ref().map(|failure| failure.category);
    Finished {
        finish,
        learnt,
        measure: (!skipped).then_some(PollMeasure { wall: usage.wall, failure: category }),
        told: if skipped { Vec::new() } else { told.collect() },
        changes,
        failure,
        shown,
        at,
        target,
    }
}

pub(crate) fn poll_error(target: &TargetId, failure: &Failure) -> EventKind {
    EventKind::PollError {
        target: target.clone(),
        category: failure.category,
        code: failure.code.clone(),
        message: failure.message.clone(),
    }
}
