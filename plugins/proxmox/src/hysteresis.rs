//! Hysteresis: keeps a value that is close to a threshold from changing its status at every poll.

use crate::expiring::ExpiringMap;
use crate::thresholds::ThresholdPair;
use polliwog_sdk::Status;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A value that crossed a threshold stays flagged until it is back by this fraction of the threshold: from 85 % to
/// below 80.75 %.
const BACK: f64 = 0.05;
/// A value that is not evaluated for this time is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(45 * 24 * 60 * 60);

/// The status of a value, with regard to its status at the last poll.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The status.
    pub status: Status,
    /// The threshold that the value is beyond.
    pub limit: f64,
    /// Suffix for the message when the value is only held by hysteresis, such as `, and it was past 85`; empty
    /// otherwise.
    pub after: String,
}

/// Values beyond a threshold, at the last poll and at this one, by name.
#[derive(Debug, Default)]
pub struct Hysteresis {
    before: ExpiringMap<Crossed>,
    now: ExpiringMap<Crossed>,
    /// The time of this poll, in milliseconds since 1970.
    time: u64,
}

/// A value beyond a threshold. It counts only while the threshold is the same.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Crossed {
    #[serde(rename = "p")]
    past: Past,
    #[serde(rename = "l")]
    limit: f64,
}

/// Which threshold was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
enum Past {
    Warning,
    Critical,
}

impl Past {
    fn of(status: Status) -> Option<Self> {
        match status {
            Status::Warning => Some(Self::Warning),
            Status::Critical => Some(Self::Critical),
            Status::Ok | Status::Unknown => None,
        }
    }

    fn status(past: Option<Self>) -> Status {
        match past {
            Some(Self::Critical) => Status::Critical,
            Some(Self::Warning) => Status::Warning,
            None => Status::Ok,
        }
    }
}

impl Hysteresis {
    /// Takes the values beyond a threshold at the last poll.
    pub(crate) fn new(before: ExpiringMap<Crossed>, time: u64) -> Self {
        Self { now: before.clone(), before, time }
    }

    /// Evaluates a value. `name` is the same at each poll.
    pub fn evaluate(&mut self, name: &str, limits: impl ThresholdPair, value: f64) -> Evaluation {
        let fresh = Past::of(limits.status(value));
        let ends = limits.moved(BACK);
        // The status at the last poll holds while the value is not clearly back.
        let same = |crossed: &&Crossed| limits.limit(Past::status(Some(crossed.past))) == crossed.limit;
        let before = self.before.get(name, self.time).filter(same).map(|crossed| crossed.past);
        let past = fresh.max(before.min(Past::of(ends.status(value))));
        let status = Past::status(past);
        match past {
            Some(past) => {
                let crossed = Crossed { past, limit: limits.limit(status) };
                self.now.renew(name, crossed, self.time, FORGOTTEN);
            }
            None => self.now.remove(name),
        }
        if past == fresh {
            return Evaluation { status, limit: limits.limit(status), after: String::new() };
        }
        let limit = (ends.limit(status) * 100.0).round() / 100.0;
        Evaluation { status, limit, after: format!(", and it was past {}", limits.limit(status)) }
    }

    /// Returns the values beyond a threshold, for the next poll.
    pub(crate) fn into_crossed(self) -> ExpiringMap<Crossed> {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Remaining, Thresholds};

    /// Evaluates these values one after the other.
    fn course(limits: impl ThresholdPair, values: &[f64]) -> Vec<(Status, f64)> {
        let mut hysteresis = Hysteresis::default();
        let mut evaluate = |value: &f64| {
            let grade = hysteresis.evaluate("it", limits, *value);
            hysteresis.before = hysteresis.now.clone();
            (grade.status, grade.limit)
        };
        values.iter().map(&mut evaluate).collect()
    }

    #[test]
    fn a_crossed_value_stays_flagged_until_it_is_clearly_back() {
        let (ok, warning, critical) = ((Status::Ok, 0.0), Status::Warning, Status::Critical);
        let limits = Thresholds { warning: 80.0, critical: 90.0 };
        for (values, expected) in [
            (
                &[79.9, 80.0, 79.9, 76.0, 75.9, 79.9][..],
                &[ok, (warning, 80.0), (warning, 76.0), (warning, 76.0), ok, ok][..],
            ),
            (&[91.0, 86.0, 85.4, 75.0], &[(critical, 90.0), (critical, 85.5), (warning, 80.0), ok]),
            (&[85.0, 89.0, 77.0], &[(warning, 80.0), (warning, 80.0), (warning, 76.0)]),
        ] {
            assert_eq!(course(limits, values), expected, "{values:?}");
        }
        // One threshold only, and remaining days.
        let only = Thresholds { warning: 0.0, critical: 50.0 };
        assert_eq!(course(only, &[50.0, 48.0, 47.0]), [(critical, 50.0), (critical, 47.5), ok]);
        let days = Remaining { warning: 30.0, critical: 10.0 };
        assert_eq!(
            course(days, &[29.0, 31.0, 31.5, 9.0, 10.4, 10.5]),
            [(warning, 30.0), (warning, 31.5), ok, (critical, 10.0), (critical, 10.5), (warning, 30.0)]
        );
    }

    #[test]
    fn the_crossed_threshold_is_named() {
        let mut hysteresis = Hysteresis::default();
        let limits = Thresholds { warning: 85.0, critical: 0.0 };
        assert_eq!(hysteresis.evaluate("it", limits, 86.0).after, "");
        hysteresis.before = hysteresis.now.clone();
        let grade = hysteresis.evaluate("it", limits, 84.0);
        assert_eq!((grade.limit, grade.after.as_str()), (80.75, ", and it was past 85"));
        assert_eq!(hysteresis.evaluate("another", limits, 84.0).status, Status::Ok, "each has its own");
        let raised = Thresholds { warning: 88.0, critical: 0.0 };
        assert_eq!(hysteresis.evaluate("it", raised, 86.0).status, Status::Ok, "it was never past that");
    }
}
