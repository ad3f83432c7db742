//! Settings of a target.

use polliwog_sdk::prelude::*;
use proxmox::{CertificateLimits, HostLimits, Patterns, Thresholds};

/// The queues of Postfix.
pub(crate) const QUEUES: [&str; 4] = ["deferred", "active", "incoming", "hold"];

/// How a Proxmox Mail Gateway, or a cluster of them, is evaluated.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The account that logs in, with its realm: monitor@pmg. The role Auditor is enough. There are no API tokens.
    pub username: String,
    /// Thresholds for the usage of a node.
    #[serde(default)]
    pub usage: HostLimits,
    /// Certificates.
    #[serde(default)]
    pub certificates: CertificateLimits,
    /// Whether a missing or inactive subscription is reported.
    #[serde(default)]
    pub subscription: bool,
    /// Virus signatures and spam rules.
    #[serde(default)]
    pub filters: Filters,
    /// Mail queues.
    #[serde(default)]
    pub queues: Queues,
    /// Services.
    #[serde(default)]
    pub services: Services,
}

/// Mail queues of each node. A message counts once for each recipient.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Queues {
    /// Number of deferred messages that is a warning; 0 for never.
    pub deferred_warning: f64,
    /// Number of deferred messages that is critical; 0 for never.
    pub deferred_critical: f64,
    /// Number of active messages that is a warning; 0 for never.
    pub active_warning: f64,
    /// Number of active messages that is critical; 0 for never.
    pub active_critical: f64,
    /// Number of incoming messages that is a warning; 0 for never.
    pub incoming_warning: f64,
    /// Number of incoming messages that is critical; 0 for never.
    pub incoming_critical: f64,
    /// Number of messages on hold that is a warning; 0 for never.
    pub hold_warning: f64,
    /// Number of messages on hold that is critical; 0 for never.
    pub hold_critical: f64,
}

/// Virus signatures and spam rules.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filters {
    /// Age of ClamAV's daily signatures that is a warning; 0 for never. Hours.
    pub clamav_warning_hours: f64,
    /// Age of ClamAV's daily signatures that is critical; 0 for never. With 0 for both, they are not checked. Hours.
    pub clamav_critical_hours: f64,
    /// Age of SpamAssassin's rules that is a warning while there are newer ones. With 0, they are not checked. Hours.
    pub rules_warning_hours: f64,
}

impl Default for Filters {
    fn default() -> Self {
        // Signatures are released once a day, sometimes a day late.
        Self { clamav_warning_hours: 72.0, clamav_critical_hours: 168.0, rules_warning_hours: 72.0 }
    }
}

impl Filters {
    pub(crate) fn clamav(&self) -> Thresholds {
        Thresholds { warning: self.clamav_warning_hours, critical: self.clamav_critical_hours }
    }

    pub(crate) fn rules(&self) -> Thresholds {
        Thresholds { warning: self.rules_warning_hours, critical: 0.0 }
    }

    fn problem(&self) -> Option<SettingsProblem> {
        let clamav = self.clamav().problem("filters.clamav_warning_hours", "filters.clamav_critical_hours");
        clamav.or_else(|| self.rules().problem("filters.rules_warning_hours", ""))
    }
}

/// Services, by name, with `*` for any text.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Services {
    /// Services that are left out.
    pub exclude: Patterns,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            deferred_warning: 100.0,
            deferred_critical: 1000.0,
            active_warning: 500.0,
            active_critical: 5000.0,
            incoming_warning: 500.0,
            incoming_critical: 5000.0,
            hold_warning: 1.0,
            hold_critical: 0.0,
        }
    }
}

impl Queues {
    pub(crate) fn limits(&self, queue: &str) -> Thresholds {
        let (warning, critical) = match queue {
            "deferred" => (self.deferred_warning, self.deferred_critical),
            "active" => (self.active_warning, self.active_critical),
            "incoming" => (self.incoming_warning, self.incoming_critical),
            _ => (self.hold_warning, self.hold_critical),
        };
        Thresholds { warning, critical }
    }
}

impl Settings {
    /// Returns all problems of the settings.
    pub(crate) fn problems(&self) -> Vec<SettingsProblem> {
        let who = match self.username.split_once('@') {
            Some((user, realm)) if !user.is_empty() && !realm.is_empty() => None,
            _ => Some(SettingsProblem::at(
                "/username",
                format!(
                    "it is {:?}: write it with its realm, as in monitor@pmg or root@pam; without one the gateway takes it \
                     for a quarantine user",
                    self.username
                ),
            )),
        };
        let queues = QUEUES.into_iter().filter_map(|queue| {
            self.queues.limits(queue).problem(&format!("queues.{queue}_warning"), &format!("queues.{queue}_critical"))
        });
        who.into_iter()
            .chain(queues)
            .chain(self.usage.problems())
            .chain(self.certificates.problem())
            .chain(self.filters.problem())
            .collect()
    }
}
