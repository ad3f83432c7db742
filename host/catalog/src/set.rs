//! The set of serving plugins at one moment.

use crate::UsageCounter;
use model::{Kind, KindDescription, PluginState, SecretDescription, ServedPlugin, hex};
use sandbox::{Plugin, Role, SecretSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The source of a built-in plugin.
pub const BUILT_IN: &str = "built-in";

/// A plugin that serves its kind.
#[derive(Debug)]
pub struct Served {
    /// The plugin.
    pub plugin: Plugin,
    /// `built-in`, or the file of the plugin.
    pub source: String,
    /// The usage of the polls of the kind.
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
    /// The reason, and the remedy.
    pub reason: String,
}

/// All serving plugins and refused files at one moment.
#[derive(Clone, Debug, Default)]
pub struct PluginSet {
    served: BTreeMap<Kind, Arc<Served>>,
    refused: Vec<Refused>,
    candidates: BTreeMap<Kind, Arc<Served>>,
}

impl PluginSet {
    /// Returns the plugin that serves a kind.
    pub fn get(&self, kind: &Kind) -> Option<&Arc<Served>> {
        self.served.get(kind)
    }

    /// Returns all serving plugins by kind.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Returns the plugins that poll targets, by kind.
    pub fn pollers(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served().filter(|served| served.plugin.descriptor().role == Role::Poller)
    }

    /// Returns the plugins that send notifications, by kind.
    pub fn notifiers(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served().filter(|served| served.plugin.descriptor().role != Role::Poller)
    }

    /// Describes the kinds of targets, for people who define them.
    pub fn kinds(&self) -> Vec<KindDescription> {
        let described = |served: &Arc<Served>| {
            let descriptor = served.plugin.descriptor();
            let secret = |spec: &SecretSpec| SecretDescription {
                name: spec.name.clone(),
                description: spec.description.clone(),
                required: spec.required,
            };
            KindDescription {
                kind: descriptor.kind.clone(),
                title: descriptor.title.clone(),
                summary: descriptor.summary.clone(),
                settings_schema: descriptor.settings_schema.to_string(),
                secrets: descriptor.secrets.iter().map(secret).collect(),
            }
        };
        self.pollers().map(described).collect()
    }

    /// Returns all refused files.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Returns the plugins that wait for a configuration that fits them, by kind. They do not serve.
    pub fn candidates(&self) -> &BTreeMap<Kind, Arc<Served>> {
        &self.candidates
    }

    /// Returns the set with another plugin for a kind; `None` removes the plugin.
    pub fn with(&self, kind: &Kind, served: Option<Arc<Served>>) -> Self {
        let mut other = self.clone();
        other.candidates.remove(kind);
        match served {
            Some(served) => other.served.insert(kind.clone(), served),
            None => other.served.remove(kind),
        };
        other
    }

    /// Returns the set with other refused files, and other plugins that wait for a configuration that fits them.
    pub fn refusing(&self, refused: Vec<Refused>, candidates: Vec<Arc<Served>>) -> Self {
        let candidates = candidates.into_iter().map(|candidate| (candidate.kind().clone(), candidate)).collect();
        Self { served: self.served.clone(), refused, candidates }
    }

    /// Returns the set as plain values. `quarantined` maps each kind in quarantine to the time of its next probe.
    pub fn states(&self, quarantined: &BTreeMap<Kind, model::Timestamp>) -> Vec<PluginState> {
        let served = self.served.values().map(|served| PluginState {
            source: served.source.clone(),
            served: Ok(ServedPlugin {
                kind: served.kind().clone(),
                is_notifier: served.plugin.descriptor().role != Role::Poller,
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

impl PluginSet {
    /// Creates a set.
    pub(crate) fn new(served: BTreeMap<Kind, Arc<Served>>) -> Self {
        Self { served, ..Self::default() }
    }
}
