//! Which plugin serves which kind: the built-in ones, and what is dropped into the directory.
//!
//! - [`folder`] looks at the directory, [`shelf`] says which file serves which kind, [`last`] remembers that.
//! - [`keeper`] does it while the host runs, and hands every change to the configurator, which checks it against the
//!   targets of its kind.
//! - [`account`] counts what a kind's polls use.

mod account;
mod folder;
pub(crate) mod keeper;
mod last;
mod shelf;
mod trust;

use account::Account;
use model::Kind;
use sandbox::Plugin;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

pub(crate) use folder::read;
pub(crate) use keeper::{Judging, Keeper};
pub(crate) use trust::Trust;

/// What stands for a file's name where a plugin came with the host.
pub(crate) const BUILT_IN: &str = "built-in";

/// A plugin that serves its kind.
#[derive(Debug)]
pub(crate) struct Served {
    /// The plugin.
    pub plugin: Plugin,
    /// `built-in`, or its file.
    pub source: String,
    /// What its kind's polls have used.
    pub account: Arc<Account>,
}

impl Served {
    fn kind(&self) -> &Kind {
        &self.plugin.descriptor().kind
    }
}

/// A file that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The file.
    pub file: String,
    /// Why, and what to do.
    pub reason: String,
}

/// Every plugin that serves, and every file that does not, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct PluginSet {
    served: BTreeMap<Kind, Arc<Served>>,
    refused: Vec<Refused>,
}

impl PluginSet {
    /// The plugin that serves a kind.
    pub(crate) fn get(&self, kind: &Kind) -> Option<&Arc<Served>> {
        self.served.get(kind)
    }

    /// Every plugin that serves, by kind.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Every file that does not.
    pub(crate) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The same with another plugin for a kind, or with none.
    pub(crate) fn with(&self, kind: &Kind, served: Option<Arc<Served>>) -> Self {
        let mut other = self.clone();
        match served {
            Some(served) => drop(other.served.insert(kind.clone(), served)),
            None => drop(other.served.remove(kind)),
        }
        other
    }

    /// The same with other refused files.
    fn refusing(&self, refused: Vec<Refused>) -> Self {
        Self { served: self.served.clone(), refused }
    }

    /// The same for pages, API and command line; `quarantined` are the kinds that are, with when they are tried again.
    pub(crate) fn views(&self, quarantined: &BTreeMap<Kind, model::Timestamp>) -> Vec<web::PluginView> {
        let served = self.served.values().map(|served| web::PluginView {
            kind: Some(served.kind().clone()),
            version: Some(served.plugin.descriptor().version.clone()),
            digest: Some(hex(&served.plugin.digest())),
            source: served.source.clone(),
            refusal: None,
            quarantined_until: quarantined.get(served.kind()).copied(),
            usage: served.account.usage(),
        });
        let refused = self.refused.iter().map(|refused| web::PluginView {
            kind: None,
            version: None,
            digest: None,
            source: refused.file.clone(),
            refusal: Some(refused.reason.clone()),
            quarantined_until: None,
            usage: web::PluginUsage::default(),
        });
        served.chain(refused).collect()
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
