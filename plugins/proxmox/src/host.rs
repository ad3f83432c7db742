//! Usage of a machine: CPU, memory, root file system.

use crate::{Diagnostics, Evaluation, Hysteresis, Thresholds, Verdict, percent, worse};
use polliwog_sdk::lenient::{Field, Number};
use polliwog_sdk::{SettingsProblem, Status};
use schemars::JsonSchema;
use serde::Deserialize;

/// Thresholds for the usage of a machine, with a hysteresis of 5 %: a value that crossed a threshold stays flagged
/// until it is 5 % back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostLimits {
    /// Memory usage that is a warning; 0 for never. Percent. The cache of ZFS counts as used.
    pub memory_warning_percent: f64,
    /// Memory usage that is critical; 0 for never. Percent.
    pub memory_critical_percent: f64,
    /// Usage of the root file system that is a warning; 0 for never. Percent.
    pub root_warning_percent: f64,
    /// Usage of the root file system that is critical; 0 for never. Percent.
    pub root_critical_percent: f64,
    /// CPU usage at one poll that is a warning; 0 for never. Percent of all CPUs.
    pub cpu_warning_percent: f64,
    /// CPU usage at one poll that is critical; 0 for never. Percent of all CPUs.
    pub cpu_critical_percent: f64,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            memory_warning_percent: 95.0,
            memory_critical_percent: 0.0,
            root_warning_percent: 85.0,
            root_critical_percent: 95.0,
            cpu_warning_percent: 0.0,
            cpu_critical_percent: 0.0,
        }
    }
}

impl HostLimits {
    fn memory(&self) -> Thresholds {
        Thresholds { warning: self.memory_warning_percent, critical: self.memory_critical_percent }
    }

    fn root(&self) -> Thresholds {
        Thresholds { warning: self.root_warning_percent, critical: self.root_critical_percent }
    }

    fn cpu(&self) -> Thresholds {
        Thresholds { warning: self.cpu_warning_percent, critical: self.cpu_critical_percent }
    }

    /// Returns all problems of the setting `usage`.
    pub fn problems(&self) -> impl Iterator<Item = SettingsProblem> {
        [
            self.memory().problem("usage.memory_warning_percent", "usage.memory_critical_percent"),
            self.root().problem("usage.root_warning_percent", "usage.root_critical_percent"),
            self.cpu().problem("usage.cpu_warning_percent", "usage.cpu_critical_percent"),
        ]
        .into_iter()
        .flatten()
    }
}

/// The usage of a machine, in percent; `None` if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Host {
    /// All CPUs.
    pub cpu: Option<f64>,
    /// Memory.
    pub memory: Option<f64>,
    /// Root file system.
    pub root: Option<f64>,
}

/// A total and its used part, as the API reports them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Space {
    /// Bytes.
    pub total: Field<Number>,
    /// Bytes.
    pub used: Field<Number>,
}

impl Space {
    /// Returns the used part in percent. `what` names it: `memory of pmg1`.
    pub fn percent(&self, what: &str, diagnostics: &mut Diagnostics) -> Option<f64> {
        let used = diagnostics.number(&self.used, || format!("used {what}"));
        let total = diagnostics.number(&self.total, || format!("total {what}"));
        share(used, total, || what.to_owned(), diagnostics)
    }
}

/// Returns the used part in percent. Adds a diagnostic if the numbers are impossible.
pub fn share(
    used: Option<f64>,
    total: Option<f64>,
    what: impl FnOnce() -> String,
    diagnostics: &mut Diagnostics,
) -> Option<f64> {
    let (used, total) = (used?, total?);
    let share = percent(used, total);
    if share.is_none() && total > 0.0 {
        diagnostics.add(|| format!("{}: {used} of {total} is used, which is impossible: ignored", what()));
    }
    share
}

impl Host {
    /// CPU usage in percent, from a fraction of all CPUs, which may be a little above 1.
    pub fn cpu(fraction: Option<f64>) -> Option<f64> {
        fraction.filter(|&cpu| cpu <= 2.0).map(|cpu| (cpu * 100.0).min(100.0))
    }

    /// Returns the worst status, and why. `name` is the name of the machine's dependency.
    pub fn evaluate(&self, limits: &HostLimits, name: &str, hysteresis: &mut Hysteresis) -> Verdict {
        let mut worst = (Status::Ok, None);
        for (what, share, limits) in [
            ("memory", self.memory, limits.memory()),
            ("root file system", self.root, limits.root()),
            ("CPU", self.cpu, limits.cpu()),
        ] {
            let Some(share) = share else { continue };
            let Evaluation { status, limit, after } = hysteresis.evaluate(&format!("{name} {what}"), limits, share);
            worst = worse(worst, (status, Some(format!("{what}: more than {limit} % is used{after}"))));
        }
        worst
    }

    /// Describes the usage in whole percent, without the CPU: a text that changes at every poll is written to disk at
    /// every poll.
    pub fn description(&self) -> Option<String> {
        let shares = [("memory", self.memory), ("root file system", self.root)];
        let used = shares.map(|(what, share)| share.map(|share| format!("{what} {share:.0} % used")));
        let used: Vec<String> = used.into_iter().flatten().collect();
        (!used.is_empty()).then(|| used.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_usage_counts() {
        let limits = HostLimits { cpu_warning_percent: 90.0, ..HostLimits::default() };
        let host = |cpu, memory, root| Host { cpu: Some(cpu), memory: Some(memory), root: Some(root) };
        for (host, expected) in [
            (host(10.0, 50.0, 50.0), (Status::Ok, None)),
            (host(10.0, 96.0, 50.0), (Status::Warning, Some("memory: more than 95 % is used"))),
            (host(99.0, 96.0, 96.0), (Status::Critical, Some("root file system: more than 95 % is used"))),
            (host(99.0, 50.0, 50.0), (Status::Warning, Some("CPU: more than 90 % is used"))),
            (Host::default(), (Status::Ok, None)),
        ] {
            let (status, why) = host.evaluate(&limits, "node", &mut Hysteresis::default());
            assert_eq!((status, why.as_deref()), expected, "{host:?}");
        }
        assert_eq!(host(1.0, 41.6, 2.0).description().unwrap(), "memory 42 % used, root file system 2 % used");
        assert_eq!(Host::cpu(Some(1.02)), Some(100.0));
        assert_eq!(Host::cpu(Some(70.0)), None);
    }
}
