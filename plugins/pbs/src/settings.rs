//! What an operator writes.

use polliwog_sdk::prelude::*;
use proxmox::{AgeRule, CertificateLimits, HostLimits, Patterns, Remaining, Thresholds};

/// How a Proxmox Backup Server is judged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How full and how busy the server itself may be.
    pub usage: HostLimits,
    /// Certificates.
    pub certificates: CertificateLimits,
    /// Whether a subscription that is missing or not active is reported.
    pub subscription: bool,
    /// Whether snapshots that verification found damaged are looked for, once an hour. Their list is long.
    pub verification: bool,
    /// This much of the snapshots that were never verified is a warning; 0 for never. Percent.
    pub unverified_warning_percent: f64,
    /// Tasks that failed.
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

/// Datastores, by their names, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Datastores {
    /// Those that are looked at.
    pub include: Patterns,
    /// Those of them that are left out.
    pub exclude: Patterns,
    /// Those that may be unmounted or in maintenance mode, such as disks that are taken away in turn: they are skipped then, and
    /// else are a warning.
    pub may_rest: Patterns,
    /// This much used is a warning; 0 for never. Percent.
    pub warning_percent: f64,
    /// This much used is critical; 0 for never. Percent.
    pub critical_percent: f64,
    /// Full in fewer days than this, by the server's own estimate, is a warning, where half of it is used already; 0 for never.
    /// Days.
    pub full_warning_days: f64,
    /// Full in fewer days than this, by the server's own estimate, is critical, where half of it is used already; 0 for never.
    /// Days.
    pub full_critical_days: f64,
}

/// Jobs, by `gc/DATASTORE`, `verify/ID`, `sync/ID` and `prune/ID`, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Jobs {
    /// Those that are left out.
    pub exclude: Patterns,
    /// A job that is due for so long and has not run is a warning; 0 for never. Hours.
    pub overdue_warning_hours: f64,
    /// A job that is due for so long and has not run is critical; 0 for never. Hours.
    pub overdue_critical_hours: f64,
    /// A last run this old is a warning, whatever the schedule says; 0 for never. Hours.
    pub age_warning_hours: f64,
    /// A last run this old is critical, whatever the schedule says; 0 for never. Hours.
    pub age_critical_hours: f64,
}

/// Tasks that failed in the last day, whatever they did.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tasks {
    /// Whether one is a warning.
    pub warn: bool,
    /// Those that do not matter: by type (`aptupdate`), or by type and what they worked on (`backup:fast:vm/100`), with `*` for
    /// any text.
    pub exclude: Patterns,
}

impl Default for Tasks {
    fn default() -> Self {
        Self { warn: true, exclude: Patterns::default() }
    }
}

/// Backup groups. Each is named by `vm/100`, `ct/101` or `host/NAME`, by `store:DATASTORE`, `ns:NAMESPACE`, `owner:USER` and
/// `comment:TEXT`, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Groups {
    /// Those that are looked at.
    pub include: Patterns,
    /// Those of them that are left out, such as guests that are gone: `comment:*no-monitor*` leaves it to a comment there.
    pub exclude: Patterns,
    /// A newest backup this old is a warning; 0 for never. Hours.
    pub age_warning_hours: f64,
    /// A newest backup this old is critical; 0 for never. Hours.
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

    /// In how many days it may be full.
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
    /// How old the newest backup of a group of these names may be.
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

    /// Everything that is wrong with them.
    pub(crate) fn problems(&self) -> Vec<String> {
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
