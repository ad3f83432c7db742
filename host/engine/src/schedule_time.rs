//! Schedules on the monotonic clock, as they run, and on the wall clock, as they are stored and shown.

use crate::clock::Clock;
use model::{Moment, Schedule, Timestamp};
use std::time::Duration;

/// A schedule as it is stored and shown.
pub(crate) fn to_wall(schedule: Schedule<Moment>, clock: &Clock) -> Schedule<Timestamp> {
    schedule.map_time(|moment| clock.at(moment))
}

/// A stored schedule as it runs.
pub fn to_monotonic(schedule: Schedule<Timestamp>, clock: &Clock) -> Schedule<Moment> {
    let (now, wall) = (clock.now(), clock.wall());
    let schedule = schedule.map_time(|time| {
        let offset = time.as_millis().saturating_sub(wall.as_millis());
        let span = Duration::from_millis(offset.unsigned_abs());
        if offset < 0 { now.before(span) } else { now.after(span) }
    });
    // If a clock was set back, what lies in the future did not happen later than now. The other times are only shown:
    // they keep their dates.
    let past = |moment: Option<Moment>| moment.map(|moment| moment.min(now));
    Schedule {
        last_success: past(schedule.last_success),
        last_polled: past(schedule.last_polled),
        last_change: past(schedule.last_change),
        ..schedule
    }
}
