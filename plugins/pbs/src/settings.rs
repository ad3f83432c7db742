//! Settings of a target.

use polliwog_sdk::prelude::*;
use proxmox::{AgeRule, CertificateLimits, HostLimits, Patterns, Remaining, Thresholds};

/// How a Proxmox Backup Server is evaluated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Thresholds for the usage of the server itself.
    pub usage: HostLimits,
    /// Certificates.
    pub certificates: CertificateLimits,
    /// Whether a missing or inactive subscription is reported.
    pub subscription: bool,
    /// Whether damaged snapshots are reported, once an hour. The list of snapshots is long.
    pub verification: bool,
    /// Share of snapshots that were never verified that is a warning; 0 for never. Percent.
    pub unverified_warning_percent: f64,
    /// Failed tasks.
    pub tasks: Tasks,
    /// Datastores.
    pub datastores: Datastores,
    /// Jobs: garbage collection, verify, sync, prune.
    pub jobs: Jobs,
    /// Backup groups: the newest backup of each guest or host.
    pub groups: Groups,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            usage: HostLimits::default(),
            certificates: CertificateLimits::default(),
            subscription: false,
            verification: true,
            unverified_warning_percent: 0.0,
            tasks: Tasks::default(),
            datastores: Datastores::default(),
            jobs: Jobs::default(),
            groups: Groups::default(),
        }
    }
}

/// Datastores, by name, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Datastores {
    /// Datastores that are checked.
    pub include: Patterns,
    /// Datastores that are left out of these.
    pub exclude: Patterns,
    /// Datastores that may be unmounted or in maintenance mode, such as disks that are swapped. They are then skipped
    /// instead of a warning.
    pub may_rest: Patterns,
    /// Usage that is a warning; 0 for never. Percent.
    pub warning_percent: f64,
    /// Usage that is critical; 0 for never. Percent.
    pub critical_percent: f64,
    /// Fewer days until it is full, by the server's own estimate, are a warning once half is used; 0 for never. Days.
    pub full_warning_days: f64,
    /// Fewer days until it is full, by the server's own estimate, are critical once half is used; 0 for never. Days.
    pub full_critical_days: f64,
}

/// Jobs, by `gc/DATASTORE`, `verify/ID`, `sync/ID` and `prune/ID`, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Jobs {
    /// Jobs that are left out.
    pub exclude: Patterns,
    /// How long a due job may not run before it is a warning; 0 for never. Hours.
    pub overdue_warning_hours: f64,
    /// How long a due job may not run before it is critical; 0 for never. Hours.
    pub overdue_critical_hours: f64,
    /// Age of the last run that is a warning, whatever the schedule is; 0 for never. Hours.
    pub age_warning_hours: f64,
    /// Age of the last run that is critical, whatever the schedule is; 0 for never. Hours.
    pub age_critical_hours: f64,
}

/// Tasks of any type that failed in the last day.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// Whether a failed task is a warning.
    pub warn: bool,
    /// Tasks that are ignored: by type (`aptupdate`), or by type and object (`backup:fast:vm/100`), with `*` for any
    /// text.
    pub exclude: Patterns,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { warn: true, exclude: Patterns::default() }
    }
}

/// Backup groups. A group is named by `vm/100`, `ct/101` or `host/NAME`, by `store:DATASTORE`, `ns:NAMESPACE`,
/// `owner:USER` and `comment:TEXT`, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Groups {
    /// Groups that are checked.
    pub include: Patterns,
    /// Groups that are left out of these, such as those of removed guests. `comment:*no-monitor*` excludes groups by
    /// their comment.
    pub exclude: Patterns,
    /// Age of the newest backup that is a warning; 0 for never. Hours.
    pub age_warning_hours: f64,
    /// Age of the newest backup that is critical; 0 for never. Hours.
    pub age_critical_hours: f64,
    /// Other ages for some groups: `[{ for = ["ns:weekly"], warning_hours = 200, critical_hours = 400 }]`.
    pub ages: Vec<AgeRule>,
}

impl Default for Datastores {
    fn default() -> Self {
        Self {
            include: Patterns::from(["*"]),
            exclude: Patterns::default(),
            may_rest: Patterns::default(),
            warning_percent: 85.0,
            critical_percent: 95.0,
            full_warning_days: 30.0,
            full_critical_days: 7.0,
        }
    }
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            exclude: Patterns::default(),
            overdue_warning_hours: 2.0,
            overdue_critical_hours: 24.0,
            age_warning_hours: 0.0,
            age_critical_hours: 0.0,
        }
    }
}

impl Default for Groups {
    fn default() -> Self {
        // A daily backup that was missed once, and a week of them.
        Self {
            include: Patterns::from(["*"]),
            exclude: Patterns::from(["comment:*no-monitor*"]),
            age_warning_hours: 48.0,
            age_critical_hours: 168.0,
            ages: Vec::new(),
        }
    }
}

impl Datastores {
    pub(crate) fn usage(&self) -> Thresholds {
        Thresholds { warning: self.warning_percent, critical: self.critical_percent }
    }

    /// Thresholds for the days until a datastore is full.
    pub(crate) fn full(&self) -> Remaining {
        Remaining { warning: self.full_warning_days, critical: self.full_critical_days }
    }
}

impl Jobs {
    pub(crate) fn overdue(&self) -> Thresholds {
        Thresholds { warning: self.overdue_warning_hours, critical: self.overdue_critical_hours }
    }

    pub(crate) fn age(&self) -> Thresholds {
        Thresholds { warning: self.age_warning_hours, critical: self.age_critical_hours }
    }
}

impl Groups {
    /// Returns the thresholds for the age of a group with these names.
    pub(crate) fn age<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Thresholds {
        AgeRule::age(&self.ages, names, self.all())
    }

    fn all(&self) -> Thresholds {
        Thresholds { warning: self.age_warning_hours, critical: self.age_critical_hours }
    }
}

impl Settings {
    pub(crate) fn unverified(&self) -> Thresholds {
        Thresholds { warning: self.unverified_warning_percent, critical: 0.0 }
    }

    /// Returns all problems of the settings.
    pub(crate) fn problems(&self) -> Vec<SettingsProblem> {
        let own = [
            (self.datastores.usage(), "datastores.warning_percent", "datastores.critical_percent"),
            (self.jobs.overdue(), "jobs.overdue_warning_hours", "jobs.overdue_critical_hours"),
            (self.jobs.age(), "jobs.age_warning_hours", "jobs.age_critical_hours"),
            (self.groups.all(), "groups.age_warning_hours", "groups.age_critical_hours"),
            (self.unverified(), "unverified_warning_percent", ""),
        ];
        let own = own.into_iter().filter_map(|(limits, warning, critical)| limits.problem(warning, critical));
        let days = self.datastores.full().problem("datastores.full_warning_days", "datastores.full_critical_days");
        const WORDS: [&str; 4] = ["store", "ns", "owner", "comment"];
        let named = [(&self.groups.include, "groups.include"), (&self.groups.exclude, "groups.exclude")];
        let named = named.into_iter().filter_map(|(patterns, setting)| patterns.problem(setting, &WORDS));
        let ages = AgeRule::problems(&self.groups.ages, "groups.ages");
        own.chain(days)
            .chain(ages)
            .chain(named)
            .chain(self.usage.problems())
            .chain(self.certificates.problem())
            .collect()
    }
}
