//! Reads and checks the configuration in one pass that reports every problem with its place.
//!
//! The environment takes precedence over settings that were changed at run time, these over the file, and the file over
//! the defaults. A file must be valid without changed settings; see [`Written`].
//!
//! This crate reads the configuration file and the CA file of a target (in [`TlsConfig::build`]). It does not depend on
//! the command line or on a running host.

#![forbid(unsafe_code)]

mod alerts;
mod assignment;
mod changed_part;
mod channels;
mod checked;
mod definition;
mod document;
mod estate;
mod fleet_section;
mod otlp;
mod places;
mod proxy;
mod reader;
mod reference;
mod secret_references;
mod shared_secret;
mod status_page;
mod target_config;
mod target_parts;
mod targets;
mod value;
mod warnings;
mod written;

pub use alerts::{AlertsConfig, TargetAlerts, silence_text, stored_silence};
pub use assignment::{STANDBY, check_assigned, needs_lease, stored_assignment};
pub use checked::{Config, Limits, line, scheduler_values};
pub use definition::{Made, alias_key, assignment_key, definition_key, deployment_key, made_by, silence_key};
pub use document::{Document, Reading, Stamp, environment, read_text};
pub use estate::read_estate;
pub use fleet_section::{AssignedDeployment, AssignedTarget, FleetConfig, FleetRole, KubernetesConfig};
pub use otlp::OtlpConfig;
pub use places::{FILE, Places, data_dir, find};
pub use proxy::ProxyConfig;
pub use reader::{Overrides, misspelt, suggestion};
pub use reference::reference;
pub use shared_secret::SharedSecret;
pub use target_config::{
    AlsoConfig, CHANGEABLE, Difference, SecretPermissions, SecretSource, TargetConfig, TlsConfig, setting,
};
pub use value::{parse_duration, show_duration, toml_of};
pub use warnings::{unmet, warnings};
pub use written::{Environment, Extra, Invalid, Written};

use std::fmt;

/// A problem with its place and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `polliwog.toml:12`, or an environment variable.
    pub place: String,
    /// The problem and the remedy, as one sentence.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

#[cfg(test)]
mod tests;
