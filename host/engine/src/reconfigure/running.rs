//! The running configuration.

use super::fit::Candidate;
use crate::prepare::Targets;
use config::{Config, Overrides, Written};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The running configuration.
pub(super) struct Running {
    pub written: Arc<Written>,
    pub config: Arc<Config>,
    pub overrides: Overrides,
    pub inactive: BTreeMap<String, String>,
    pub targets: Targets,
    pub channels: Targets,
}

impl From<Candidate> for Running {
    fn from(candidate: Candidate) -> Self {
        let Candidate { written, config, overrides, inactive, prepared, channels } = candidate;
        let (targets, channels) = (prepared.targets, channels.targets);
        Self { written, config, overrides, inactive, targets, channels }
    }
}
