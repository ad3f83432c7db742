//! The resources of the cluster.

use super::estate::{Estate, GB};
use serde_json::{Value, json};

/// Whether the nodes share a storage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Local,
    Shared,
}

impl Estate<'_> {
    /// pve-manager: PVE/API2/Cluster.pm, resources, and PVE/API2Tools.pm, extract_node_stats, extract_vm_stats.
    pub(super) fn resources(&self) -> Value {
        let mut all: Vec<Value> = self.nodes().map(|node| self.node(&node)).collect();
        all.push(json!({ "type": "sdn", "id": "sdn/pve1/localnetwork", "sdn": "localnetwork", "node": "pve1", "status": "ok" }));
        all.push(json!({ "type": "network", "id": "network/pve1/zone/localnetwork", "network": "localnetwork", "node": "pve1", "status": "ok" }));
        if self.has("no-rights") {
            return Value::from(all);
        }
        all.extend((0..self.scenario.guests).map(|index| self.guest(index)));
        all.push(self.template());
        for node in self.nodes() {
            all.extend(["local", "local-zfs"].map(|name| self.storage(name, &node, Sharing::Local)));
            all.extend(["nfs-backup"].map(|name| self.storage(name, &node, Sharing::Shared)));
        }
        all.push(json!({ "type": "pool", "id": "/pool/shop", "pool": "shop" }));
        Value::from(all)
    }

    fn node(&self, name: &str) -> Value {
        let mut node = json!({ "type": "node", "id": format!("node/{name}"), "node": name, "level": "" });
        if self.is_offline(name) {
            node["status"] = json!("offline");
            return node;
        }
        node["status"] = json!("online");
        node["hastate"] = json!(if self.has("maintenance") && name == self.last() { "maintenance" } else { "online" });
        if !self.has("mute") && !self.has("no-rights") && !self.has("no-audit") {
            let fields = json!({
                "cpu": 0.0912, "maxcpu": 16, "mem": 27 * GB, "maxmem": 64 * GB, "disk": 21 * GB, "maxdisk": 98 * GB,
                "uptime": 1_234_567, "cgroup-mode": 2,
            });
            for (field, value) in fields.as_object().into_iter().flatten() {
                node[field] = value.clone();
            }
        }
        node
    }

    pub(super) fn guest_node(&self, index: usize) -> String {
        format!("pve{}", index % self.count() + 1)
    }

    fn guest(&self, index: usize) -> Value {
        let (id, container) = (100 + index, index % 3 == 2);
        let kind = if container { "lxc" } else { "qemu" };
        let node = self.guest_node(index);
        let mut guest = json!({ "type": kind, "id": format!("{kind}/{id}"), "vmid": id, "node": node });
        if self.is_offline(&node) || self.has("mute") {
            // The cluster forgets the node's data about the guest after five minutes, including its name.
            guest["status"] = json!("unknown");
            return guest;
        }
        let names = ["web", "db", "dns", "archive", "mail", "proxy", "build", "wiki"];
        let mut status = if index == 3 { "stopped" } else { "running" };
        if index == 0 && (self.has("guest-stopped") || self.has("guest-locked")) {
            status = "stopped";
        }
        if self.has("guest-prelaunch") && index == 0 {
            status = "prelaunch";
        }
        if self.has("guest-io-error") && index == 0 {
            status = "io-error";
        }
        let running = status == "running";
        let fields = json!({
            "name": format!("{}-{}", names[index % names.len()], index / names.len() + 1), "status": status, "template": 0,
            "cpu": if running { 0.021 } else { 0.0 }, "maxcpu": 2, "mem": if running { 2 * GB } else { 0 }, "maxmem": 4 * GB,
            "disk": if container { if self.has("container-full") { 31 * GB } else { 5 * GB } } else { 0 }, "maxdisk": 32 * GB, "diskread": 12_345_678, "diskwrite": 23_456_789,
            "netin": 34_567_890, "netout": 45_678_901, "uptime": if running { 86_400 } else { 0 },
            "tags": if index == 3 { "archive" } else { "prod;site-a" },
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            guest[field] = value.clone();
        }
        if index < 2 && !self.has("no-ha") {
            guest["hastate"] = json!("started");
            guest["pool"] = json!("shop");
        }
        if (self.has("guest-locked") || self.has("guest-prelaunch")) && index == 0 {
            guest["lock"] = json!("backup");
        }
        guest
    }

    fn template(&self) -> Value {
        if self.has("mute") {
            // The cluster also forgets that the guest is a template.
            return json!({ "type": "qemu", "id": "qemu/9000", "vmid": 9000, "node": "pve1", "status": "unknown" });
        }
        json!({
            "type": "qemu", "id": "qemu/9000", "vmid": 9000, "node": "pve1", "name": "debian-template", "status": "stopped",
            "template": 1, "cpu": 0, "maxcpu": 2, "mem": 0, "maxmem": 2 * GB, "disk": 0, "maxdisk": 8 * GB, "uptime": 0,
        })
    }

    /// A storage that the node does not report has no sizes (pve-manager: PVE/Service/pvestatd.pm).
    fn storage(&self, name: &str, node: &str, sharing: Sharing) -> Value {
        let shared = sharing == Sharing::Shared;
        let plugin = if shared {
            "nfs"
        } else if name == "local" {
            "dir"
        } else {
            "zfspool"
        };
        let mut storage = json!({
            "type": "storage", "id": format!("storage/{node}/{name}"), "storage": name, "node": node,
            "shared": u8::from(shared), "plugintype": plugin, "content": "images,rootdir",
        });
        if self.is_offline(node) || self.has("mute") || self.is_gone(name, node) {
            storage["status"] = json!("unknown");
            return storage;
        }
        storage["status"] = json!("available");
        let total = if shared { 8_000 * GB } else { 960 * GB };
        let share = match name {
            "local" => 42,
            _ if self.has("storage-full") => 97,
            _ if self.has("storage-easing") => 83,
            _ => 42,
        };
        storage["maxdisk"] = json!(total);
        storage["disk"] = json!(total / 100 * share);
        storage
    }

    pub(super) fn is_gone(&self, name: &str, node: &str) -> bool {
        name == "nfs-backup" && (self.has("storage-lost") || self.has("storage-gone") && node == self.last())
    }
}
