//! `/cluster/resources`: nodes, guests and storages.
//!
//! The cluster forgets after five minutes what a node reports about itself. Then a guest has only ID, node and type,
//! and the status `unknown`; a storage has no size; a node has no usage.

use polliwog_sdk::Dependency;
use polliwog_sdk::lenient::{BorrowedText, Field, Flag, Lazy, Number};
use proxmox::SortedMap;
use proxmox::{Diagnostics, Host, Selection, count, share};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Whether a node, a guest or a storage in a state hides nothing if it has no name. A guest may be off on purpose.
fn works(kind: &str, status: &str) -> bool {
    match kind {
        "node" => status == "online",
        "storage" => status == "available",
        _ => matches!(status, "running" | "stopped"),
    }
}

/// One entry of any type. Unknown types and fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resource<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub id: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub node: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub name: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub status: Field<BorrowedText<'a>>,
    vmid: Field<Number>,
    pub template: Field<Flag>,
    #[serde(borrow)]
    pub lock: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub tags: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pool: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub hastate: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub storage: Field<BorrowedText<'a>>,
    pub shared: Field<Flag>,
    #[serde(borrow)]
    pub plugintype: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub content: Field<BorrowedText<'a>>,
    #[serde(borrow)]
    pub cpu: Lazy<'a, Number>,
    #[serde(borrow)]
    pub maxcpu: Lazy<'a, Number>,
    #[serde(borrow)]
    pub mem: Lazy<'a, Number>,
    #[serde(borrow)]
    pub maxmem: Lazy<'a, Number>,
    #[serde(borrow)]
    pub disk: Lazy<'a, Number>,
    #[serde(borrow)]
    pub maxdisk: Lazy<'a, Number>,
    #[serde(borrow)]
    pub netin: Lazy<'a, Number>,
    #[serde(borrow)]
    pub netout: Lazy<'a, Number>,
    #[serde(borrow)]
    pub diskread: Lazy<'a, Number>,
    #[serde(borrow)]
    pub diskwrite: Lazy<'a, Number>,
    #[serde(borrow)]
    pub uptime: Lazy<'a, Number>,
}

/// The resources that are checked.
#[derive(Debug, Default)]
pub(crate) struct Resources<'a> {
    pub nodes: Vec<Node>,
    pub guests: Vec<Guest<'a>>,
    pub storages: Vec<Storage>,
    /// The node of each template, by ID.
    pub templates: SortedMap<u64, String>,
    /// The number of guests that could not be read.
    pub unread: usize,
    /// The number of entries without a name that did not say that they work.
    hidden: usize,
    /// Fields that could not be read.
    pub diagnostics: Diagnostics,
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
pub(crate) struct Guest<'a> {
    pub id: u64,
    pub container: bool,
    pub name: Option<Cow<'a, str>>,
    pub node: Cow<'a, str>,
    pub status: Cow<'a, str>,
    pub lock: Option<Cow<'a, str>>,
    /// Separated by semicolons, commas or spaces.
    pub tags: Cow<'a, str>,
    pub pool: Option<Cow<'a, str>>,
    pub ha: Option<Cow<'a, str>>,
    /// Usage of the root file system in percent; containers only.
    pub root: Option<f64>,
    /// Whether its tags or its pool could not be read.
    pub unread: bool,
}

impl Guest<'_> {
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

impl Storage {
    /// The name of its dependency.
    pub(crate) fn dependency(&self) -> String {
        let Self { name, node, shared, .. } = self;
        if *shared { format!("storage/{name}") } else { format!("storage/{name}@{node}") }
    }
}

impl<'a> Extend<Resource<'a>> for Resources<'a> {
    fn extend<I: IntoIterator<Item = Resource<'a>>>(&mut self, entries: I) {
        entries.into_iter().for_each(|entry| self.add(entry));
    }
}

impl<'a> Resources<'a> {
    fn add(&mut self, entry: Resource<'a>) {
        let diagnostics = &mut self.diagnostics;
        let kind = entry.kind.get().map(|BorrowedText(kind)| kind.clone());
        let status = entry.status.get().map(|BorrowedText(status)| status.clone());
        let is_known = match kind.as_deref() {
            Some("node") => {
                let node = entry.node(diagnostics);
                let is_known = node.is_some();
                self.nodes.extend(node);
                is_known
            }
            Some(kind @ ("qemu" | "lxc")) => {
                let is_container = kind == "lxc";
                let found = entry.guest(is_container, diagnostics);
                let is_known = found.is_some();
                self.take(found);
                is_known
            }
            Some("storage") => {
                let storage = entry.storage(diagnostics);
                let is_known = storage.is_some();
                self.storages.extend(storage);
                is_known
            }
            _ => true,
        };
        let works = || status.is_some_and(|status| works(kind.as_deref().unwrap_or_default(), &status));
        self.hidden += usize::from(!is_known && !works());
    }

    fn take(&mut self, found: Option<(Guest<'a>, bool)>) {
        match found {
            Some((guest, false)) => self.guests.push(guest),
            Some((template, true)) => {
                self.templates.insert(template.id, template.node.into_owned());
            }
            None => self.unread += 1,
        }
    }

    /// The dependency for the list as a whole.
    pub(crate) fn dependency(&self) -> Dependency {
        let storages: BTreeSet<(&str, &str)> = self.storages.iter().map(Storage::identity).collect();
        let all = [(self.nodes.len(), "node"), (self.guests.len(), "guest"), (storages.len(), "storage")];
        let [nodes, guests, storages] = all.map(|(number, what)| count(number, what));
        let dependency = match self.hidden {
            0 => Dependency::ok("resources"),
            hidden => Dependency::unknown(
                "resources",
                format!("{} without a name cannot be checked", count(hidden, "resource")),
            ),
        };
        dependency.with_kind("pve-resources").with_description(format!("{nodes}, {guests}, {storages}"))
    }

    /// The node of a guest or template.
    pub(crate) fn node_of(&self, id: u64) -> Option<&str> {
        let guest = self.guests.iter().find(|guest| guest.id == id).map(|guest| &*guest.node);
        guest.or_else(|| self.templates.get(&id).map(String::as_str))
    }
}

impl<'a> Resource<'a> {
    /// The name for diagnostics.
    fn shown(&self) -> String {
        self.id.get().map_or_else(|| "an entry without id".to_owned(), |BorrowedText(id)| id.to_string())
    }

    fn text(&self, field: &Field<BorrowedText<'a>>, what: &str, diagnostics: &mut Diagnostics) -> Option<Cow<'a, str>> {
        diagnostics.text(field, || format!("{what} of {}", self.shown())).map(|BorrowedText(text)| text.clone())
    }

    fn number(&self, field: Lazy<'a, Number>, what: &str, diagnostics: &mut Diagnostics) -> Option<f64> {
        diagnostics.number(&field.read(), || format!("{what} of {}", self.shown()))
    }

    fn node(self, diagnostics: &mut Diagnostics) -> Option<Node> {
        let Some(name) = self.name_of_node(diagnostics) else {
            diagnostics.add(|| format!("{} names no node: it is skipped", self.shown()));
            return None;
        };
        let cpu = self.number(self.cpu, "cpu", diagnostics);
        let (mem, maxmem) =
            (self.number(self.mem, "mem", diagnostics), self.number(self.maxmem, "maxmem", diagnostics));
        let (disk, maxdisk) =
            (self.number(self.disk, "disk", diagnostics), self.number(self.maxdisk, "maxdisk", diagnostics));
        let host = Host {
            cpu: Host::cpu(cpu),
            memory: share(mem, maxmem, || format!("memory of {}", self.shown()), diagnostics),
            root: share(disk, maxdisk, || format!("root file system of {}", self.shown()), diagnostics),
        };
        Some(Node {
            status: self.text(&self.status, "status", diagnostics).unwrap_or_default().into_owned(),
            ha: self.text(&self.hastate, "hastate", diagnostics).map(Cow::into_owned),
            // A field that cannot be read is still a report.
            speaks: [self.mem, self.cpu, self.maxcpu].iter().any(|field| field.read() != Field::Absent),
            host,
            name,
        })
    }

    /// Returns the name of a node. Older versions have it in the id only.
    fn name_of_node(&self, diagnostics: &mut Diagnostics) -> Option<String> {
        let named = self.text(&self.node, "node", diagnostics);
        named.map(Cow::into_owned).or_else(|| {
            let BorrowedText(id) = self.id.get()?;
            Some(id.strip_prefix("node/").unwrap_or(id).to_owned())
        })
    }

    /// Returns a guest, and whether it is a template.
    fn guest(self, container: bool, diagnostics: &mut Diagnostics) -> Option<(Guest<'a>, bool)> {
        let template = diagnostics.flag(&self.template, || format!("template of {}", self.shown())) == Some(true);
        let id = diagnostics.number(&self.vmid, || format!("vmid of {}", self.shown())).or_else(|| {
            let BorrowedText(id) = self.id.get()?;
            id.rsplit('/').next()?.parse().ok()
        });
        let (Some(id), Some(node)) = (id, self.text(&self.node, "node", diagnostics)) else {
            diagnostics.add(|| format!("{} has no number or no node: it is skipped", self.shown()));
            return None;
        };
        let root = container.then(|| {
            let (disk, maxdisk) =
                (self.number(self.disk, "disk", diagnostics), self.number(self.maxdisk, "maxdisk", diagnostics));
            share(disk, maxdisk, || format!("root file system of {}", self.shown()), diagnostics)
        });
        let guest = Guest {
            id: id as u64,
            container,
            name: self.text(&self.name, "name", diagnostics),
            node,
            status: self.text(&self.status, "status", diagnostics).unwrap_or(Cow::Borrowed("unknown")),
            lock: self.text(&self.lock, "lock", diagnostics),
            tags: self.text(&self.tags, "tags", diagnostics).unwrap_or_default(),
            pool: self.text(&self.pool, "pool", diagnostics),
            ha: self.text(&self.hastate, "hastate", diagnostics),
            root: root.flatten(),
            unread: [&self.tags, &self.pool].iter().any(|field| matches!(field, Field::Odd(_))),
        };
        Some((guest, template))
    }

    fn storage(self, diagnostics: &mut Diagnostics) -> Option<Storage> {
        // The id is `storage/NODE/NAME`.
        let of_id = |place: usize| {
            let BorrowedText(id) = self.id.get()?;
            let part = id.split('/').nth(place).filter(|part| !part.is_empty())?;
            Some(Cow::<str>::Owned(part.to_owned()))
        };
        let name = self.text(&self.storage, "storage", diagnostics).or_else(|| of_id(2));
        let node = self.text(&self.node, "node", diagnostics).or_else(|| of_id(1));
        let (Some(name), Some(node)) = (name, node) else {
            diagnostics.add(|| format!("{} has no name or no node: it is skipped", self.shown()));
            return None;
        };
        let status = self.text(&self.status, "status", diagnostics);
        let (used, total) =
            (self.number(self.disk, "disk", diagnostics), self.number(self.maxdisk, "maxdisk", diagnostics));
        Some(Storage {
            name: name.into_owned(),
            node: node.into_owned(),
            shared: diagnostics.flag(&self.shared, || format!("shared of {}", self.shown())).unwrap_or_default(),
            plugin: self.text(&self.plugintype, "plugintype", diagnostics).map(Cow::into_owned),
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

impl Guest<'_> {
    /// All names that match a guest in the settings.
    pub(crate) fn names(&self) -> Names {
        let mut names = Names::default();
        names.fill(self);
        names
    }

    /// Whether the settings select it. A node that has been silent for a while omits the names of its guests.
    pub(crate) fn selection(&self, names: &Names, settings: &crate::settings::Guests) -> Selection {
        let unknown: &[&str] = match (&self.name, self.unread) {
            (None, _) => &[""],
            (_, true) => &["tag:", "pool:"],
            _ => &[],
        };
        Selection::of(|| names.iter(), (&settings.include, &settings.exclude), unknown)
    }

    /// Whether any pattern matches any of its names.
    pub(crate) fn is_in(&self, patterns: &proxmox::Patterns) -> bool {
        patterns.for_every_name().unwrap_or_else(|| patterns.match_any(self.names().iter()))
    }

    /// The tags.
    pub(crate) fn tags(&self) -> impl Iterator<Item = &str> {
        self.tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty())
    }

    /// Replaces the tags.
    pub(crate) fn set_tags(&mut self, tags: &[String]) {
        self.tags = Cow::Owned(tags.join(";"));
    }

    /// The name of the dependency: `guest/100`.
    pub(crate) fn dependency(&self) -> String {
        // Thousands of guests have one: `format!` takes several times as long.
        ["guest/", itoa::Buffer::new().format(self.id)].concat()
    }

    /// The name for a list in a message.
    pub(crate) fn shown(&self) -> String {
        self.name.as_ref().map_or_else(|| self.id.to_string(), |name| format!("{} ({name})", self.id))
    }
}

/// Names, one after the other in one text: there may be thousands of guests.
#[derive(Default)]
pub(crate) struct Names {
    text: String,
    /// The end of each name in the text.
    ends: Vec<usize>,
}

impl Names {
    /// Replaces the names by those of another guest.
    pub(crate) fn fill(&mut self, guest: &Guest<'_>) {
        self.text.clear();
        self.ends.clear();
        self.add("", itoa::Buffer::new().format(guest.id));
        self.add_all("", guest.name.as_deref());
        self.add_all("tag:", guest.tags());
        self.add_all("pool:", guest.pool.as_deref());
    }

    fn add(&mut self, prefix: &str, name: &str) {
        self.text.push_str(prefix);
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    fn add_all<'a>(&mut self, prefix: &str, names: impl IntoIterator<Item = &'a str>) {
        names.into_iter().for_each(|name| self.add(prefix, name));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).filter_map(|(start, end)| self.text.get(start..*end))
    }
}

/// Whether any of these names is included and none is excluded.
pub(crate) fn wanted<'a, I: Iterator<Item = &'a str>>(
    names: impl Fn() -> I,
    include: &proxmox::Patterns,
    exclude: &proxmox::Patterns,
) -> bool {
    include.match_any(names()) && !exclude.match_any(names())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polliwog_sdk::Status;

    #[test]
    fn a_guest_has_its_id_name_tags_and_pool_as_names() {
        let body = r#"[{"type": "qemu", "vmid": 100, "node": "a", "name": "web", "tags": "prod;;x, y", "pool": "p"},
                       {"type": "lxc", "id": "lxc/7", "node": "a"}]"#;
        let mut resources = Resources::default();
        resources.extend(serde_json::from_str::<Vec<Resource<'_>>>(body).unwrap());
        let names = |guest: &Guest<'_>| guest.names().iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&resources.guests[0]), ["100", "web", "tag:prod", "tag:x", "tag:y", "pool:p"]);
        assert_eq!(names(&resources.guests[1]), ["7"]);
    }

    #[test]
    fn a_resource_without_a_name_that_does_not_work_makes_the_list_unknown() {
        let cases = [
            (r#"{"type":"node","status":"offline"}"#, true),
            (r#"{"type":"node","status":"online"}"#, false),
            (r#"{"type":"node","status":"offline","id":"node/a"}"#, false),
            (r#"{"type":"node"}"#, true),
            (r#"{"type":"node","status":"stopped"}"#, true),
            (r#"{"type":"qemu","status":"running"}"#, false),
            (r#"{"type":"qemu","status":"stopped","vmid":"x"}"#, false),
            (r#"{"type":"lxc","status":"paused","vmid":7}"#, true),
            (r#"{"type":"storage","status":"unknown","node":"a"}"#, true),
            (r#"{"type":"storage","status":"available"}"#, false),
            (r#"{"type":"sdn","status":"broken"}"#, false),
        ];
        for (entry, is_unknown) in cases {
            let mut resources = Resources::default();
            resources.extend([serde_json::from_str::<Resource<'_>>(entry).unwrap()]);
            let dependency = resources.dependency();
            assert_eq!(dependency.status == Status::Unknown, is_unknown, "{entry}: {dependency:?}");
        }
    }
}
