//! Virtual Environment with a cluster of `nodes-N` nodes and `guests-N` guests.
//!
//! The scenarios are in [`SCENARIOS`]. A request for `/pve` lists them.

mod estate;
mod node;
mod old;
mod resources;

use super::api::{ApiRequest, PVE_TOKEN, Reply, Scenario};
use estate::{DAY, Estate, refused, server_error, task};
use serde_json::{Value, json};

/// The names of the scenarios, with a description if the name is not sufficient.
pub(super) const SCENARIOS: &[(&str, &str)] = &[
    ("standalone", "one node without a cluster"),
    ("node-offline", "the last node"),
    ("node-unreachable", "the last node is online, but requests that are forwarded to it fail with 595"),
    ("node-slow", "requests that are forwarded to the last node fail with 596"),
    ("node-hangs", "requests that are forwarded to the last node are not answered"),
    ("no-quorum", "the cluster has lost quorum"),
    ("qdevice", "the cluster has a quorum device"),
    ("qdevice-lost", "the quorum device does not answer"),
    ("maintenance", "the last node is in maintenance mode"),
    ("mute", "nodes do not report their state"),
    ("no-rights", "everything is hidden"),
    ("no-audit", "403 for everything that needs Sys.Audit"),
    ("guest-stopped", "the first guest is stopped"),
    ("stopped-on-purpose", "a task stopped the guest five minutes ago"),
    ("stopped-long-ago", "only the node lists the task that stopped the guest"),
    ("guest-locked", "the first guest is stopped and locked by its backup"),
    ("guest-prelaunch", "the first guest is stopped while it is backed up"),
    ("guest-io-error", "the first guest has an I/O error"),
    ("storage-full", "97 % used"),
    ("storage-easing", "83 % used: below the limit, but above the hysteresis"),
    ("storage-gone", "a storage is missing on one node"),
    ("storage-lost", "a storage is missing on all nodes"),
    ("ha-error", ""),
    ("ha-recovery", ""),
    ("ha-dead", ""),
    ("ha-disarmed", ""),
    ("no-ha", ""),
    ("node-removed", "HA still lists a removed node"),
    ("container-full", ""),
    ("replication-failing", ""),
    ("replication-late", ""),
    ("replication-ahead", "its last success is in the future"),
    ("replication-never", ""),
    ("backup-failed", ""),
    ("backup-warnings", ""),
    ("backup-running", ""),
    ("backup-by-hand", "a manual backup failed a month ago"),
    ("backup-old", ""),
    ("backup-never", "no node has a backup task"),
    ("backups-off", ""),
    ("backup-off", "one of two jobs is disabled"),
    ("uncovered", ""),
    ("ceph", "the cluster has a healthy Ceph"),
    ("ceph-elsewhere", "the requested node does not run Ceph"),
    ("ceph-warn", ""),
    ("ceph-err", ""),
    ("certificate-ends", ""),
    ("certificate-ended", ""),
    ("ca-ends", "the certificate of the cluster's own CA expires"),
    ("subscribed", ""),
    ("subscription-expired", ""),
    ("zfs-degraded", ""),
    ("disk-failing", ""),
    ("disk-impending", "a SCSI disk reports an impending failure"),
    ("disk-worn", ""),
    ("disk-overworn", ""),
    ("updates", "updates are available, and the token may list them"),
    ("old", "Proxmox VE 6.2"),
    ("broken", "500 for every path of the cluster"),
];

/// Answers a request.
pub(super) fn answer(scenario: &Scenario, request: &ApiRequest<'_>) -> Reply {
    // This path needs no login (pve-access-control: PVE/API2/Domains.pm).
    if request.path == "/access/domains" {
        return Reply::Data(json!([{ "realm": "pam", "type": "pam" }, { "realm": "pve", "type": "pve" }]));
    }
    // pve-manager: PVE/HTTPServer.pm, auth_handler.
    match request.authorization.map(|value| value.strip_prefix("PVEAPIToken=")) {
        Some(Some(token)) if token == PVE_TOKEN => {}
        Some(Some(token)) if scenario.has("old") => return Reply::unauthorized(old::refusal(token)),
        Some(Some(_)) => return Reply::unauthorized("Authentication failed!"),
        _ => return Reply::unauthorized("No ticket"),
    }
    let estate = Estate { scenario, now: request.now };
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    let reply = estate.answer(&parts, request);
    if scenario.has("old") { old::aged(&parts, request.query, reply) } else { reply }
}

impl Estate<'_> {
    fn answer(&self, parts: &[&str], request: &ApiRequest<'_>) -> Reply {
        match *parts {
            ["version"] => Reply::Data(json!({ "version": "9.1.6", "release": "9.1", "repoid": "5a1b2c3d4e5f6071" })),
            ["access", "permissions"] => Reply::Data(self.permissions()),
            ["cluster", ..] if self.has("broken") => server_error("cluster not ready - no quorum?"),
            ["cluster", "status"] => self.audited(Estate::status),
            ["cluster", "resources"] => Reply::Data(self.resources()),
            ["cluster", "ha", "status", "current"] => self.audited(Estate::ha),
            ["cluster", "config", "qdevice"] => self.audited(Estate::qdevice),
            ["cluster", "replication"] => Reply::Data(self.jobs()),
            ["cluster", "tasks"] => Reply::Data(self.tasks()),
            ["cluster", "backup"] => self.audited(Estate::backup_jobs),
            // pve-manager: PVE/API2/Ceph checks for the node's own programs first (pve-storage: PVE/Ceph/Tools.pm).
            ["cluster", "ceph", "status"] if self.has("ceph-elsewhere") => {
                server_error("binary not installed: /usr/bin/ceph-mon")
            }
            ["cluster", "ceph", "status"] => self.ceph(),
            ["cluster", "backup-info", "not-backed-up"] => self.audited(Estate::uncovered),
            ["nodes"] => Reply::Data(self.fingerprints()),
            ["nodes", node, ref rest @ ..] => self.of_node(node, rest, request.query),
            _ => Reply::Error(501, format!("Method 'GET {}' not implemented", request.path), String::new()),
        }
    }

    /// Returns data that needs Sys.Audit on /.
    fn audited(&self, data: impl Fn(&Self) -> Value) -> Reply {
        if self.has("no-audit") || self.has("no-rights") {
            return refused("/", "Sys.Audit");
        }
        Reply::Data(data(self))
    }

    /// pve-access-control: PVE/API2/AccessControl.pm, permissions.
    fn permissions(&self) -> Value {
        if self.has("no-rights") {
            return json!({});
        }
        if self.has("no-audit") {
            let audit = json!({ "VM.Audit": 1, "Datastore.Audit": 1 });
            return json!({ "/": audit, "/vms": audit, "/storage": audit, "/nodes": audit });
        }
        let audit = json!({ "VM.Audit": 1, "Datastore.Audit": 1, "Pool.Audit": 1, "Sys.Audit": 1, "SDN.Audit": 1, "Mapping.Audit": 1 });
        json!({ "/": audit, "/vms": audit, "/storage": audit, "/nodes": audit })
    }

    /// pve-manager: PVE/API2/Cluster.pm, get_status. A standalone node has one entry, with nodeid 0.
    fn status(&self) -> Value {
        let node = |(index, name): (usize, String)| {
            let id = if self.has("standalone") { 0 } else { index + 1 };
            json!({
                "type": "node", "id": format!("node/{name}"), "name": name, "nodeid": id, "ip": format!("192.0.2.{}", index + 1),
                "local": u8::from(index == 0), "online": u8::from(!self.is_offline(&name)), "level": "",
            })
        };
        let nodes: Vec<Value> = self.nodes().enumerate().map(node).collect();
        if self.has("standalone") {
            return Value::from(nodes);
        }
        let quorate = u8::from(!self.has("no-quorum"));
        // The real order is random. Here the cluster is in the middle.
        let cluster = json!({
            "type": "cluster", "id": "cluster", "name": "lab", "version": 7, "nodes": self.count(), "quorate": quorate,
        });
        let (before, after) = nodes.split_at(nodes.len() / 2);
        Value::from([before, &[cluster], after].concat())
    }

    /// pve-manager: PVE/API2/Nodes.pm, index.
    fn fingerprints(&self) -> Value {
        let node = |(index, name): (usize, String)| {
            let fingerprint = vec![format!("{:02X}", 0xA0 + index % 64); 32].join(":");
            json!({ "node": name, "id": format!("node/{name}"), "type": "node", "status": "online", "ssl_fingerprint": fingerprint })
        };
        self.nodes().enumerate().map(node).collect()
    }

    /// pve-ha-manager: PVE/API2/HA/Status.pm.
    fn ha(&self) -> Value {
        let date = "Fri Nov 20 12:00:00 2026";
        let mut all = vec![json!({
            "id": "quorum", "type": "quorum", "node": "pve1", "status": if self.has("no-quorum") { "No quorum on node 'pve1'!" } else { "OK" },
            "quorate": u8::from(!self.has("no-quorum")),
        })];
        if self.has("no-ha") || self.has("standalone") {
            return Value::from(all);
        }
        let text = |who: &str, state: &str| format!("{who} ({state}, {date})");
        let disarmed = self.has("ha-disarmed");
        let dead = "old timestamp - dead?";
        let master = text("pve1", if self.has("ha-dead") { dead } else { "active" });
        all.push(json!({ "id": "master", "type": "master", "node": "pve1", "status": master, "timestamp": self.now }));
        let (status, armed) = match disarmed {
            true => ("disarmed, resource mode: freeze (CRM watchdog released)", "disarmed"),
            false => ("armed (CRM watchdog active)", "armed"),
        };
        all.push(json!({ "id": "fencing", "type": "fencing", "node": "pve1", "status": status, "armed-state": armed }));
        for node in self.nodes() {
            let state = if self.is_offline(&node) {
                "old timestamp - dead?, watchdog standby"
            } else if self.has("maintenance") && node == self.last() {
                "maintenance mode, watchdog active"
            } else if disarmed {
                "disarm mode, watchdog released"
            } else {
                "active, watchdog active"
            };
            all.push(json!({
                "id": format!("lrm:{node}"), "type": "lrm", "node": node, "status": text(&node, state), "timestamp": self.now,
            }));
        }
        if self.has("node-removed") {
            // HA lists a node for an hour after it was removed from the cluster.
            all.push(json!({
                "id": "lrm:pve9", "type": "lrm", "node": "pve9", "status": text("pve9", "old timestamp - dead?, watchdog standby"),
                "timestamp": self.now - 600,
            }));
        }
        for index in 0..self.scenario.guests.min(2) {
            let (sid, node) = (format!("vm:{}", 100 + index), self.guest_node(index));
            let state = match index {
                1 if self.has("ha-error") => "error",
                1 if self.has("ha-recovery") => "recovery",
                _ => "started",
            };
            all.push(json!({
                "id": format!("service:{sid}"), "type": "service", "sid": sid, "node": node, "state": state,
                "crm_state": state, "request_state": "started", "max_restart": 1, "max_relocate": 1, "failback": 1,
                "status": format!("{sid} ({node}, {state})"),
            }));
        }
        Value::from(all)
    }

    /// pve-cluster: PVE/API2/ClusterConfig.pm. The keys are those of corosync-qdevice-tool. Empty without a quorum
    /// device.
    fn qdevice(&self) -> Value {
        if !self.has("qdevice") && !self.has("qdevice-lost") {
            return json!({});
        }
        let state = if self.has("qdevice-lost") { "Connect failed" } else { "Connected" };
        json!({ "Model": "Net", "State": state, "QNetd host": "192.0.2.200:5403", "Algorithm": "Fifty-Fifty split",
            "Tie-breaker": "Node with lowest node ID",
        })
    }

    fn jobs(&self) -> Value {
        if self.count() < 2 || self.has("no-rights") {
            return json!([]);
        }
        // Configuration only. The node knows when a job last ran (pve-manager: PVE/API2/ReplicationConfig.pm).
        json!([
            { "id": "100-0", "type": "local", "guest": 100, "jobnum": 0, "target": "pve2", "schedule": "*/15", "source": "pve1" },
            { "id": "103-0", "type": "local", "guest": 103, "jobnum": 0, "target": "pve2", "schedule": "daily", "disable": 1 },
        ])
    }

    /// The last tasks of all nodes, which the nodes broadcast.
    fn tasks(&self) -> Value {
        let mut all = vec![task("pve1", "aptupdate", "", self.now - 3600, "OK")];
        if self.has("stopped-on-purpose") {
            all.push(task("pve1", "qmshutdown", "100", self.now - 300, "OK"));
        }
        Value::from(all)
    }

    fn backup_jobs(&self) -> Value {
        let job = |id: &str, enabled: bool| {
            json!({
                "id": id, "type": "vzdump", "enabled": u8::from(enabled), "schedule": "02:00", "storage": "nfs-backup",
                "mode": "snapshot", "next-run": self.now + DAY / 2, "mailnotification": "failure",
            })
        };
        let mut nightly = job("backup-7f3a-1", !self.has("backups-off"));
        nightly["all"] = json!(1);
        if self.has("uncovered") {
            nightly["exclude"] = json!("101,102");
        }
        if !self.has("backup-off") {
            return json!([nightly]);
        }
        let mut weekly = job("backup-7f3a-2", false);
        nightly["exclude"] = json!("101");
        weekly["vmid"] = json!("101,102");
        json!([nightly, weekly])
    }

    /// pve-manager: PVE/API2/BackupInfo.pm. The list includes templates.
    fn uncovered(&self) -> Value {
        let mut all = vec![json!({ "vmid": 9000, "type": "qemu", "name": "debian-template" })];
        if self.has("uncovered") {
            all.push(json!({ "vmid": 101, "type": "qemu", "name": "db-1" }));
            all.push(json!({ "vmid": 102, "type": "lxc", "name": "dns-1" }));
        }
        Value::from(all)
    }
}
