//! The scheduler's last hour, measured every half minute and kept in memory.

use crate::host::Host;
use crate::totals::Totals;
use model::{Counters, Timestamp};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The time between two measurements.
const EVERY: Duration = Duration::from_secs(30);
/// The kept measurements: an hour, and one before.
const KEPT: usize = 121;

/// A measurement of the scheduler.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Timestamp,
    started: u64,
    failed: u64,
    held: u64,
    overdue: usize,
    in_flight: usize,
}

/// The values of the time between two measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub at: Timestamp,
    /// Polls that started, per second.
    pub started: f64,
    /// Polls that failed, per second.
    pub failed: f64,
    /// Polls that were held back or skipped, per second.
    pub held: f64,
    /// Targets overdue at its end.
    pub overdue: f64,
    /// Polls in flight at its end.
    pub in_flight: f64,
}

/// The measurements of the last hour.
#[derive(Debug, Default)]
pub(crate) struct LastHour {
    readings: Mutex<VecDeque<Reading>>,
}

impl LastHour {
    /// The values of the last hour, oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let between = |(before, after): (&Reading, &Reading)| {
            let seconds = after.at.since(before.at).as_secs_f64().max(0.001);
            let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
            Sample {
                at: after.at,
                started: rate(before.started, after.started),
                failed: rate(before.failed, after.failed),
                held: rate(before.held, after.held),
                overdue: after.overdue as f64,
                in_flight: after.in_flight as f64,
            }
        };
        readings.iter().zip(readings.iter().skip(1)).map(between).collect()
    }

    fn keep(&self, reading: Reading) {
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        if readings.len() == KEPT {
            readings.pop_front();
        }
        readings.push_back(reading);
    }
}

/// Measures until the host ends.
pub(crate) async fn measure(hour: Arc<LastHour>, host: Arc<dyn Host>, ending: CancellationToken) {
    let mut ticks = interval(EVERY);
    // After the machine slept, one measurement is enough.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ending.run_until_cancelled(ticks.tick()).await.is_some() {
        hour.keep(reading(&*host));
    }
}

fn reading(host: &dyn Host) -> Reading {
    let (state, now) = (host.scheduler(), host.now());
    let Counters { started, failed, held_in_flight, held_by_rate, held_by_hosts, .. } = state.counters;
    let Counters { skipped_unwritten, skipped_no_slot, .. } = state.counters;
    Reading {
        at: now,
        started,
        failed,
        held: held_in_flight + held_by_rate + held_by_hosts + skipped_unwritten + skipped_no_slot,
        overdue: Totals::of(&host.targets(), now, state.overdue_after).overdue,
        in_flight: state.in_flight.values().sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hour_has_rates_between_measurements() {
        let hour = LastHour::default();
        let reading = |n: u64| Reading {
            at: Timestamp::from_millis(n as i64 * 30_000),
            started: n * 60,
            failed: n * 3,
            held: 0,
            overdue: n as usize,
            in_flight: 1,
        };
        hour.keep(reading(0));
        assert_eq!(hour.samples(), []);
        for n in 1..200 {
            hour.keep(reading(n));
        }
        let samples = hour.samples();
        assert_eq!(samples.len(), 120, "an hour");
        let last = samples.last().unwrap();
        assert_eq!((last.started, last.failed, last.held, last.overdue, last.in_flight), (2.0, 0.1, 0.0, 199.0, 1.0));
        // A restart of the counters is no negative rate.
        hour.keep(Reading { at: Timestamp::from_millis(200 * 30_000), ..reading(0) });
        assert_eq!(hour.samples().last().map(|sample| sample.started), Some(0.0));
    }
}
