//! The maximum age of a backup, for all backups and for some.

use crate::setting::problem_of;
use crate::{Patterns, Thresholds};
use polliwog_sdk::SettingsProblem;
use schemars::JsonSchema;
use serde::Deserialize;

/// The maximum age of some backups. The first rule that matches a backup applies.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgeRule {
    /// The backups, by the same names as in `exclude`, with `*` for any text.
    #[serde(rename = "for")]
    pub of: Patterns,
    /// Age of the newest backup that is a warning; 0 for never. Hours.
    pub warning_hours: f64,
    /// Age of the newest backup that is critical; 0 for never. Hours.
    pub critical_hours: f64,
}

impl AgeRule {
    fn limits(&self) -> Thresholds {
        Thresholds { warning: self.warning_hours, critical: self.critical_hours }
    }

    /// Returns the thresholds for a backup with any of these names.
    pub fn age<'a>(rules: &[Self], names: impl Iterator<Item = &'a str> + Clone, otherwise: Thresholds) -> Thresholds {
        rules.iter().find(|rule| rule.of.match_any(names.clone())).map_or(otherwise, Self::limits)
    }

    /// Returns all problems of the rules in this setting.
    pub fn problems(rules: &[Self], setting: &str) -> Vec<SettingsProblem> {
        let problem = |(index, rule): (usize, &Self)| {
            let name = |field: &str| format!("{setting}[{index}].{field}");
            let message = || "it is empty: write names or patterns".to_owned();
            let empty = rule.of.is_empty().then(|| problem_of(&name("for"), message()));
            empty.or_else(|| rule.limits().problem(&name("warning_hours"), &name("critical_hours")))
        };
        rules.iter().enumerate().filter_map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_rule_applies() {
        let rule = |of: &str, warning_hours| AgeRule { of: Patterns::from([of]), warning_hours, critical_hours: 0.0 };
        let rules = [rule("ns:weekly", 200.0), rule("vm/*", 30.0)];
        let otherwise = Thresholds { warning: 48.0, critical: 168.0 };
        for (names, expected) in
            [(&["vm/100", "ns:weekly"][..], 200.0), (&["vm/100", "ns:"], 30.0), (&["host/nas", "ns:"], 48.0)]
        {
            assert_eq!(AgeRule::age(&rules, names.iter().copied(), otherwise).warning, expected, "{names:?}");
        }
        let wrong = AgeRule { of: Patterns::default(), ..rule("", 1.0) };
        let problems = AgeRule::problems(&[rule("x", -1.0), wrong], "groups.ages");
        assert_eq!(
            problems.iter().map(SettingsProblem::sentence).collect::<Vec<_>>(),
            [
                "groups.ages.0.warning_hours: it is -1: write 0 for never, or a number above it",
                "groups.ages.1.for: it is empty: write names or patterns",
            ]
        );
    }
}
