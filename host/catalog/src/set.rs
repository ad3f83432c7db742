//! The plugins that serve at one moment.

use crate::UsageCounter;
use model::{Kind, PluginState, ServedPlugin};
use sandbox::Plugin;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// The source of a plugin that came with the host.
pub const BUILT_IN: &str = "built-in";

/// A plugin that serves its kind.
#[derive(Debug)]
pub struct Served {
    /// The plugin.
    pub plugin: Plugin,
    /// `built-in`, or its file.
    pub source: String,
    /// The usage of its kind's polls.
    pub usage: Arc<UsageCounter>,
}

impl Served {
    fn kind(&self) -> &Kind {
        &self.plugin.descriptor().kind
    }
}

/// A plugin file that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The file.
    pub file: String,
    /// Why, and what to do.
    pub reason: String,
}

/// Every plugin that serves its kind, and every refused file, at one moment.
#[derive(Clone, Debug, Default)]
pub struct PluginSet {
    served: BTreeMap<Kind, Arc<Served>>,
    refused: Vec<Refused>,
}

impl PluginSet {
    /// The plugin that serves a kind.
    pub fn get(&self, kind: &Kind) -> Option<&Arc<Served>> {
        self.served.get(kind)
    }

    /// Every plugin that serves, by kind.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Every refused file.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The same set with another plugin for a kind, or with none.
    pub fn with(&self, kind: &Kind, served: Option<Arc<Served>>) -> Self {
        let mut other = self.clone();
        match served {
            Some(served) => other.served.insert(kind.clone(), served),
            None => other.served.remove(kind),
        };
        other
    }

    /// The same set with other refused files.
    pub fn refusing(&self, refused: Vec<Refused>) -> Self {
        Self { served: self.served.clone(), refused }
    }

    /// The same as plain values; `quarantined` are the kinds in quarantine, with the time of their next probe.
    pub fn states(&self, quarantined: &BTreeMap<Kind, model::Timestamp>) -> Vec<PluginState> {
        let served = self.served.values().map(|served| PluginState {
            source: served.source.clone(),
            served: Ok(ServedPlugin {
                kind: served.kind().clone(),
                version: served.plugin.descriptor().version.clone(),
                digest: hex(&served.plugin.digest()),
                quarantined_until: quarantined.get(served.kind()).copied(),
                usage: served.usage.usage(),
            }),
        });
        let refused = self.refused.iter();
        let refused =
            refused.map(|refused| PluginState { source: refused.file.clone(), served: Err(refused.reason.clone()) });
        served.chain(refused).collect()
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl PluginSet {
    /// A set of these.
    pub(crate) fn new(served: BTreeMap<Kind, Arc<Served>>, refused: Vec<Refused>) -> Self {
        Self { served, refused }
    }
}
