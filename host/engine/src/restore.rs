//! Restoring what an earlier run stored.

use crate::clock::Clock;
use crate::prepare::Targets;
use crate::reconfigure::DORMANT;
use crate::schedule_time::to_monotonic;
use crate::target::RuntimeTarget;
use config::Config;
use model::{BreakerState, Moment, Schedule, TargetId, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{FORGOTTEN, KnownState, Loaded, Store};

/// The restored targets, and the known state of targets that are no longer configured.
pub struct Restored {
    /// Each target, with its schedule if it had one.
    pub targets: Vec<(Arc<RuntimeTarget>, Option<Schedule<Moment>>)>,
    /// The known state of other targets.
    pub dormant: HashMap<TargetId, KnownState>,
}

/// Restores known state and schedules. A schedule is restored only if its target's identity is unchanged.
/// `forgotten_until`: the host was killed, and polls up to this time may have happened without a trace.
pub fn restore(
    targets: &Targets,
    mut loaded: HashMap<TargetId, Loaded>,
    forgotten_until: Option<Timestamp>,
    clock: &Clock,
) -> Restored {
    let schedule = |target: &Arc<RuntimeTarget>| {
        let loaded = loaded.remove(target.id())?;
        target.restore(loaded.known);
        let stored = loaded.schedule.filter(|stored| stored.identity == target.identity)?;
        let now = clock.wall();
        let mut schedule = not_early(stored.schedule, forgotten_until, now);
        // The list of networks may permit it now.
        if target.is_denied() {
            schedule.due = schedule.due.min(now);
        }
        Some(to_monotonic(schedule, clock))
    };
    let schedules: Vec<_> = targets.values().map(schedule).collect();
    let dormant = loaded.into_iter().map(|(id, loaded)| (id, loaded.known)).collect();
    Restored { targets: targets.values().cloned().zip(schedules).collect(), dormant }
}

/// Keeps the known state of removed targets as long as history is kept; the rest is deleted from the database.
pub fn keep_recent(
    mut dormant: HashMap<TargetId, KnownState>,
    config: &Config,
    store: &Store,
    now: Timestamp,
) -> HashMap<TargetId, KnownState> {
    let history = Duration::from_secs(u64::from(config.store.history_days) * 86_400);
    let mut reports: Vec<_> = dormant.values().map(|known| known.last_report).collect();
    reports.sort_unstable();
    // Of too many, the latest are kept.
    let oldest = reports.len().checked_sub(DORMANT).map(|surplus| reports[surplus.min(reports.len() - 1)]);
    dormant.retain(|id, known| {
        let is_recent = known.last_report.is_some_and(|at| now.since(at) <= history);
        let keep = is_recent && oldest.is_none_or(|oldest| known.last_report >= oldest);
        if !keep {
            store.writer().forget(id.clone());
        }
        keep
    });
    dormant
}

/// A poll without changes just before a kill may not be stored. Its target is assumed to have been polled when it was
/// due, so that its next poll is early by at most the time that a kill may lose.
fn not_early(
    mut schedule: Schedule<Timestamp>,
    forgotten_until: Option<Timestamp>,
    now: Timestamp,
) -> Schedule<Timestamp> {
    /// The largest share that jitter adds to an interval.
    const JITTER: f64 = 1.05;
    let healthy = schedule.failures == 0
        && schedule.plugin_faults == 0
        && schedule.breaker.state == BreakerState::Closed
        && schedule.dead.is_none();
    if healthy && forgotten_until.is_some_and(|until| schedule.due <= until.min(now)) {
        let interval = schedule.interval.unwrap_or_default().mul_f64(JITTER);
        schedule.due = schedule.due.after(interval.saturating_sub(FORGOTTEN));
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_kill_a_poll_is_early_by_no_more_than_a_kill_may_cost() {
        let killed = Some(Timestamp::from_millis(1_000_000));
        let now = Timestamp::from_millis(1_010_000);
        for (due, failures, forgotten_until, expected) in [
            // It may have been polled at 990, unseen: then it is due at 1095 at the latest, and 30 s early is allowed.
            (990, 0, killed, 1065),
            (1000, 0, killed, 1075),
            // No poll came after the earlier host's last sign of life, nor in the future.
            (1001, 0, killed, 1001),
            (1020, 0, Some(Timestamp::from_millis(1_030_000)), 1020),
            (990, 0, None, 990),
            // A failure is committed at once: nothing of it was forgotten.
            (990, 1, killed, 990),
        ] {
            let schedule = Schedule {
                interval: Some(Duration::from_secs(100)),
                failures,
                ..Schedule::new(Timestamp::from_millis(due * 1000))
            };
            let found = not_early(schedule, forgotten_until, now);
            assert_eq!(found.due, Timestamp::from_millis(expected * 1000), "{due} {failures} {forgotten_until:?}");
        }
    }
}
