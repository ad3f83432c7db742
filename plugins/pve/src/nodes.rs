//! Nodes.

use crate::cluster::Cluster;
use crate::context::PollContext;
use crate::resources::{self, Resources, wanted};
use crate::settings;
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{Diagnostics, Error, ErrorClass, Host, Verdict, evaluated};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long it is remembered that a node could not be reached by the one that was asked. The next request to it comes
/// within minutes.
const UNREACHABLE: Duration = Duration::from_secs(15 * 60);
/// How long it is remembered since when a node has reported nothing about itself.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the last state of such a node is kept. Seconds.
const UNRESPONSIVE: f64 = 60.0;
/// How long a node that did not answer is not asked again: a mount may hang there, and a poll waits for it once at
/// most.
const BACKING_OFF: Duration = Duration::from_secs(60);

/// A node, as the cluster and as the node itself reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub state: State,
    pub itself: resources::Node,
    /// Whether the node and its own dependencies are reported.
    pub wanted: bool,
}

/// Whether the cluster sees a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    Online,
    Offline,
    #[default]
    Unknown,
}

/// All nodes by name.
pub(crate) type Nodes = SortedMap<String, Node>;

impl Node {
    /// How bad it is: its state, whether it reports nothing about itself, then its largest usage in percent.
    fn rank(&self) -> (u8, bool, f64) {
        let state = match self.state {
            State::Online => 0,
            State::Unknown => 1,
            State::Offline => 2,
        };
        let Host { cpu, memory, root } = self.itself.host;
        let usage = [cpu, memory, root].into_iter().flatten().fold(0.0, f64::max);
        (state, !self.itself.speaks, usage)
    }

    /// Whether the cluster does not see it.
    pub(crate) fn is_offline(&self) -> bool {
        self.state == State::Offline
    }
}

/// Whether a node is worth a separate request: the cluster sees it, and it answered the last request.
pub(crate) fn answers(context: &PollContext, nodes: &Nodes, name: &str) -> bool {
    nodes.get(name).is_some_and(|node| node.state == State::Online) && backing_off(context, name).is_none()
}

/// The reason why a node is not asked again yet; `None` if it may be asked.
pub(crate) fn backing_off(context: &PollContext, name: &str) -> Option<String> {
    context.memory.plugin.backing_off.get(name, context.milliseconds()).cloned()
}

/// Stops asking a node for a while.
pub(crate) fn back_off(context: &mut PollContext, name: &str, why: &str) {
    let now = context.milliseconds();
    context.memory.plugin.backing_off.set(name, why.to_owned(), now, BACKING_OFF);
}

/// Merges the nodes of both lists. The cluster's list contains which are online: it is seconds old, the other one
/// minutes.
pub(crate) fn merge(
    cluster: &Cluster,
    resources: Option<&Resources<'_>>,
    settings: &settings::Nodes,
    diagnostics: &mut Diagnostics,
) -> Nodes {
    let mut nodes = Nodes::new();
    for node in resources.iter().flat_map(|resources| &resources.nodes) {
        let state = match node.status.as_str() {
            "online" => State::Online,
            "offline" => State::Offline,
            _ => State::Unknown,
        };
        let node = Node { state, itself: node.clone(), wanted: false };
        nodes.insert_worst(node.itself.name.clone(), node, Node::rank, ("/cluster/resources", diagnostics));
    }
    for (name, online) in &cluster.online {
        let node = nodes.get_or_default(name.clone());
        node.itself.name.clone_from(name);
        if let Some(online) = online {
            node.state = if *online { State::Online } else { State::Offline };
        }
    }
    for (name, node) in &mut nodes {
        node.wanted = wanted(|| std::iter::once(name.as_str()), &settings.include, &settings.exclude);
    }
    nodes
}

/// Returns the nodes that have reported nothing about themselves for less than a minute, for example because they or
/// their cluster file system restart. They and their guests keep their last state.
pub(crate) fn unresponsive(context: &mut PollContext, nodes: &Nodes) -> BTreeSet<String> {
    let (now, time) = (context.milliseconds(), context.seconds());
    let before = &mut context.memory.plugin.silent;
    let silent = nodes.iter().filter(|(_, node)| node.state == State::Online && !node.itself.speaks);
    let since = |name: &String| before.get(name, now).copied().unwrap_or(time);
    let silent: SortedMap<String, f64> = silent.map(|(name, _)| (name.clone(), since(name))).collect();
    before.retain(|name| silent.contains_key(name));
    silent.iter().for_each(|(name, since)| before.renew(name, *since, now, REMEMBERED));
    if silent.is_empty() {
        return BTreeSet::new();
    }
    let known = context.reported_before("node/");
    let fresh = |(name, since): &(String, f64)| {
        context.seconds() - since < UNRESPONSIVE
            && known.iter().any(|known| known.strip_prefix("node/") == Some(name.as_str()))
    };
    silent.into_iter().filter(fresh).map(|(name, _)| name).collect()
}

/// Whether the dependencies of a node are reported: its resource manager, its storages, its last backups.
pub(crate) fn reports(nodes: &Nodes, name: &str) -> bool {
    nodes.get(name).is_none_or(|node| node.wanted)
}

/// The families of the dependencies of a node: a name in each of them ends with that of the node.
const OF_NODE: [&str; 8] = ["node", "ha/lrm", "certificate", "zfs", "disks", "updates", "subscription", "backup/node"];

/// Reports the nodes. `hidden` are nodes whose status the token may not read, which is reported elsewhere.
pub(crate) fn report(
    context: &mut PollContext,
    nodes: &Nodes,
    unresponsive: &BTreeSet<String>,
    hidden: &BTreeSet<String>,
) {
    if !nodes.is_empty() && !nodes.values().any(|node| node.wanted) && !context.settings.nodes.exclude.is_all() {
        context.warn_of_api("no node is checked: see nodes.include and nodes.exclude in the settings");
    }
    for (name, node) in nodes {
        if !node.wanted {
            OF_NODE.into_iter().for_each(|family| context.report.remove(format!("{family}/{name}")));
            continue;
        }
        let own = format!("node/{name}");
        if unresponsive.contains(name) && !hidden.contains(name) {
            context.report.keep(own);
            continue;
        }
        let verdict = presence(context, name, node, hidden)
            .unwrap_or_else(|| node.itself.host.evaluate(&context.settings.usage, &own, &mut context.hysteresis));
        let dependency = evaluated(own, "pve-node", verdict);
        context.add(match node.itself.host.description() {
            Some(description) => dependency.with_description(description),
            None => dependency,
        });
    }
}

/// Remembers whether a request that was passed on to a node got through.
pub(crate) fn record_answer<T>(context: &mut PollContext, node: &str, answer: &Result<T, Error>) {
    match answer {
        Err(error) if error.class == ErrorClass::NodeUnreachable => unreachable_because(context, node, &error.message),
        Err(_) => {}
        Ok(_) => context.memory.plugin.unreachable.remove(node),
    }
}

/// Remembers that no request gets through to a node.
pub(crate) fn unreachable_because(context: &mut PollContext, node: &str, why: &str) {
    let now = context.milliseconds();
    context.memory.plugin.unreachable.set(node, why.to_owned(), now, UNREACHABLE);
    back_off(context, node, why);
}

/// Returns the problem of a node other than its usage.
fn presence(context: &PollContext, name: &str, node: &Node, hidden: &BTreeSet<String>) -> Option<Verdict> {
    let ha = node.itself.ha.as_deref();
    let maintenance = ha == Some("maintenance");
    let (status, why) = match node.state {
        State::Offline if maintenance => (Status::Warning, format!("{name} is offline, in HA maintenance mode")),
        State::Offline => {
            (Status::Critical, format!("{name} is offline: the cluster does not see it; check its power and network"))
        }
        State::Unknown => (Status::Unknown, format!("it is not known whether {name} is online")),
        State::Online if maintenance => (Status::Warning, format!("{name} is in HA maintenance mode")),
        State::Online if matches!(ha, Some("fence" | "gone")) => (
            Status::Warning,
            format!("{name} is online, and its HA state is {:?}: see \"ha-manager status\"", ha.unwrap_or_default()),
        ),
        State::Online if !hidden.contains(name) && !node.itself.speaks => (
            Status::Warning,
            format!(
                "{name} does not report its state: check the node for a storage that hangs (\"pvesm status\"), and \
                 \"systemctl status pvestatd\""
            ),
        ),
        State::Online => match context.memory.plugin.unreachable.get(name, context.milliseconds()) {
            Some(why) => (Status::Warning, why.clone()),
            None => return None,
        },
    };
    Some((status, Some(why)))
}

/// Says that a dependency runs on a node.
pub(crate) fn on_node(dependency: Dependency, node: &str) -> Dependency {
    dependency.with_runs_on(["node/", node].concat())
}
