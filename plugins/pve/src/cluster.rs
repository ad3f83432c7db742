//! `/cluster/status`: the members of the cluster, and whether it has quorum.

use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{Diagnostics, evaluated, item};
use serde::Deserialize;

/// One entry: the cluster itself, or a node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    #[serde(rename = "type")]
    kind: Field<Text>,
    id: Field<Text>,
    name: Field<Text>,
    quorate: Field<Flag>,
    nodes: Field<Number>,
    online: Field<Flag>,
    local: Field<Flag>,
    nodeid: Field<Number>,
    level: Field<Text>,
    version: Field<Number>,
}

/// The members and the quorum.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// The entry of the cluster. A standalone node has none.
    itself: Option<Entry>,
    /// Whether each node is online; `None` if the entry does not tell.
    pub online: SortedMap<String, Option<bool>>,
    /// The node that was asked.
    local: Option<String>,
    /// Labels of each node for dashboards: name, number and level of support.
    pub labels: Vec<[String; 3]>,
}

impl Cluster {
    pub(crate) fn new(entries: Vec<Entry>, diagnostics: &mut Diagnostics) -> Self {
        let mut cluster = Self::default();
        for (index, entry) in entries.into_iter().enumerate() {
            let named = entry.name.get().map(|Text(name)| name.clone());
            // The id is `node/NAME`.
            let of_id = || entry.id.get()?.0.strip_prefix("node/").map(str::to_owned);
            match entry.kind.get() {
                Some(Text(kind)) if kind == "cluster" => {
                    let rank = |entry: &Entry| match entry.quorate {
                        Field::Is(Flag(true)) => 0,
                        Field::Absent | Field::Odd(_) => 1,
                        Field::Is(Flag(false)) => 2,
                    };
                    if cluster.itself.is_some() {
                        diagnostics.repeated("/cluster/status", "the cluster");
                    }
                    if cluster.itself.as_ref().is_none_or(|known| rank(known) < rank(&entry)) {
                        cluster.itself = Some(entry);
                    }
                }
                Some(Text(kind)) if kind == "node" => {
                    let name = &named.or_else(of_id).unwrap_or_else(|| item(index));
                    if entry.local.get().is_some_and(|Flag(local)| *local) {
                        cluster.local = Some(name.clone());
                    }
                    let number = entry.nodeid.get().map(|Number(number)| number.to_string()).unwrap_or_default();
                    let level = entry.level.get().map(|Text(level)| level.clone()).unwrap_or_default();
                    cluster.labels.push([name.clone(), number, level]);
                    let online = entry.online.get().map(|Flag(online)| *online);
                    // Offline is the worst, then unknown.
                    let rank = |online: &Option<bool>| online.map_or(1, |online| if online { 0 } else { 2 });
                    cluster.online.insert_worst(name.clone(), online, rank, ("/cluster/status", diagnostics));
                }
                _ => {}
            }
        }
        cluster
    }

    /// The name of the cluster.
    pub(crate) fn name(&self) -> Option<&str> {
        self.itself.as_ref()?.name.get().map(|Text(name)| name.as_str())
    }

    /// The number of nodes, and the version of the configuration.
    pub(crate) fn size(&self) -> Option<(f64, f64)> {
        let itself = self.itself.as_ref()?;
        let number = |field: &Field<Number>| field.get().map(|Number(number)| *number);
        number(&itself.nodes).zip(number(&itself.version))
    }

    /// Whether the cluster has quorum; `None` if the entry does not tell.
    pub(crate) fn quorate(&self) -> Option<bool> {
        self.itself.as_ref()?.quorate.get().map(|Flag(quorate)| *quorate)
    }

    /// Evaluates the quorum. A standalone node needs none.
    pub(crate) fn quorum(&self, diagnostics: &mut Diagnostics) -> Dependency {
        for (name, online) in &self.online {
            if online.is_none() {
                diagnostics.add(|| format!("/cluster/status does not report whether {name} is online"));
            }
        }
        let Some(itself) = &self.itself else {
            if self.online.len() == 1 {
                let skipped = Dependency::skipped("cluster/quorum").with_kind("pve-cluster");
                return skipped.with_description("A standalone node needs no quorum");
            }
            let why = match self.online.len() {
                0 => "/cluster/status is empty".to_owned(),
                nodes => format!("/cluster/status lists {nodes} nodes, and not their cluster"),
            };
            return evaluated("cluster/quorum", "pve-cluster", (Status::Unknown, Some(why)));
        };
        let quorate = diagnostics.flag(&itself.quorate, || "quorate of the cluster".to_owned());
        let online = self.online.values().filter(|online| **online == Some(true)).count();
        let all = diagnostics
            .number(&itself.nodes, || "nodes of the cluster".to_owned())
            .map_or(self.online.len(), |all| all as usize);
        let name = diagnostics.text(&itself.name, || "name of the cluster".to_owned()).map(|Text(name)| name.as_str());
        let verdict = match quorate {
            Some(true) => (Status::Ok, None),
            Some(false) => (
                Status::Critical,
                Some(format!(
                    "the cluster has no quorum{}: {online} of {all} nodes are online; nothing can be started or changed until \
                     more of them are back",
                    // The node that was asked may be cut off itself.
                    self.local
                        .as_ref()
                        .map(|local| format!(", as seen by {local}, the node that was asked"))
                        .unwrap_or_default()
                )),
            ),
            None => (Status::Unknown, Some("the cluster does not report whether it has quorum".to_owned())),
        };
        let dependency = evaluated("cluster/quorum".to_owned(), "pve-cluster", verdict);
        match name {
            Some(name) => dependency.with_description(format!("Cluster {name} of {all} nodes")),
            None => dependency,
        }
    }
}
