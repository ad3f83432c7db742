//! Settings of a target.

use polliwog_sdk::prelude::*;
use proxmox::{AgeRule, CertificateLimits, HostLimits, Patterns, Remaining, Thresholds};

/// How a Proxmox VE cluster, or a standalone node, is evaluated.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Virtual machines and containers.
    pub guests: Guests,
    /// Checks of each node that run once an hour.
    pub upkeep: Upkeep,
    /// Nodes.
    pub nodes: Nodes,
    /// Thresholds for the usage of a node.
    pub usage: HostLimits,
    /// Certificates.
    pub certificates: CertificateLimits,
    /// Whether a missing or inactive subscription is reported.
    pub subscription: bool,
    /// Storages.
    pub storages: Storages,
    /// Backups that Proxmox VE makes itself (vzdump).
    pub backups: Backups,
    /// Replication jobs.
    pub replication: Replication,
    /// HA services.
    pub ha: Ha,
    /// Whether nodes, guests and storages are reported as metrics, with the names that prometheus-pve-exporter uses.
    /// The subscription of each node is then requested once an hour.
    pub samples: bool,
    /// Whether `pve_onboot_status` is one of the metrics. Costs a request for each guest, at most 20 in a poll.
    pub samples_onboot: bool,
}

/// Virtual machines and containers. A guest is named by its ID, its name, `tag:TAG` or `pool:POOL`, with `*` for any
/// text. Templates are never checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Guests {
    /// Guests that are checked.
    pub include: Patterns,
    /// Guests that are left out of these.
    pub exclude: Patterns,
    /// Guests that are expected to run. If one is stopped, or does not exist by its ID or name, it is critical. Other
    /// stopped guests are fine.
    pub expected: Patterns,
    /// Whether guests that HA keeps running are expected to run.
    pub expected_by_ha: bool,
    /// Whether guests that are started with their node are expected to run. Costs a request for each guest, at most 20
    /// in a poll.
    pub expected_by_onboot: bool,
    /// How long a guest that is expected to run and does not is a warning before it is critical. Seconds.
    pub grace_seconds: u32,
    /// Usage of a container's root file system that is a warning; 0 for never. Percent. It is not known for virtual
    /// machines.
    pub root_warning_percent: f64,
    /// Usage of a container's root file system that is critical; 0 for never. Percent.
    pub root_critical_percent: f64,
}

/// Nodes, by name, with `*` for any text. Excluding a node excludes its HA resource manager, its storages that are not
/// shared, its certificates, its pools and its last backups. It does not exclude its guests: see `guests.exclude`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Nodes {
    /// Nodes that are checked.
    pub include: Patterns,
    /// Nodes that are left out of these.
    pub exclude: Patterns,
}

/// Checks of each node that run once an hour.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Upkeep {
    /// Whether ZFS pools are checked. The thresholds for their usage are those of `storages`.
    pub zfs: bool,
    /// Pools that are not checked, by name, with `*` for any text.
    pub zfs_exclude: Patterns,
    /// Whether the health of disks is checked. It wakes disks that sleep.
    pub disks: bool,
    /// Less remaining life of a disk is a warning; 0 for never. Percent.
    pub wear_warning_percent: f64,
    /// Less remaining life of a disk is critical; 0 for never. Percent.
    pub wear_critical_percent: f64,
    /// Whether pending updates are a warning. The token needs Sys.Modify for that, which PVEAuditor does not have.
    pub updates: bool,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            zfs: true,
            zfs_exclude: Patterns::default(),
            disks: false,
            wear_warning_percent: 10.0,
            wear_critical_percent: 3.0,
            updates: false,
        }
    }
}

impl Upkeep {
    /// Thresholds for the remaining life of a disk.
    pub(crate) fn wear(&self) -> Remaining {
        Remaining { warning: self.wear_warning_percent, critical: self.wear_critical_percent }
    }
}

/// HA services, by name (`vm:100`), with `*` for any text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ha {
    /// Services that are left out.
    pub exclude: Patterns,
}

/// Storages, by name, or `STORAGE@NODE` for that of one node, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Storages {
    /// Storages that are checked.
    pub include: Patterns,
    /// Storages that are left out of these.
    pub exclude: Patterns,
    /// Usage that is a warning; 0 for never. Percent.
    pub warning_percent: f64,
    /// Usage that is critical; 0 for never. Percent.
    pub critical_percent: f64,
}

/// Backups that Proxmox VE makes itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backups {
    /// Whether guests in no backup job are a warning.
    pub coverage: bool,
    /// Whether the last runs are checked.
    pub runs: bool,
    /// Guests that need no backup: by ID, name, `tag:TAG` or `pool:POOL`, with `*` for any text.
    pub exclude: Patterns,
    /// Age of the last backup that is a warning; 0 for never. Hours.
    pub age_warning_hours: f64,
    /// Age of the last backup that is critical; 0 for never. Hours.
    pub age_critical_hours: f64,
    /// Other ages for some guests: `[{ for = ["tag:daily"], warning_hours = 30, critical_hours = 54 }]`.
    pub ages: Vec<AgeRule>,
}

/// Replication jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Replication {
    /// Jobs that are not checked, by id (`100-0`), with `*` for any text.
    pub exclude: Patterns,
    /// How long a due job may not run before it is a warning; 0 for never. Minutes.
    pub overdue_warning_minutes: f64,
    /// How long a due job may not run before it is critical; 0 for never. Minutes.
    pub overdue_critical_minutes: f64,
}

impl Default for Guests {
    fn default() -> Self {
        Self {
            include: Patterns::from(["*"]),
            exclude: Patterns::default(),
            expected: Patterns::default(),
            expected_by_ha: true,
            expected_by_onboot: false,
            grace_seconds: 120,
            root_warning_percent: 90.0,
            root_critical_percent: 98.0,
        }
    }
}

impl Default for Nodes {
    fn default() -> Self {
        Self { include: Patterns::from(["*"]), exclude: Patterns::default() }
    }
}

impl Default for Storages {
    fn default() -> Self {
        Self {
            include: Patterns::from(["*"]),
            exclude: Patterns::default(),
            warning_percent: 85.0,
            critical_percent: 95.0,
        }
    }
}

impl Default for Backups {
    fn default() -> Self {
        // A weekly backup that was missed once, and twice.
        Self {
            coverage: true,
            runs: true,
            exclude: Patterns::default(),
            age_warning_hours: 192.0,
            age_critical_hours: 360.0,
            ages: Vec::new(),
        }
    }
}

impl Default for Replication {
    fn default() -> Self {
        Self { exclude: Patterns::default(), overdue_warning_minutes: 30.0, overdue_critical_minutes: 240.0 }
    }
}

impl Guests {
    /// Thresholds for the usage of a container's root file system.
    pub(crate) fn root(&self) -> Thresholds {
        Thresholds { warning: self.root_warning_percent, critical: self.root_critical_percent }
    }
}

impl Storages {
    pub(crate) fn usage(&self) -> Thresholds {
        Thresholds { warning: self.warning_percent, critical: self.critical_percent }
    }
}

impl Backups {
    pub(crate) fn age(&self) -> Thresholds {
        Thresholds { warning: self.age_warning_hours, critical: self.age_critical_hours }
    }
}

impl Replication {
    pub(crate) fn overdue(&self) -> Thresholds {
        Thresholds { warning: self.overdue_warning_minutes, critical: self.overdue_critical_minutes }
    }
}

impl Settings {
    /// Returns all problems of the settings.
    pub(crate) fn problems(&self) -> Vec<SettingsProblem> {
        let own = [
            (self.storages.usage(), "storages.warning_percent", "storages.critical_percent"),
            (self.backups.age(), "backups.age_warning_hours", "backups.age_critical_hours"),
            (self.guests.root(), "guests.root_warning_percent", "guests.root_critical_percent"),
            (self.replication.overdue(), "replication.overdue_warning_minutes", "replication.overdue_critical_minutes"),
        ];
        let own = own.into_iter().filter_map(|(limits, warning, critical)| limits.problem(warning, critical));
        let wear = self.upkeep.wear().problem("upkeep.wear_warning_percent", "upkeep.wear_critical_percent");
        const WORDS: [&str; 2] = ["tag", "pool"];
        let named = [
            (&self.guests.include, "guests.include"),
            (&self.guests.exclude, "guests.exclude"),
            (&self.guests.expected, "guests.expected"),
            (&self.backups.exclude, "backups.exclude"),
        ];
        let named = named.into_iter().filter_map(|(patterns, setting)| patterns.problem(setting, &WORDS));
        let ages = AgeRule::problems(&self.backups.ages, "backups.ages");
        let own = own.chain(wear).chain(ages).chain(named);
        own.chain(self.usage.problems()).chain(self.certificates.problem()).collect()
    }
}
