//! `/cluster/resources`: nodes, guests and storages.
//!
//! The cluster forgets after five minutes what a node reports about itself. Then a guest has only ID, node and type,
//! and the status `unknown`; a storage has no size; a node has no usage.

use polliwog_sdk::Dependency;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use proxmox::{Diagnostics, Host, count, share};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// One entry of any type. Unknown types and fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resource {
    #[serde(rename = "type")]
    pub kind: Field<Text>,
    pub id: Field<Text>,
    pub node: Field<Text>,
    pub name: Field<Text>,
    pub status: Field<Text>,
    vmid: Field<Number>,
    pub template: Field<Flag>,
    pub lock: Field<Text>,
    pub tags: Field<Text>,
    pool: Field<Text>,
    pub hastate: Field<Text>,
    pub storage: Field<Text>,
    pub shared: Field<Flag>,
    pub plugintype: Field<Text>,
    pub content: Field<Text>,
    pub cpu: Field<Number>,
    pub maxcpu: Field<Number>,
    pub mem: Field<Number>,
    pub maxmem: Field<Number>,
    pub disk: Field<Number>,
    pub maxdisk: Field<Number>,
    pub netin: Field<Number>,
    pub netout: Field<Number>,
    pub diskread: Field<Number>,
    pub diskwrite: Field<Number>,
    pub uptime: Field<Number>,
}

/// The resources that are checked.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    pub nodes: Vec<Node>,
    pub guests: Vec<Guest>,
    pub storages: Vec<Storage>,
    /// The node of each template, by ID.
    pub templates: BTreeMap<u64, String>,
    /// The number of guests that could not be read.
    pub unread: usize,
}

/// A node, as it reports about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub name: String,
    pub status: String,
    pub ha: Option<String>,
    pub host: Host,
    /// Whether the node reports anything about itself.
    pub speaks: bool,
}

/// A virtual machine or container. Templates are not guests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Guest {
    pub id: u64,
    pub container: bool,
    pub name: Option<String>,
    pub node: String,
    pub status: String,
    pub lock: Option<String>,
    pub tags: Vec<String>,
    pub pool: Option<String>,
    pub ha: Option<String>,
    /// Usage of the root file system in percent; containers only.
    pub root: Option<f64>,
}

impl Guest {
    /// The type, in the words of the API.
    pub(crate) fn kind(&self) -> &'static str {
        if self.container { "lxc" } else { "qemu" }
    }
}

/// A storage, as one node sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Storage {
    pub name: String,
    pub node: String,
    pub shared: bool,
    pub plugin: Option<String>,
    pub available: bool,
    pub used: Option<f64>,
    pub total: Option<f64>,
}

impl Resources {
    pub(crate) fn new(entries: Vec<Resource>, diagnostics: &mut Diagnostics) -> Self {
        let mut resources = Self::default();
        for entry in entries {
            match entry.kind.get().map(|Text(kind)| kind.as_str()) {
                Some("node") => resources.nodes.extend(entry.node(diagnostics)),
                Some("qemu") => resources.take(entry.guest(false, diagnostics)),
                Some("lxc") => resources.take(entry.guest(true, diagnostics)),
                Some("storage") => resources.storages.extend(entry.storage(diagnostics)),
                _ => {}
            }
        }
        resources
    }
}

impl Resources {
    fn take(&mut self, found: Option<(Guest, bool)>) {
        match found {
            Some((guest, false)) => self.guests.push(guest),
            Some((template, true)) => {
                self.templates.insert(template.id, template.node);
            }
            None => self.unread += 1,
        }
    }

    /// The dependency for the list as a whole.
    pub(crate) fn dependency(&self) -> Dependency {
        let storages: BTreeSet<(&str, &str)> = self.storages.iter().map(Storage::identity).collect();
        let all = [(self.nodes.len(), "node"), (self.guests.len(), "guest"), (storages.len(), "storage")];
        let [nodes, guests, storages] = all.map(|(number, what)| count(number, what));
        Dependency::ok("resources")
            .with_kind("pve-resources")
            .with_description(format!("{nodes}, {guests}, {storages}"))
    }

    /// The node of a guest or template.
    pub(crate) fn node_of(&self, id: u64) -> Option<&String> {
        let guest = self.guests.iter().find(|guest| guest.id == id).map(|guest| &guest.node);
        guest.or_else(|| self.templates.get(&id))
    }
}

impl Resource {
    /// The name for diagnostics.
    fn shown(&self) -> String {
        self.id.get().map_or_else(|| "an entry without id".to_owned(), |Text(id)| id.clone())
    }

    fn text(&self, field: &Field<Text>, what: &str, diagnostics: &mut Diagnostics) -> Option<String> {
        diagnostics.text(field, || format!("{what} of {}", self.shown())).map(str::to_owned)
    }

    fn number(&self, field: &Field<Number>, what: &str, diagnostics: &mut Diagnostics) -> Option<f64> {
        diagnostics.number(field, || format!("{what} of {}", self.shown()))
    }

    fn node(self, diagnostics: &mut Diagnostics) -> Option<Node> {
        let Some(name) = self.name_of_node(diagnostics) else {
            diagnostics.add(|| format!("{} names no node: it is skipped", self.shown()));
            return None;
        };
        let cpu = self.number(&self.cpu, "cpu", diagnostics);
        let (mem, maxmem) =
            (self.number(&self.mem, "mem", diagnostics), self.number(&self.maxmem, "maxmem", diagnostics));
        let (disk, maxdisk) =
            (self.number(&self.disk, "disk", diagnostics), self.number(&self.maxdisk, "maxdisk", diagnostics));
        let host = Host {
            cpu: Host::cpu(cpu),
            memory: share(mem, maxmem, &format!("memory of {}", self.shown()), diagnostics),
            root: share(disk, maxdisk, &format!("root file system of {}", self.shown()), diagnostics),
        };
        Some(Node {
            status: self.text(&self.status, "status", diagnostics).unwrap_or_default(),
            ha: self.text(&self.hastate, "hastate", diagnostics),
            // A field that cannot be read is still a report.
            speaks: [&self.mem, &self.cpu, &self.maxcpu].iter().any(|field| **field != Field::Absent),
            host,
            name,
        })
    }

    /// Returns the name of a node. Older versions have it in the id only.
    fn name_of_node(&self, diagnostics: &mut Diagnostics) -> Option<String> {
        let named = self.text(&self.node, "node", diagnostics);
        named.or_else(|| {
            let Text(id) = self.id.get()?;
            Some(id.strip_prefix("node/").unwrap_or(id).to_owned())
        })
    }

    /// Returns a guest, and whether it is a template.
    fn guest(self, container: bool, diagnostics: &mut Diagnostics) -> Option<(Guest, bool)> {
        let template = diagnostics.flag(&self.template, || format!("template of {}", self.shown())) == Some(true);
        let id = self.number(&self.vmid, "vmid", diagnostics).or_else(|| {
            let Text(id) = self.id.get()?;
            id.rsplit('/').next()?.parse().ok()
        });
        let (Some(id), Some(node)) = (id, self.text(&self.node, "node", diagnostics)) else {
            diagnostics.add(|| format!("{} has no number or no node: it is skipped", self.shown()));
            return None;
        };
        let tags = self.text(&self.tags, "tags", diagnostics).unwrap_or_default();
        let root = container.then(|| {
            let (disk, maxdisk) =
                (self.number(&self.disk, "disk", diagnostics), self.number(&self.maxdisk, "maxdisk", diagnostics));
            share(disk, maxdisk, &format!("root file system of {}", self.shown()), diagnostics)
        });
        let guest = Guest {
            id: id as u64,
            container,
            name: self.text(&self.name, "name", diagnostics),
            node,
            status: self.text(&self.status, "status", diagnostics).unwrap_or_else(|| "unknown".to_owned()),
            lock: self.text(&self.lock, "lock", diagnostics),
            tags: tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            pool: self.text(&self.pool, "pool", diagnostics),
            ha: self.text(&self.hastate, "hastate", diagnostics),
            root: root.flatten(),
        };
        Some((guest, template))
    }

    fn storage(self, diagnostics: &mut Diagnostics) -> Option<Storage> {
        let (Some(name), Some(node)) =
            (self.text(&self.storage, "storage", diagnostics), self.text(&self.node, "node", diagnostics))
        else {
            diagnostics.add(|| format!("{} has no name or no node: it is skipped", self.shown()));
            return None;
        };
        let status = self.text(&self.status, "status", diagnostics);
        let (used, total) =
            (self.number(&self.disk, "disk", diagnostics), self.number(&self.maxdisk, "maxdisk", diagnostics));
        Some(Storage {
            name,
            node,
            shared: diagnostics.flag(&self.shared, || format!("shared of {}", self.shown())).unwrap_or_default(),
            plugin: self.text(&self.plugintype, "plugintype", diagnostics),
            // Without a status, a size means that the node reports the storage.
            available: status.map_or(total.is_some(), |status| status == "available"),
            used,
            total,
        })
    }
}

impl Storage {
    /// The name, and the node if the storage is not shared.
    fn identity(&self) -> (&str, &str) {
        (&self.name, if self.shared { "" } else { &self.node })
    }
}

impl Guest {
    /// All names that match a guest in the settings.
    pub(crate) fn names(&self) -> Vec<String> {
        let tags = self.tags.iter().map(|tag| format!("tag:{tag}"));
        let pool = self.pool.iter().map(|pool| format!("pool:{pool}"));
        [self.id.to_string()].into_iter().chain(self.name.clone()).chain(tags).chain(pool).collect()
    }

    /// The name of the dependency: `guest/100`.
    pub(crate) fn dependency(&self) -> String {
        format!("guest/{}", self.id)
    }

    /// The name for a list in a message.
    pub(crate) fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| self.id.to_string(), |name| format!("{} ({name})", self.id))
    }
}

/// Whether any of these names is included and none is excluded.
pub(crate) fn wanted(names: &[String], include: &proxmox::Patterns, exclude: &proxmox::Patterns) -> bool {
    let names = || names.iter().map(String::as_str);
    include.match_any(names()) && !exclude.match_any(names())
}
