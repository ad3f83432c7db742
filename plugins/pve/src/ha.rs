//! `/cluster/ha/status/current`: the quorum, the master, a resource manager for each node (LRM), and the services.
//!
//! The state of master and LRM is part of a text: `pve1 (active, Wed Nov 18 12:00:00 2026)`.

use crate::context::PollContext;
use crate::nodes::{Node, Nodes, on_node, reports};
use polliwog_sdk::lenient::{Field, Flag, Text};
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{Diagnostics, evaluated, item, worse};
use serde::Deserialize;
use std::time::Duration;

/// HA finds another node within seconds after the fence, if there is one. Seconds.
const RECOVERY_TAKES: f64 = 300.0;
/// How long the start of a service's recovery is remembered.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// One entry of any type. Unknown types are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    #[serde(rename = "type")]
    kind: Field<Text>,
    id: Field<Text>,
    sid: Field<Text>,
    node: Field<Text>,
    status: Field<Text>,
    state: Field<Text>,
    crm_state: Field<Text>,
    request_state: Field<Text>,
    quorate: Field<Flag>,
    #[serde(rename = "armed-state")]
    armed: Field<Text>,
}

impl Entry {
    /// The state of a service. Older versions report it in another field.
    fn state(&self) -> Option<&str> {
        self.state.get().or(self.crm_state.get()).map(|Text(state)| state.as_str())
    }
}

/// The role of HA for a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Service {
    /// The requested state: `started`, `stopped`, `disabled`, `ignored`.
    pub requested: Option<String>,
}

impl Service {
    /// Whether HA is to keep the guest running.
    pub(crate) fn wants_running(&self) -> bool {
        self.requested.as_deref().is_some_and(|state| matches!(state, "started" | "enabled"))
    }

    /// Whether the guest was stopped through HA.
    pub(crate) fn wants_stopped(&self) -> bool {
        self.requested.as_deref().is_some_and(|state| matches!(state, "stopped" | "disabled"))
    }
}

/// Services by the ID of the guest.
pub(crate) type Services = SortedMap<u64, Service>;

/// Reports the state of HA. Returns the service of each guest.
pub(crate) fn report(context: &mut PollContext, entries: &[Entry], nodes: &Nodes) -> Services {
    let (now, time) = (context.milliseconds(), context.seconds());
    let before = &mut context.memory.plugin.recovering;
    let (report, diagnostics) = (&mut context.report, &mut context.diagnostics);
    let of_type = |kind: &str| {
        let kind = kind.to_owned();
        entries.iter().filter(move |entry| entry.kind.get().is_some_and(|Text(found)| *found == kind))
    };
    let mut services = Services::new();
    let mut recovering: SortedMap<String, f64> = SortedMap::new();
    for (index, entry) in of_type("service").enumerate() {
        let sid = sid(entry).unwrap_or_else(|| item(index));
        if let Some(id) = sid.split(':').nth(1).and_then(|id| id.parse().ok()) {
            let requested = entry.request_state.get().map(|Text(state)| state.clone());
            // One that should run is missed if it does not.
            let list = ("/cluster/ha/status/current", &mut *diagnostics);
            services.insert_worst(id, Service { requested }, Service::wants_running, list);
        }
        if context.settings.ha.exclude.match_any([sid.as_str()]) {
            report.remove(format!("ha/service/{sid}"));
            continue;
        }
        let since = (entry.state() == Some("recovery")).then(|| before.get(&sid, now).copied().unwrap_or(time));
        report.dependencies.push(service(&sid, entry, since.map(|since| time - since), diagnostics));
        recovering.extend(since.map(|since| (sid, since)));
    }
    before.retain(|sid| recovering.contains_key(sid));
    recovering.iter().for_each(|(sid, since)| before.renew(sid, *since, now, REMEMBERED));
    for (index, entry) in of_type("lrm").enumerate() {
        // The id is `lrm:NODE`.
        let of_id = || entry.id.get().and_then(|Text(id)| id.strip_prefix("lrm:").map(str::to_owned));
        let node = entry.node.get().map(|Text(node)| node.clone()).or_else(of_id);
        report.dependencies.extend(resource_manager(entry, &node.unwrap_or_else(|| item(index)), nodes));
    }
    let armed = of_type("fencing").filter_map(|entry| entry.armed.get()).map(|Text(armed)| armed.as_str());
    let disarmed = armed.into_iter().find(|armed| matches!(*armed, "disarming" | "disarmed"));
    let (quorums, masters) = (of_type("quorum").collect::<Vec<_>>(), of_type("master").collect::<Vec<_>>());
    for (entries, what) in [(&quorums, "the quorum"), (&masters, "the master")] {
        if entries.len() > 1 {
            diagnostics.repeated("/cluster/ha/status/current", what);
        }
    }
    report.dependencies.extend(itself(&quorums, &masters, !services.is_empty(), disarmed));
    services
}

/// Evaluates HA as a whole. If HA manages nothing, it is skipped. Of several entries the worst counts.
fn itself(quorums: &[&Entry], masters: &[&Entry], managed: bool, disarmed: Option<&str>) -> Option<Dependency> {
    if !managed && masters.is_empty() {
        let skipped = || Dependency::skipped("ha").with_kind("pve-ha").with_description("HA manages nothing");
        return (!quorums.is_empty()).then(skipped);
    }
    let quorum = quorums.iter().map(|entry| match &entry.quorate {
        Field::Is(Flag(true)) => (Status::Ok, None),
        Field::Is(Flag(false)) => {
            let why = "HA has no quorum: it moves and restarts nothing until more nodes are back".to_owned();
            (Status::Critical, Some(why))
        }
        Field::Absent | Field::Odd(_) => (Status::Unknown, Some("HA does not report whether it has quorum".to_owned())),
    });
    let disarmed = disarmed.map(|armed| {
        let why = format!(
            "HA is {armed}: it restarts nothing when a node fails, until \"ha-manager crm-command arm-ha\" is run"
        );
        (Status::Warning, Some(why))
    });
    // Disarmed on purpose, it has no master.
    let is_disarmed = disarmed.is_some();
    let master = masters.iter().filter(|_| !is_disarmed).map(|master| match &master.status {
        Field::Is(Text(text)) => manager(text, "the HA master"),
        Field::Absent | Field::Odd(_) => {
            (Status::Warning, Some("services are managed by HA, and its master does not report its state".to_owned()))
        }
    });
    let none = (masters.is_empty() && !is_disarmed)
        .then(|| (Status::Warning, Some("services are managed by HA, and there is no master yet".to_owned())));
    let verdict = quorum.chain(master).chain(none).chain(disarmed).fold((Status::Ok, None), worse);
    Some(evaluated("ha".to_owned(), "pve-ha", verdict))
}

fn resource_manager(entry: &Entry, node: &str, nodes: &Nodes) -> Option<Dependency> {
    if !reports(nodes, node) {
        return None;
    }
    if !nodes.is_empty() && !nodes.contains_key(node) && entry.node != Field::Absent {
        // The node was removed from the cluster, and HA remembers it for a while.
        return None;
    }
    let verdict = match entry.status.get() {
        // The node itself is critical then.
        _ if nodes.get(node).is_some_and(Node::is_offline) => {
            (Status::Unknown, Some(format!("it cannot be checked: its node {node} is offline")))
        }
        Some(Text(text)) => manager(text, &format!("the HA resource manager of {node}")),
        None => (Status::Unknown, Some(format!("the HA resource manager of {node} does not report its state"))),
    };
    Some(on_node(evaluated(format!("ha/lrm/{node}"), "pve-ha-lrm", verdict), node))
}

/// Evaluates the text of a master or LRM. The date in it changes at every poll and is ignored.
fn manager(text: &str, who: &str) -> (Status, Option<String>) {
    // The watchdog, which may be "active" as well, and the date follow the first comma.
    let inside = text.split_once('(').map_or(text, |(_, inside)| inside).to_lowercase();
    let state = inside.split([',', ')']).next().unwrap_or_default();
    let has = |what: &str| state.contains(what);
    if has("old timestamp") || has("dead") {
        let why = format!("{who} has not reported for more than 30 s: check its services pve-ha-crm and pve-ha-lrm");
        return (Status::Critical, Some(why));
    }
    if has("lost_agent_lock") {
        return (Status::Critical, Some(format!("{who} has lost its lock: its node may be fenced")));
    }
    if has("time drift") {
        return (Status::Warning, Some(format!("the clock of {who} is wrong: check its time synchronisation")));
    }
    if has("maintenance") {
        return (Status::Warning, Some(format!("{who} is in maintenance mode")));
    }
    if has("disarm") {
        return (Status::Warning, Some(format!("{who} is disarmed")));
    }
    if has("restart mode") || has("shutdown mode") {
        return (Status::Warning, Some(format!("{who} stops its services: its node shuts down or restarts")));
    }
    if has("wait_for_agent_lock") {
        return (Status::Warning, Some(format!("{who} waits for its lock")));
    }
    if has("active") || has("idle") {
        return (Status::Ok, None);
    }
    let said: String = text.chars().take(80).collect();
    (Status::Unknown, Some(format!("{who} reports {said:?}, which this plugin does not know")))
}

/// `vm:100`: newer versions report it as `sid`, older ones in `id` as `service:vm:100` or `vm:100`.
fn sid(entry: &Entry) -> Option<String> {
    let Text(sid) = entry.sid.get().or(entry.id.get())?;
    Some(sid.strip_prefix("service:").unwrap_or(sid).to_owned())
}

/// `recovering` is how long HA has been looking for another node, in seconds.
fn service(sid: &str, entry: &Entry, recovering: Option<f64>, diagnostics: &mut Diagnostics) -> Dependency {
    if let Field::Odd(odd) = &entry.state {
        diagnostics.add(|| format!("state of HA service {sid} is {odd}, which is not a text: ignored"));
    }
    let (status, why) = evaluate(entry.state(), recovering.unwrap_or_default());
    // The command contains the name of the service.
    let why = why.map(|why| why.replace("SID", sid));
    let dependency = evaluated(format!("ha/service/{sid}"), "pve-ha-service", (status, why));
    match entry.node.get() {
        Some(Text(node)) => on_node(dependency, node),
        None => dependency,
    }
}

fn evaluate(state: Option<&str>, recovering: f64) -> (Status, Option<String>) {
    let Some(state) = state else {
        return (Status::Unknown, Some("HA does not report how the service is".to_owned()));
    };
    let because = |status, why: &str| (status, Some(format!("{state}: {why}")));
    match state {
        "started" | "stopped" | "disabled" | "ignored" | "ignore" | "deleting" => (Status::Ok, None),
        "queued"
        | "starting"
        | "stopping"
        | "request_stop"
        | "request_start"
        | "request_start_balance"
        | "migrate"
        | "relocate"
        | "freeze"
        | "clearing error flag" => (Status::Ok, None),
        "recovery" if recovering >= RECOVERY_TAKES => because(
            Status::Critical,
            "HA has found no node that can run it for more than five minutes: check its HA group or rules, and which \
             of its resources only the failed node has",
        ),
        "recovery" => because(Status::Warning, "HA is looking for a node that can run it"),
        "fence" => because(Status::Critical, "its node is being fenced"),
        "error" => because(
            Status::Critical,
            "HA has given up; when the cause is corrected, run \"ha-manager set SID --state disabled\" and then \
             started",
        ),
        "not found" => because(Status::Critical, "HA manages a guest that does not exist"),
        _ => because(Status::Unknown, "a state that this plugin does not know"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_evaluated_by_their_text() {
        for (text, expected) in [
            ("pve1 (active, Wed Nov 18 12:00:00 2026)", Status::Ok),
            ("pve2 (idle, Wed Nov 18 12:00:00 2026)", Status::Ok),
            ("pve2 (wait_for_agent_lock, Wed Nov 18 12:00:00 2026)", Status::Warning),
            ("pve2 (lost_agent_lock, Wed Nov 18 12:00:00 2026)", Status::Critical),
            ("pve2 (maintenance mode, Wed Nov 18 12:00:00 2026)", Status::Warning),
            ("pve2 (old timestamp - dead?, Wed Nov 18 12:00:00 2026)", Status::Critical),
            ("pve2 (detected time drift!, watchdog active, Wed Nov 18 12:00:00 2026)", Status::Warning),
            ("pve1 (active, watchdog active, Wed Nov 18 12:00:00 2026)", Status::Ok),
            ("pve1 (active, Wed Nov 18 12:00:00 2026) - static load CRS", Status::Ok),
            ("pve2 (disarm mode, watchdog released, Wed Nov 18 12:00:00 2026)", Status::Warning),
            ("pve2 (shutdown mode, watchdog standby, Wed Nov 18 12:00:00 2026)", Status::Warning),
            ("pve2 (unable to read lrm status)", Status::Unknown),
            ("pve2 (bewildered, Wed Nov 18 12:00:00 2026)", Status::Unknown),
            ("", Status::Unknown),
        ] {
            assert_eq!(manager(text, "x").0, expected, "{text}");
        }
        let why = manager("deadpve (active, Wed Nov 18 12:00:00 2026)", "x");
        assert_eq!(why, (Status::Ok, None), "a node's name is not its state");
    }

    #[test]
    fn services_are_evaluated_by_state() {
        for (state, expected) in [
            (Some("started"), Status::Ok),
            (Some("migrate"), Status::Ok),
            (Some("recovery"), Status::Warning),
            (Some("fence"), Status::Critical),
            (Some("error"), Status::Critical),
            (Some("not found"), Status::Critical),
            (Some("perplexed"), Status::Unknown),
            (None, Status::Unknown),
        ] {
            assert_eq!(evaluate(state, 0.0).0, expected, "{state:?}");
        }
        assert_eq!(evaluate(Some("recovery"), RECOVERY_TAKES - 1.0).0, Status::Warning);
        assert_eq!(evaluate(Some("recovery"), RECOVERY_TAKES).0, Status::Critical);
    }
}
