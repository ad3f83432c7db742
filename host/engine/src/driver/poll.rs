//! One poll on its lane: run it, merge its outcome into the known state, and report the result to the driver.

use crate::clock::Clock;
use crate::mailbox::Mailbox;
use crate::message::{Finished, Message};
use crate::read_model::observed;
use crate::target::RuntimeTarget;
use catalog::Served;
use egress::{Tape, Timing};
use model::{Event, EventKind, Failure, FailureCategory, Outcome, Phases, PollMeasure, TargetId, Timestamp};
use sandbox::{Done, Sandbox};
use scheduler::{Finish, LONGEST_RETRY_AFTER};
use std::sync::Arc;
use store::{Aliases, Changes};

/// A poll to run.
pub(super) struct Work {
    pub clock: Clock,
    pub sandbox: Arc<Sandbox>,
    pub served: Arc<Served>,
    pub target: Arc<RuntimeTarget>,
    pub aliases: Arc<Aliases>,
    pub mailbox: Mailbox,
}

impl Work {
    /// Runs the poll and hands its result to the driver.
    pub(super) async fn run(self) {
        let job = self.target.job(&self.served.plugin, self.clock.wall(), Tape::Off);
        let mut guard = Guard { target: Some(self.target), clock: self.clock, mailbox: self.mailbox };
        let done = self.sandbox.poll(job).await;
        self.served.usage.note(&done);
        let Some(target) = &guard.target else { return };
        target.note_skipped(matches!(done.outcome, Outcome::Skipped));
        let wall = self.clock.wall();
        // Comparing its report is work for its plugin too: a report can be made to be hard to compare.
        let (finished, took) = sandbox::measured(|| finished(target.clone(), done, wall, &self.aliases));
        self.served.usage.charge(took);
        guard.target = None;
        let is_deferrable = finished.merged && finished.failure.is_none() && !finished.changes.is_urgent();
        let message = Message::Finished(Box::new(finished));
        // The driver is gone only when the host ends.
        let _ = if is_deferrable { guard.mailbox.send_deferrable(message) } else { guard.mailbox.send(message) };
    }
}

/// Reports to the driver even if the poll ended in a panic of the host, because its slots must be freed.
struct Guard {
    target: Option<Arc<RuntimeTarget>>,
    clock: Clock,
    mailbox: Mailbox,
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
            merged: false,
            changes: Changes::default(),
            failure: None,
            observed: None,
            measure: None,
            passing: Vec::new(),
            at: self.clock.wall(),
        };
        self.mailbox.send(Message::Finished(Box::new(finished)));
    }
}

fn finished(target: Arc<RuntimeTarget>, done: Done, at: Timestamp, aliases: &Aliases) -> Finished {
    let Done { outcome, usage, timing, stored, .. } = done;
    let mut known = target.known();
    let outcome = known.judged(outcome);
    let (failure, samples, reported) = match &outcome {
        Outcome::Success(report) => (None, report.samples.clone(), report.dependencies.len()),
        Outcome::Failure(failure) => (Some(failure.clone()), Vec::new(), 0),
        Outcome::Skipped => (None, Vec::new(), 0),
    };
    let skipped = outcome == Outcome::Skipped;
    let next_poll = if let Outcome::Success(report) = &outcome { report.next_poll } else { None };
    // The state of a target that was removed, or whose definition changed, is final.
    let merged = !target.is_frozen();
    let mut changes = if merged { known.merge(outcome, at, aliases) } else { Changes::default() };
    if let Some(values) = stored.filter(|_| merged) {
        known.keep_values(values, &mut changes);
    }
    let finish = match &failure {
        _ if skipped => Finish::Skipped,
        None => Finish::Success { changed: !changes.transitions.is_empty(), critical: known.is_critical(), next_poll },
        Some(failure) => after_failure(failure),
    };
    let observed = (!skipped).then(|| Arc::new(observed(&known, Arc::new(samples))));
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
    if let Some(asked) = failure.as_ref().and_then(|failure| failure.retry_after).filter(|a| *a > LONGEST_RETRY_AFTER) {
        let seconds = asked.as_secs();
        tracing::warn!("target {} sent a Retry-After of {seconds} s; {LONGEST_RETRY_AFTER:?} count", target.id());
    }
    // A repeated error is announced again, and not stored again.
    let repeated = failure.as_ref().filter(|_| changes.poll_error.is_none()).map(|f| poll_error(target.id(), f));
    let passing = [complete].into_iter().chain(repeated).map(|kind| Event { at, kind });
    let category = failure.as_ref().map(|failure| failure.category);
    Finished {
        finish,
        merged,
        measure: (!skipped).then_some(PollMeasure {
            at,
            wall: usage.wall,
            cpu: usage.cpu,
            requests: usage.requests,
            bytes: usage.bytes,
            phases: phases(timing),
            failure: category,
        }),
        passing: if skipped { Vec::new() } else { passing.collect() },
        changes,
        failure,
        observed,
        at,
        target,
    }
}

fn phases(timing: Timing) -> Phases {
    let Timing { dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms } = timing;
    let (wait, read) = (first_byte_ms - dns_ms - connect_ms - tls_ms, total_ms - first_byte_ms);
    Phases { dns: dns_ms as f32, connect: connect_ms as f32, tls: tls_ms as f32, wait: wait as f32, read: read as f32 }
}

/// The event that a poll failed.
pub(super) fn poll_error(target: &TargetId, failure: &Failure) -> EventKind {
    EventKind::PollError {
        target: target.clone(),
        category: failure.category,
        code: failure.code.clone(),
        message: failure.message.clone(),
    }
}

/// The meaning of a failure for the next poll.
fn after_failure(failure: &Failure) -> Finish {
    let (cause, retry_after) = (failure.cause, failure.retry_after);
    match failure.category {
        FailureCategory::Plugin => Finish::PluginFault,
        FailureCategory::Transient => Finish::Transient { cause, retry_after },
        FailureCategory::Permanent | FailureCategory::Misconfigured => Finish::Permanent { cause, retry_after },
    }
}
