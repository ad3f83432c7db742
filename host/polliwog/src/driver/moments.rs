//! Schedules by the wall clock, as they are stored, and by the monotonic one, as they run.

use crate::clock::Clock;
use model::{Moment, Timestamp};
use scheduler::{Breaker, BreakerState, DeadLetter, DeadReason, Rate, Rates, Saved};
use std::time::Duration;
use store::{DeadRecord, Schedule};

/// A schedule as it is stored.
pub(crate) fn wall(saved: &Saved, identity: i64, clock: &Clock) -> Schedule {
    let at = |moment: Moment| clock.at(moment);
    Schedule {
        identity,
        due: at(saved.due),
        interval: saved.interval,
        failures: saved.failures,
        first_failure: saved.first_failure.map(at),
        last_cause: saved.last_cause,
        plugin_faults: saved.plugin_faults,
        breaker_open: saved.breaker.state != BreakerState::Closed,
        breaker_since: saved.breaker.since.map(at),
        open_for: saved.breaker.open_for,
        dead: saved.dead.map(|dead| DeadRecord {
            reason: dead.reason.as_str().to_owned(),
            since: at(dead.since),
            last_attempt: at(dead.last_attempt),
            retries: dead.retries,
        }),
        revived: saved.revived,
        last_success: saved.last_success.map(at),
        last_polled: saved.last_polled.map(at),
        last_change: saved.last_change.map(at),
        critical: saved.critical,
        rates: [
            saved.rates.quiet.changes,
            saved.rates.quiet.seconds,
            saved.rates.trouble.changes,
            saved.rates.trouble.seconds,
        ],
    }
}

/// A stored schedule as it runs.
pub(crate) fn saved(schedule: &Schedule, clock: &Clock) -> Saved {
    let (now, wall) = (clock.now(), clock.wall());
    let at = |time: Timestamp| {
        let offset = time.as_millis().saturating_sub(wall.as_millis());
        let span = Duration::from_millis(offset.unsigned_abs());
        if offset < 0 { now.before(span) } else { now.after(span) }
    };
    // What lies in the future by a clock that was set back did not happen later than now.
    let past = |time: Timestamp| at(time).min(now);
    Saved {
        due: at(schedule.due),
        interval: schedule.interval,
        failures: schedule.failures,
        // These are shown and decide nothing: a clock that was set back must not move their dates.
        first_failure: schedule.first_failure.map(at),
        last_cause: schedule.last_cause,
        plugin_faults: schedule.plugin_faults,
        breaker: Breaker {
            state: if schedule.breaker_open { BreakerState::Open } else { BreakerState::Closed },
            open_for: schedule.open_for,
            since: schedule.breaker_since.map(at),
        },
        dead: schedule.dead.as_ref().map(|dead| DeadLetter {
            reason: DeadReason::from_word(&dead.reason).unwrap_or(DeadReason::Retries),
            since: at(dead.since),
            last_attempt: at(dead.last_attempt),
            retries: dead.retries,
        }),
        revived: schedule.revived,
        last_success: schedule.last_success.map(past),
        last_polled: schedule.last_polled.map(past),
        last_change: schedule.last_change.map(past),
        critical: schedule.critical,
        rates: rates(schedule.rates),
    }
}

/// Whatever a file says, rates are numbers that are not negative.
fn rates(stored: [f32; 4]) -> Rates {
    let [a, b, c, d] = stored.map(|number| if number.is_finite() { number.max(0.0) } else { 0.0 });
    Rates { quiet: Rate { changes: a, seconds: b }, trouble: Rate { changes: c, seconds: d } }
}
