//! Thresholds of usage and age.

use crate::setting::problem_of;
use polliwog_sdk::{SettingsProblem, Status};

/// Thresholds for a value that must not grow beyond them. 0 stands for never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// A value from here on is a warning.
    pub warning: f64,
    /// A value from here on is critical.
    pub critical: f64,
}

impl Thresholds {
    /// Returns the status of a value, and the threshold that it reached.
    pub fn evaluate(self, value: f64) -> (Status, f64) {
        reached(self.warning, self.critical, |limit| value >= limit)
    }

    /// Returns a problem of the thresholds, which have these names in the settings.
    pub fn problem(self, warning: &str, critical: &str) -> Option<SettingsProblem> {
        let wrong = not_a_limit(warning, self.warning).or_else(|| not_a_limit(critical, self.critical));
        wrong.or_else(|| hidden((warning, self.warning), (critical, self.critical)))
    }
}

/// Returns the worst threshold that a value is beyond; 0 if it is beyond none.
fn reached(warning: f64, critical: f64, is_past: impl Fn(f64) -> bool) -> (Status, f64) {
    let is_past = |limit: f64| limit > 0.0 && is_past(limit);
    if is_past(critical) {
        (Status::Critical, critical)
    } else if is_past(warning) {
        (Status::Warning, warning)
    } else {
        (Status::Ok, 0.0)
    }
}

/// Returns a problem if one threshold hides the other. 0 for never hides nothing.
fn hidden((name, limit): (&str, f64), (above, upper): (&str, f64)) -> Option<SettingsProblem> {
    (upper > 0.0 && limit > upper).then(|| {
        let message = format!(
            "it is above {above} ({limit} and {upper}; a setting that is not written has its default): there would never be \
             a warning"
        );
        problem_of(name, message)
    })
}

fn not_a_limit(name: &str, limit: f64) -> Option<SettingsProblem> {
    if !(limit >= 0.0 && limit.is_finite()) {
        return Some(problem_of(name, format!("it is {limit}: write 0 for never, or a number above it")));
    }
    let percent = name.ends_with("percent") && (limit > 100.0 || limit > 0.0 && limit < 1.0);
    let message = || format!("it is {limit}: write percent, as 85 for 85 %, and 100 at most");
    percent.then(|| problem_of(name, message()))
}

/// Thresholds for a value that must not fall below them, such as remaining days. 0 stands for never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remaining {
    /// A value below is a warning.
    pub warning: f64,
    /// A value below is critical.
    pub critical: f64,
}

impl Remaining {
    /// Returns the status of a value, and the threshold that it is below.
    pub fn evaluate(self, value: f64) -> (Status, f64) {
        reached(self.warning, self.critical, |limit| value < limit)
    }

    /// Returns a problem of the thresholds, which have these names in the settings.
    pub fn problem(self, warning: &str, critical: &str) -> Option<SettingsProblem> {
        let wrong = not_a_limit(warning, self.warning).or_else(|| not_a_limit(critical, self.critical));
        wrong.or_else(|| hidden((critical, self.critical), (warning, self.warning)))
    }
}

/// A threshold for a warning and one for critical.
pub trait ThresholdPair: Copy {
    /// The status of a value.
    fn status(self, value: f64) -> Status;

    /// The thresholds for a warning and for critical.
    fn pair(self) -> (f64, f64);

    /// The threshold of a status; 0 for ok.
    fn limit(self, status: Status) -> f64 {
        match status {
            Status::Critical => self.pair().1,
            Status::Warning => self.pair().0,
            Status::Ok | Status::Unknown => 0.0,
        }
    }

    /// The thresholds moved to the good side by a fraction of themselves.
    fn moved(self, part: f64) -> Self;
}

impl ThresholdPair for Thresholds {
    fn status(self, value: f64) -> Status {
        self.evaluate(value).0
    }

    fn pair(self) -> (f64, f64) {
        (self.warning, self.critical)
    }

    fn moved(self, part: f64) -> Self {
        Self { warning: self.warning * (1.0 - part), critical: self.critical * (1.0 - part) }
    }
}

impl ThresholdPair for Remaining {
    fn status(self, value: f64) -> Status {
        self.evaluate(value).0
    }

    fn pair(self) -> (f64, f64) {
        (self.warning, self.critical)
    }

    fn moved(self, part: f64) -> Self {
        Self { warning: self.warning * (1.0 + part), critical: self.critical * (1.0 + part) }
    }
}

/// A status, and the reason if it is not ok.
pub type Verdict = (Status, Option<String>);

/// Returns the worse of two verdicts; the first if they are equally bad.
pub fn worse(one: Verdict, other: Verdict) -> Verdict {
    if other.0 != one.0 && one.0.worse(other.0) == other.0 { other } else { one }
}

/// Returns the worst of several verdicts with what belongs to it; the first of those that are equally bad.
pub fn worst<T>(verdicts: impl Iterator<Item = (Verdict, T)>) -> Option<(Verdict, T)> {
    verdicts.reduce(|one, other| if one.0.0.worse(other.0.0) == one.0.0 { one } else { other })
}

/// Returns the used part of a total in percent; `None` if the numbers are impossible.
pub fn percent(used: f64, total: f64) -> Option<f64> {
    (total > 0.0 && used >= 0.0 && used <= total * 1.001).then(|| (used / total * 100.0).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_reached_from_below_and_zero_is_never() {
        let limits = Thresholds { warning: 80.0, critical: 90.0 };
        for (value, expected) in
            [(79.9, Status::Ok), (80.0, Status::Warning), (90.0, Status::Critical), (f64::NAN, Status::Ok)]
        {
            assert_eq!(limits.evaluate(value).0, expected, "{value}");
        }
        assert_eq!(Thresholds { warning: 0.0, critical: 0.0 }.evaluate(1e9).0, Status::Ok);
        assert_eq!(Thresholds { warning: 80.0, critical: 0.0 }.evaluate(99.0).0, Status::Warning);
        assert!(limits.problem("w", "c").is_none());
        assert!(
            Thresholds { warning: 95.0, ..limits }
                .problem("w", "c")
                .unwrap()
                .sentence()
                .starts_with("w: it is above c")
        );
        for share in [0.85, 101.0] {
            let limits = Thresholds { warning: share, critical: 0.0 };
            assert!(limits.problem("w_percent", "c_percent").unwrap().message.contains("write percent"));
            assert!(limits.problem("w_hours", "c_hours").is_none());
        }
        assert!(
            Thresholds { warning: -1.0, ..limits }.problem("w", "c").unwrap().sentence().starts_with("w: it is -1")
        );
    }

    #[test]
    fn remaining_days_are_evaluated_from_above() {
        let days = Remaining { warning: 30.0, critical: 7.0 };
        for (value, expected) in
            [(30.0, Status::Ok), (29.9, Status::Warning), (7.0, Status::Warning), (-1.0, Status::Critical)]
        {
            assert_eq!(days.evaluate(value).0, expected, "{value}");
        }
        assert_eq!(Remaining { warning: 0.0, critical: 0.0 }.evaluate(-1.0).0, Status::Ok);
        assert!(days.problem("w", "c").is_none());
        assert!(
            Remaining { critical: 40.0, ..days }.problem("w", "c").unwrap().sentence().starts_with("c: it is above w")
        );
        assert!(Remaining { critical: -1.0, ..days }.problem("w", "c").unwrap().sentence().starts_with("c: it is -1"));
    }

    #[test]
    fn the_worse_verdict_wins_and_then_the_first() {
        let verdict = |status, why: &str| (status, Some(why.to_owned()));
        let (warning, critical) = (verdict(Status::Warning, "w"), verdict(Status::Critical, "c"));
        assert_eq!(worse(warning.clone(), critical.clone()), critical);
        assert_eq!(worse(critical.clone(), warning.clone()), critical);
        assert_eq!(worse(warning.clone(), verdict(Status::Warning, "other")), warning);
    }

    #[test]
    fn impossible_numbers_have_no_percentage() {
        assert_eq!(percent(50.0, 200.0), Some(25.0));
        for (used, total) in [(1.0, 0.0), (-1.0, 10.0), (11.0, 10.0), (f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert_eq!(percent(used, total), None, "{used} of {total}");
        }
    }
}
