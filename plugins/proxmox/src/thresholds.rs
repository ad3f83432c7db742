//! How full is too full, and how old is too old.

use polliwog_sdk::Status;

/// From where on something is a warning, and from where on it is critical. 0 stands for never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// From here on it is a warning.
    pub warning: f64,
    /// From here on it is critical.
    pub critical: f64,
}

impl Thresholds {
    /// What a number means, and the limit that it reached.
    pub fn evaluate(self, value: f64) -> (Status, f64) {
        reached(self.warning, self.critical, |limit| value >= limit)
    }

    /// What is wrong with them, under these names in the settings.
    pub fn problem(self, warning: &str, critical: &str) -> Option<String> {
        let wrong = not_a_limit(warning, self.warning).or_else(|| not_a_limit(critical, self.critical));
        wrong.or_else(|| hidden((warning, self.warning), (critical, self.critical)))
    }
}

/// The worse of two limits that a number is past; 0 is past none.
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

/// That one limit is above another that must not be below it; 0 for never is neither.
fn hidden((name, limit): (&str, f64), (above, upper): (&str, f64)) -> Option<String> {
    (upper > 0.0 && limit > upper).then(|| {
        format!(
            "\"{name}\" is above \"{above}\" ({limit} and {upper}; what is not written has its default): no warning would ever \
             be seen"
        )
    })
}

fn not_a_limit(name: &str, limit: f64) -> Option<String> {
    if !(limit >= 0.0 && limit.is_finite()) {
        return Some(format!("\"{name}\" is {limit}: write 0 for never, or a number above it"));
    }
    let percent = name.ends_with("percent") && (limit > 100.0 || limit > 0.0 && limit < 1.0);
    percent.then(|| format!("\"{name}\" is {limit}: write percent, as 85 for 85 %, and 100 at most"))
}

/// Below what something is a warning, and below what it is critical: days that are left. 0 stands for never.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remaining {
    /// Below this it is a warning.
    pub warning: f64,
    /// Below this it is critical.
    pub critical: f64,
}

impl Remaining {
    /// What a number means, and the limit that it is below.
    pub fn evaluate(self, value: f64) -> (Status, f64) {
        reached(self.warning, self.critical, |limit| value < limit)
    }

    /// What is wrong with them, under these names in the settings.
    pub fn problem(self, warning: &str, critical: &str) -> Option<String> {
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

/// How something is, and why, where it is not ok.
pub type Verdict = (Status, Option<String>);

/// The worse of two; of two alike the first.
pub fn worse(one: Verdict, other: Verdict) -> Verdict {
    if other.0 != one.0 && one.0.worse(other.0) == other.0 { other } else { one }
}

/// How much of a whole is used, in percent; nothing where the numbers cannot be true.
pub fn percent(used: f64, total: f64) -> Option<f64> {
    (total > 0.0 && used >= 0.0 && used <= total * 1.001).then(|| (used / total * 100.0).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_reached_from_below_and_zero_is_never() {
        let limits = Thresholds { warning: 80.0, critical: 90.0 };
        for (value, expected) in
            [(79.9, Status::Ok), (80.0, Status::Warning), (90.0, Status::Critical), (f64::NAN, Status::Ok)]
        {
            assert_eq!(limits.evaluate(value).0, expected, "{value}");
        }
        assert_eq!(Thresholds { warning: 0.0, critical: 0.0 }.evaluate(1e9).0, Status::Ok);
        assert_eq!(Thresholds { warning: 80.0, critical: 0.0 }.evaluate(99.0).0, Status::Warning);
        assert!(limits.problem("w", "c").is_none());
        assert!(Thresholds { warning: 95.0, ..limits }.problem("w", "c").unwrap().contains("\"w\" is above"));
        for share in [0.85, 101.0] {
            let limits = Thresholds { warning: share, critical: 0.0 };
            assert!(limits.problem("w_percent", "c_percent").unwrap().contains("write percent"));
            assert!(limits.problem("w_hours", "c_hours").is_none());
        }
        assert!(Thresholds { warning: -1.0, ..limits }.problem("w", "c").unwrap().contains("\"w\" is -1"));
    }

    #[test]
    fn what_remains_is_judged_from_above() {
        let days = Remaining { warning: 30.0, critical: 7.0 };
        for (value, expected) in
            [(30.0, Status::Ok), (29.9, Status::Warning), (7.0, Status::Warning), (-1.0, Status::Critical)]
        {
            assert_eq!(days.evaluate(value).0, expected, "{value}");
        }
        assert_eq!(Remaining { warning: 0.0, critical: 0.0 }.evaluate(-1.0).0, Status::Ok);
        assert!(days.problem("w", "c").is_none());
        assert!(Remaining { critical: 40.0, ..days }.problem("w", "c").unwrap().contains("\"c\" is above \"w\""));
        assert!(Remaining { critical: -1.0, ..days }.problem("w", "c").unwrap().contains("\"c\" is -1"));
    }

    #[test]
    fn the_worse_verdict_wins_and_the_first_of_two_alike() {
        let verdict = |status, why: &str| (status, Some(why.to_owned()));
        let (warning, critical) = (verdict(Status::Warning, "w"), verdict(Status::Critical, "c"));
        assert_eq!(worse(warning.clone(), critical.clone()), critical);
        assert_eq!(worse(critical.clone(), warning.clone()), critical);
        assert_eq!(worse(warning.clone(), verdict(Status::Warning, "other")), warning);
    }

    #[test]
    fn impossible_shares_are_none() {
        assert_eq!(percent(50.0, 200.0), Some(25.0));
        for (used, total) in [(1.0, 0.0), (-1.0, 10.0), (11.0, 10.0), (f64::NAN, 1.0), (1.0, f64::NAN)] {
            assert_eq!(percent(used, total), None, "{used} of {total}");
        }
    }
}
