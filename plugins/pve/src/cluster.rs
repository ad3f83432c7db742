//! `/cluster/status`: who is in the cluster, and whether it has quorum.

use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Notes, judged};
use serde::Deserialize;
use std::collections::BTreeMap;

/// One entry: the cluster itself, or a node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    #[serde(rename = "type")]
    kind: Field<Text>,
    name: Field<Text>,
    quorate: Field<Flag>,
    nodes: Field<Number>,
    online: Field<Flag>,
}

/// What it says.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// The cluster's own entry; a node that stands alone has none.
    itself: Option<Entry>,
    /// Whether each node is online, where it says so.
    pub online: BTreeMap<String, Option<bool>>,
}

impl Cluster {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let mut cluster = Self::default();
        for entry in entries {
            match (entry.kind.get(), entry.name.get()) {
                (Some(Text(kind)), _) if kind == "cluster" => cluster.itself = Some(entry),
                (Some(Text(kind)), Some(Text(name))) if kind == "node" => {
                    cluster.online.insert(name.clone(), entry.online.get().map(|Flag(online)| *online));
                }
                _ => {}
            }
        }
        cluster
    }

    /// The cluster's name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.itself.as_ref()?.name.get().map(|Text(name)| name.as_str())
    }

    /// Whether it has quorum, where it says so.
    pub(crate) fn quorate(&self) -> Option<bool> {
        self.itself.as_ref()?.quorate.get().map(|Flag(quorate)| *quorate)
    }

    /// How the quorum is. A node that stands alone needs none.
    pub(crate) fn quorum(&self, notes: &mut Notes) -> Option<Dependency> {
        let Some(itself) = &self.itself else {
            let alone = self.online.len() == 1;
            return alone.then(|| {
                Dependency::skipped("cluster/quorum")
                    .with_kind("pve-cluster")
                    .with_description("A node that stands alone needs no quorum")
            });
        };
        let quorate = notes.flag(&itself.quorate, || "quorate of the cluster".to_owned());
        let online = self.online.values().filter(|online| **online == Some(true)).count();
        let all = notes
            .number(&itself.nodes, || "nodes of the cluster".to_owned())
            .map_or(self.online.len(), |all| all as usize);
        let name = notes.text(&itself.name, || "name of the cluster".to_owned());
        let verdict = match quorate {
            Some(true) => (Status::Ok, None),
            Some(false) => (
                Status::Critical,
                Some(format!(
                    "the cluster has no quorum: {online} of {all} nodes are online; nothing can be started or changed until \
                     more of them are back"
                )),
            ),
            None => (Status::Unknown, Some("the cluster does not say whether it has quorum".to_owned())),
        };
        let dependency = judged("cluster/quorum".to_owned(), "pve-cluster", verdict);
        Some(match name {
            Some(name) => dependency.with_description(format!("Cluster {name} of {all} nodes")),
            None => dependency,
        })
    }
}
