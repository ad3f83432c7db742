//! What an operator writes.

use polliwog_sdk::prelude::*;
use proxmox::{AgeRule, CertificateLimits, HostLimits, Patterns, Remaining, Thresholds};

/// How a Proxmox VE cluster, or a node that stands alone, is judged.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Virtual machines and containers.
    pub guests: Guests,
    /// What is asked of each node once an hour.
    pub upkeep: Upkeep,
    /// Nodes.
    pub nodes: Nodes,
    /// How full and how busy a node may be.
    pub usage: HostLimits,
    /// Certificates.
    pub certificates: CertificateLimits,
    /// Whether a subscription that is missing or not active is reported.
    pub subscription: bool,
    /// Storages.
    pub storages: Storages,
    /// Backups that Proxmox VE makes itself (vzdump).
    pub backups: Backups,
    /// Replication jobs.
    pub replication: Replication,
    /// What HA manages.
    pub ha: Ha,
    /// Whether numbers of nodes, guests and storages are given as metrics, under the names that prometheus-pve-exporter has for
    /// them. Each node is asked for its subscription once an hour then.
    pub samples: bool,
    /// Whether `pve_onboot_status` is one of them. Costs a request for each guest, 20 in a poll at most, in turn.
    pub samples_onboot: bool,
}

/// Virtual machines and containers. Each is named by its number, its name, `tag:TAG` or `pool:POOL`, with `*` for any text.
/// Templates are never looked at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Guests {
    /// Those that are looked at.
    pub include: Patterns,
    /// Those of them that are left out.
    pub exclude: Patterns,
    /// Those that must run: one of them that is stopped, or by its number or name not there at all, is critical; other stopped
    /// guests are fine.
    pub expected: Patterns,
    /// Whether those that HA is told to run must run.
    pub expected_by_ha: bool,
    /// Whether those that are started with their node must run. Costs a request for each guest, 20 in a poll at most, in
    /// turn.
    pub expected_by_onboot: bool,
    /// A guest that must run and does not is a warning for so long, and then critical. Seconds.
    pub grace_seconds: u32,
    /// This much of a container's root file system used is a warning; 0 for never. Percent. Of virtual machines it is not known.
    pub root_warning_percent: f64,
    /// This much of a container's root file system used is critical; 0 for never. Percent.
    pub root_critical_percent: f64,
}

/// Nodes, by their names, with `*` for any text. With a node goes what is its own: its HA resource manager, storages that are
/// not shared, certificates, pools, its last backups. Its guests do not: see `guests.exclude`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Nodes {
    /// Those that are looked at.
    pub include: Patterns,
    /// Those of them that are left out.
    pub exclude: Patterns,
}

/// What is asked of each node once an hour.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Upkeep {
    /// Whether ZFS pools are looked at. How full one may be stands in `storages`.
    pub zfs: bool,
    /// Pools that are not looked at, by their names, with `*` for any text.
    pub zfs_exclude: Patterns,
    /// Whether the health of disks is looked at. It wakes disks that sleep.
    pub disks: bool,
    /// A disk with less of its life left than this is a warning; 0 for never. Percent.
    pub wear_warning_percent: f64,
    /// A disk with less of its life left than this is critical; 0 for never. Percent.
    pub wear_critical_percent: f64,
    /// Whether updates that wait are a warning. The token needs Sys.Modify for that, which PVEAuditor has not.
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
    /// How much of a disk's life may be left.
    pub(crate) fn wear(&self) -> Remaining {
        Remaining { warning: self.wear_warning_percent, critical: self.wear_critical_percent }
    }
}

/// HA services, by their names (`vm:100`), with `*` for any text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ha {
    /// Those that are left out.
    pub exclude: Patterns,
}

/// Storages, by their names, `STORAGE@NODE` for one node's, with `*` for any text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Storages {
    /// Those that are looked at.
    pub include: Patterns,
    /// Those of them that are left out.
    pub exclude: Patterns,
    /// This much used is a warning; 0 for never. Percent.
    pub warning_percent: f64,
    /// This much used is critical; 0 for never. Percent.
    pub critical_percent: f64,
}

/// Backups that Proxmox VE makes itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backups {
    /// Whether guests that are in no backup job are a warning.
    pub coverage: bool,
    /// Whether the last runs are looked at.
    pub runs: bool,
    /// Guests that need no backup: by number, name, `tag:TAG` or `pool:POOL`, with `*` for any text.
    pub exclude: Patterns,
    /// A last backup this old is a warning; 0 for never. Hours.
    pub age_warning_hours: f64,
    /// A last backup this old is critical; 0 for never. Hours.
    pub age_critical_hours: f64,
    /// Other ages for some guests: `[{ for = ["tag:daily"], warning_hours = 30, critical_hours = 54 }]`.
    pub ages: Vec<AgeRule>,
}

/// Replication jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Replication {
    /// Jobs that are not looked at: by their ids (`100-0`), with `*` for any text.
    pub exclude: Patterns,
    /// A job that is due for so long and has not run is a warning; 0 for never. Minutes.
    pub overdue_warning_minutes: f64,
    /// A job that is due for so long and has not run is critical; 0 for never. Minutes.
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
    /// How full a container's root file system may be.
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
    /// Everything that is wrong with them.
    pub(crate) fn problems(&self) -> Vec<String> {
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
