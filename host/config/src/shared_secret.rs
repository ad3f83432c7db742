//! The secrets that targets made through the API may use, and their permissions.

use crate::target_config::SecretSource;
use egress::{Cidr, Origin};
use model::{Kind, TargetSource};
use std::collections::{BTreeMap, BTreeSet};

/// A secret of `[secrets]`, and its permitted uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// The source of the value.
    pub source: SecretSource,
    /// Whether the value may be too short to be masked.
    pub short: bool,
    /// The kinds of targets that may use it.
    pub kinds: BTreeSet<Kind>,
    /// The origins that it may be sent to.
    pub origins: Vec<Origin>,
}

/// The permissions of targets that were made while the host ran.
#[derive(Clone, Copy)]
pub(crate) struct Permitted<'a> {
    /// The source of the target.
    pub source: TargetSource,
    pub secrets: &'a BTreeMap<String, SharedSecret>,
    pub networks: &'a [Cidr],
}

impl SharedSecret {
    /// Checks that a target of this kind with these origins may use the secret.
    pub(crate) fn permits(&self, name: &str, kind: &Kind, origins: &[Origin]) -> Result<(), String> {
        if !self.kinds.contains(kind) {
            let kinds: Vec<&str> = self.kinds.iter().map(Kind::as_str).collect();
            let kinds = kinds.join(", ");
            return Err(format!("the secret {name:?} may be used for kind {kinds} only: see [secrets] in the file"));
        }
        match origins.iter().find(|origin| !self.origins.contains(origin)) {
            Some(origin) => Err(format!(
                "the secret {name:?} may not be sent to {origin}: add that to its origins under [secrets] in the file"
            )),
            None => Ok(()),
        }
    }
}
