//! Storages.
//!
//! The cluster's list has no size of a storage if its node does not report it: the storage is gone, or the node reports
//! nothing at all. Then the node's list is requested.

use crate::context::PollContext;
use crate::nodes::{Nodes, State, answers, back_off, backing_off, on_node, reports};
use crate::resources::{Storage, wanted};
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{Evaluation, bytes, evaluated, percent};
use serde::Deserialize;
use std::collections::BTreeSet;

/// One entry of `/nodes/N/storage`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    storage: Field<Text>,
    enabled: Field<Flag>,
    active: Field<Flag>,
    used: Field<Number>,
    total: Field<Number>,
}

/// The state of a storage on one node.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// It is available. Used and total bytes, if they are known.
    Active(Option<(f64, f64)>),
    Inactive,
    /// The node does not report it, for this reason.
    Unknown(String),
}

/// The states of a storage, by node.
type ByNode = SortedMap<String, Seen>;

pub(crate) fn report(context: &mut PollContext, storages: &[Storage], nodes: &Nodes) {
    let settings = &context.settings.storages;
    let named = |storage: &&Storage| {
        let names = [storage.name.clone(), format!("{}@{}", storage.name, storage.node)];
        let of_node = storage.shared || reports(nodes, &storage.node);
        of_node && wanted(|| names.iter().map(String::as_str), &settings.include, &settings.exclude)
    };
    let all = storages.len();
    let (storages, others): (Vec<&Storage>, Vec<&Storage>) = storages.iter().partition(named);
    // A shared storage is one dependency for all nodes.
    let included: BTreeSet<String> = match others.is_empty() {
        true => BTreeSet::new(),
        false => storages.iter().map(|storage| storage.dependency()).collect(),
    };
    let excluded = others.into_iter().map(Storage::dependency).filter(|name| !included.contains(name));
    excluded.for_each(|name| context.report.remove(name));
    if storages.is_empty() && all > 0 && !settings.exclude.is_all() {
        context.warn_of_api("no storage is checked: see storages.include and storages.exclude in the settings");
    }
    let asked = ask(context, &storages, nodes);
    let mut shared: SortedMap<&str, ByNode> = SortedMap::new();
    for storage in storages {
        let Some(seen) = seen(storage, nodes, &asked) else { continue };
        if storage.shared {
            let by_node = shared.get_or_default(&storage.name);
            let list = (format_args!("storage/{}", storage.name), &mut context.diagnostics);
            by_node.insert_worst(storage.node.clone(), seen, rank, list);
        } else {
            let dependency = one(context, storage.dependency(), &seen, &storage.node);
            context.add(on_node(titled(dependency, storage), &storage.node));
        }
    }
    for (name, by_node) in shared {
        let dependency = of_all(context, name, &by_node);
        context.add(dependency);
    }
}

fn titled(dependency: Dependency, storage: &Storage) -> Dependency {
    match &storage.plugin {
        Some(plugin) => dependency.with_title(format!("{} on {} ({plugin})", storage.name, storage.node)),
        None => dependency.with_title(format!("{} on {}", storage.name, storage.node)),
    }
}

/// The storages that a node reports itself.
struct Listed {
    /// `None` is a storage that is disabled there.
    named: SortedMap<String, Option<Seen>>,
    /// Whether there are others, without a name.
    has_nameless: bool,
}

/// The storages of each node, or why it could not be asked.
type Asked = SortedMap<String, Result<Listed, String>>;

fn ask(context: &mut PollContext, storages: &[&Storage], nodes: &Nodes) -> Asked {
    let doubtful: BTreeSet<&str> =
        storages.iter().filter(|storage| !storage.available).map(|storage| storage.node.as_str()).collect();
    let online = nodes.iter().filter(|(_, node)| node.state == State::Online).map(|(name, _)| name);
    let (asked, not): (Vec<&String>, Vec<&String>) =
        online.filter(|name| doubtful.contains(name.as_str())).partition(|name| answers(context, nodes, name));
    let replies = context.api.ask_all(asked.iter().map(|node| format!("/nodes/{node}/storage?enabled=1")).collect());
    let read = |(node, answer): (&&String, proxmox::Answer)| {
        let entries = answer.list::<Entry>(&mut context.diagnostics);
        crate::nodes::record_answer(context, node, &entries);
        let entries = entries.map_err(|error| error.message);
        if let Err(why) = &entries {
            // Another request would make it worse if a mount hangs.
            back_off(context, node, why);
        }
        let seen = entries.map(|entries| {
            let mut worst: SortedMap<String, Option<Seen>> = SortedMap::new();
            let mut has_nameless = false;
            for entry in &entries {
                let Some((name, seen)) = entry.seen(node, &mut context.diagnostics) else {
                    has_nameless = true;
                    continue;
                };
                worst.insert_worst(
                    name,
                    seen,
                    |seen| seen.as_ref().map(rank),
                    (format_args!("/nodes/{node}/storage"), &mut context.diagnostics),
                );
            }
            Listed { named: worst, has_nameless }
        });
        ((*node).clone(), seen)
    };
    let answered: Asked = asked.iter().zip(replies).map(read).collect();
    let why = |node: &String| Some((node.clone(), Err(backing_off(context, node)?)));
    answered.into_iter().chain(not.into_iter().filter_map(why)).collect()
}

/// How bad a state is: which state, then the usage in percent.
fn rank(seen: &Seen) -> (u8, f64) {
    match seen {
        Seen::Active(size) => (0, size.and_then(|(used, total)| percent(used, total)).unwrap_or_default()),
        Seen::Unknown(_) => (1, 0.0),
        Seen::Inactive => (2, 0.0),
    }
}

impl Entry {
    /// Returns the name and the state; the state is `None` if the storage is disabled.
    fn seen(&self, node: &str, diagnostics: &mut proxmox::Diagnostics) -> Option<(String, Option<Seen>)> {
        let Text(name) = self.storage.get()?;
        let shown = |what: &str| format!("{what} of storage {name} on {node}");
        if diagnostics.flag(&self.enabled, || shown("enabled")) == Some(false) {
            return Some((name.clone(), None));
        }
        let used = diagnostics.number(&self.used, || shown("used"));
        let total = diagnostics.number(&self.total, || shown("total"));
        let seen = match diagnostics.flag(&self.active, || shown("active")) {
            Some(true) => Seen::Active(used.zip(total)),
            Some(false) => Seen::Inactive,
            None => Seen::Unknown(format!("{node} does not report whether it is active")),
        };
        Some((name.clone(), Some(seen)))
    }
}

/// Returns the state of a storage on its node; `None` if it is disabled there.
fn seen(storage: &Storage, nodes: &Nodes, asked: &Asked) -> Option<Seen> {
    let node = &storage.node;
    if nodes.get(node).is_some_and(|node| node.state == State::Offline) {
        return Some(Seen::Unknown(format!("it cannot be checked: its node {node} is offline")));
    }
    if storage.available {
        return Some(Seen::Active(storage.used.zip(storage.total)));
    }
    match asked.get(node) {
        Some(Ok(listed)) => match listed.named.get(&storage.name) {
            None if listed.has_nameless => Some(Seen::Unknown(format!("{node} lists a storage without its name"))),
            // Those that are disabled are not listed.
            seen => seen.cloned().flatten(),
        },
        Some(Err(why)) => Some(Seen::Unknown(format!("{node} could not be asked: {why}"))),
        None => Some(Seen::Unknown(format!("{node} does not report it"))),
    }
}

fn one(context: &mut PollContext, name: String, seen: &Seen, node: &str) -> Dependency {
    match seen {
        Seen::Active(size) => full(context, name, *size),
        Seen::Inactive => {
            let why = format!(
                "{node} cannot reach it: check where it is mounted from, and the log with \"journalctl -u pvestatd\""
            );
            evaluated(name, "pve-storage", (Status::Critical, Some(why)))
        }
        Seen::Unknown(why) => evaluated(name, "pve-storage", (Status::Unknown, Some(why.clone()))),
    }
}

fn full(context: &mut PollContext, name: String, size: Option<(f64, f64)>) -> Dependency {
    if size == Some((0.0, 0.0)) {
        return evaluated(name, "pve-storage", (Status::Ok, None)).with_description("It reports no size");
    }
    let Some((used, total)) = size.filter(|(_, total)| *total > 0.0) else {
        let why = "it does not report its size".to_owned();
        return evaluated(name, "pve-storage", (Status::Unknown, Some(why)));
    };
    let Some(share) = percent(used, total) else {
        let why = format!("{used} of {total} bytes are used, which is impossible");
        return evaluated(name, "pve-storage", (Status::Unknown, Some(why)));
    };
    let Evaluation { status, limit, after } =
        context.hysteresis.evaluate(&name, context.settings.storages.usage(), share);
    let why = (status != Status::Ok).then(|| format!("more than {limit} % is used{after}: make room, or give it more"));
    evaluated(name, "pve-storage", (status, why)).with_description(format!("{share:.0} % of {} used", bytes(total)))
}

/// Evaluates a shared storage. Its size is the same on all nodes, and some of them may not reach it.
fn of_all(context: &mut PollContext, storage: &str, by_node: &ByNode) -> Dependency {
    let name = format!("storage/{storage}");
    // The nodes should agree about its size. A local folder that is said to be shared has several.
    let active = by_node.values().filter(|seen| matches!(seen, Seen::Active(_)));
    let active = active.reduce(|one, other| if rank(other) > rank(one) { other } else { one });
    let without: Vec<String> =
        by_node.iter().filter(|(_, seen)| **seen == Seen::Inactive).map(|(node, _)| node.clone()).collect();
    let Some(active) = active else {
        let (node, seen) = match without.first() {
            Some(node) => (proxmox::list(&without), by_node.get(node)),
            None => (String::new(), by_node.values().next()),
        };
        return one(context, name, seen.unwrap_or(&Seen::Inactive), &node);
    };
    let dependency = one(context, name, active, "");
    if without.is_empty() || dependency.status == Status::Critical {
        return dependency;
    }
    let why = format!("{} cannot reach it, others can: check the network and mounts there", proxmox::list(&without));
    Dependency { status: dependency.status.worse(Status::Warning), error_message: Some(why), ..dependency }
}
