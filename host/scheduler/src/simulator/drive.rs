//! Runs the scheduler under simulated time.

use crate::{Action, Finish, Input, Scheduler, Settings, TargetSpec};
use model::{Moment, TargetId};
use std::collections::HashMap;
use std::time::Duration;

/// The targets that a simulated scheduler polls.
pub(super) trait Polled {
    /// Starts a poll of a target.
    fn start(&mut self, target: usize, now: Moment);

    /// When the next poll in flight ends.
    fn next_finish(&self) -> Option<Moment>;

    /// Ends the poll that is the next to end, if it ends by `now`. Returns its target and its result.
    fn finish(&mut self, now: Moment) -> Option<(usize, Finish)>;
}

/// Polls targets for a time. Returns the number of polls.
pub(super) fn drive(
    world: &mut impl Polled,
    (settings, specs): (Settings, Vec<TargetSpec>),
    (duration, seed): (Duration, u64),
) -> u64 {
    let ids: Vec<TargetId> = specs.iter().map(|spec| spec.id.clone()).collect();
    let numbers: HashMap<TargetId, usize> = ids.iter().cloned().zip(0..).collect();
    let mut scheduler = Scheduler::new(settings, seed);
    let end = Moment::START.after(duration);
    let mut now = Moment::START;
    scheduler.apply(Input::Started(specs.into_iter().map(|spec| (spec, None)).collect()), now);
    loop {
        for action in scheduler.drain() {
            if let Action::Start(target, _) = action {
                world.start(numbers[&target], now);
            }
        }
        let Some(next) = scheduler.next_wakeup().into_iter().chain(world.next_finish()).min() else { break };
        if next > end {
            break;
        }
        now = now.max(next);
        match world.finish(now) {
            Some((target, finish)) => scheduler.apply(Input::Finished(ids[target].clone(), finish), now),
            None => scheduler.apply(Input::Tick, now),
        }
    }
    scheduler.counters().started
}
