//! Nodes, and whether they have the same configuration and mail.
//!
//! The cluster's list has no status of a node: a node is fine if it has no `conn_error`, and synchronised if `insync`
//! is 1. The gateway waits for peers that are down before it returns the list. Then each node is requested separately.

use crate::context::{Memory, PollContext};
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::{Answer, Error, ErrorClass, Expiring, Host, Part, Space, evaluated, item, list};
use serde::Deserialize;
use std::time::Duration;

const PART: Part<'_> = ("cluster", &["node/"]);
/// How long each node is requested separately after the cluster's list did not come in time.
const APART: Duration = Duration::from_secs(5 * 60);

/// One entry of `/config/cluster/status`, or `/nodes/N/status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    name: Field<Text>,
    /// The name in `/nodes`.
    node: Field<Text>,
    conn_error: Field<Text>,
    insync: Field<Flag>,
    cpu: Field<Number>,
    memory: Space,
    rootfs: Space,
}

/// The nodes of a cluster, or the single gateway.
#[derive(Default)]
pub(crate) struct Nodes {
    /// Nodes that answer.
    pub answering: Vec<String>,
    /// Whether there is only one node.
    pub alone: bool,
}

/// The list of nodes that is requested at this poll, in addition to `/version`.
pub(crate) fn first_path(memory: &Memory) -> &'static str {
    match why_hung(memory) {
        // The cluster's list would wait for the same dead peers.
        Some(_) => "/nodes",
        None => "/config/cluster/status?list_single_node=1",
    }
}

fn why_hung(memory: &Memory) -> Option<&String> {
    memory.plugin.cluster_hung.as_ref()?.get(memory.now())
}

/// Reports each node. `answers` are the answers to [`first_path`].
pub(crate) fn report(context: &mut PollContext, answers: Vec<Answer>) -> Nodes {
    let Some(answer) = answers.into_iter().next() else { return Nodes::default() };
    let (cluster, unseen) = cluster(context, answer);
    let Some(nodes) = context.part(PART, cluster) else { return Nodes::default() };
    let mut answering = Vec::new();
    let mut apart = Vec::new();
    let mut unsaid = Vec::new();
    let unreached = nodes.iter().any(|node| node.conn_error != Field::Absent);
    for (index, node) in nodes.iter().enumerate() {
        let Some(Text(name)) = node.name.get().or(node.node.get()) else {
            context.add(Dependency::unknown(format!("node/{}", item(index)), "the node of the cluster has no name"));
            continue;
        };
        if let Some(dependency) = one(context, name, node) {
            context.add(dependency);
        }
        match (&node.conn_error, context.diagnostics.flag(&node.insync, || format!("insync of {name}"))) {
            (Field::Absent, Some(true)) => {}
            (Field::Absent, None) => unsaid.push(name.clone()),
            // No node is synchronised with one that cannot be reached.
            (Field::Absent, Some(false)) if unreached => {}
            _ => apart.push(name.clone()),
        }
        if node.conn_error == Field::Absent {
            answering.push(name.clone());
        } else {
            let all = [("certificate", true), ("subscription", context.settings.subscription)];
            for (sort, _) in all.into_iter().filter(|(_, is_checked)| *is_checked) {
                context.report.keep(format!("{sort}/{name}"));
                context.mark_unknown(format!("{sort}/{name}"), format!("it cannot be checked: see \"node/{name}\""));
            }
        }
    }
    let dependency = match unseen {
        Some(why) => {
            let why = format!("it is not known whether its nodes are synchronised: {why}");
            evaluated("cluster", "pmg-cluster", (Status::Unknown, Some(why)))
        }
        None => in_step(&nodes, &apart, &unsaid),
    };
    context.add(dependency);
    Nodes { answering, alone: nodes.len() == 1 }
}

/// Returns the nodes. If each node was requested separately, returns also why the cluster's list is missing.
fn cluster(context: &mut PollContext, answer: Answer) -> (Result<Vec<Node>, Error>, Option<String>) {
    if let Some(why) = why_hung(&context.memory).cloned() {
        return (by_themselves(context, answer), Some(why));
    }
    let error = match answer.list::<Node>(&mut context.diagnostics) {
        Ok(nodes) => return (Ok(nodes), None),
        Err(error) => error,
    };
    if error.permanent {
        context.warn_of_api(&error.message);
        return (Err(error), None);
    }
    let [names] = context.api.ask(["/nodes"]);
    let Ok(nodes) = by_themselves(context, names) else { return (Err(error), None) };
    if error.no_answer {
        let now = context.milliseconds();
        context.memory.plugin.cluster_hung = Some(Expiring::new(error.message.clone(), now, APART));
    }
    (Ok(nodes), Some(error.message))
}

/// Requests each node separately. `names` is the answer to `/nodes`.
fn by_themselves(context: &mut PollContext, names: Answer) -> Result<Vec<Node>, Error> {
    let names: Vec<Node> = names.list(&mut context.diagnostics)?;
    let names: Vec<String> = names.into_iter().filter_map(|node| Some(node.node.get()?.0.clone())).collect();
    let answers = context.api.ask_all(names.iter().map(|name| format!("/nodes/{name}/status")).collect());
    let alone = names.len() == 1;
    let node = |(name, answer): (String, Answer)| {
        let named = Field::Is(Text(name));
        match answer.read::<Node>() {
            Ok(node) => Node { name: named, ..node },
            // A single gateway that is overloaded is not unreachable.
            Err(error) if error.class == ErrorClass::NodeUnreachable && !alone => {
                Node { name: named, conn_error: Field::Is(Text(error.message)), ..Node::default() }
            }
            Err(error) => {
                context.diagnostics.add(|| error.message);
                Node { name: named, ..Node::default() }
            }
        }
    };
    Ok(names.into_iter().zip(answers).map(node).collect())
}

fn one(context: &mut PollContext, name: &str, node: &Node) -> Option<Dependency> {
    let own = format!("node/{name}");
    if let Field::Is(Text(error)) | Field::Odd(error) = &node.conn_error {
        let why = format!("{name} cannot be reached from the node that was asked: {}", error.trim());
        return Some(evaluated(own, "pmg-node", (Status::Critical, Some(why))));
    }
    let diagnostics = &mut context.diagnostics;
    let host = Host {
        cpu: Host::cpu(diagnostics.number(&node.cpu, || format!("cpu of {name}"))),
        memory: node.memory.percent(&format!("memory of {name}"), diagnostics),
        root: node.rootfs.percent(&format!("root file system of {name}"), diagnostics),
    };
    let verdict = if host == Host::default() {
        (Status::Unknown, Some(format!("{name} does not report its memory, root file system and CPU")))
    } else {
        host.evaluate(&context.settings.usage, &own, &mut context.hysteresis)
    };
    Some(Dependency { description: host.description(), ..evaluated(own, "pmg-node", verdict) })
}

fn in_step(nodes: &[Node], apart: &[String], unsaid: &[String]) -> Dependency {
    if nodes.len() == 1 && apart.is_empty() {
        return Dependency::skipped("cluster").with_kind("pmg-cluster").with_description("A standalone gateway");
    }
    let verdict = if !apart.is_empty() {
        let why = format!(
            "not synchronised with the others: {}; check \"pmgcm status\" there, and the services pmgmirror and \
             pmgtunnel",
            list(apart)
        );
        (Status::Warning, Some(why))
    } else if !unsaid.is_empty() || nodes.is_empty() {
        (Status::Unknown, Some(format!("it is not reported whether these are synchronised: {}", list(unsaid))))
    } else {
        (Status::Ok, None)
    };
    evaluated("cluster".to_owned(), "pmg-cluster", verdict)
        .with_description(format!("Cluster of {} nodes", nodes.len()))
}
